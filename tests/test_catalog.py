"""The catalog's counts against published totals and sums done by hand."""

import pytest

from simserve.catalog import GPU_BY_NAME, MODEL_BY_NAME, Hardware

COUNTS = {
    # name: parameters, linear FLOP a token, LM head FLOP, KV bytes a token, attention FLOP a pair, streamed bytes
    # 2 x 32 x (4096 x (4096 + 2 x 1024) + 4096 x 4096 + 3 x 4096 x 14336); 2 x 128256 x 4096; 2 x 32 x 8 x 128 x 2 B;
    # 4 x 32 x 32 x 128; 2 x (6,979,321,856 + 525,336,576)
    "llama-3-8b": (8_030_261_248, 13_958_643_712, 1_050_673_152, 131_072, 524_288, 15_009_316_864),
    # 2 x 80 x (8192 x (8192 + 2 x 1024) + 8192 x 8192 + 3 x 8192 x 28672) = 160 x 855,638,016
    "llama-3-70b": (70_553_706_496, 136_902_082_560, 2_101_346_304, 327_680, 2_621_440, 139_003_428_864),
    # 2 x 28 x (3584 x (3584 + 2 x 512) + 3584 x 3584 + 3 x 3584 x 18944) = 56 x 233,046,016
    "qwen2.5-7b": (7_615_616_512, 13_050_576_896, 1_089_994_752, 57_344, 401_408, 14_140_571_648),
    # 2 x 64 x (5120 x (5120 + 2 x 1024) + 5120 x 5120 + 3 x 5120 x 27648) = 128 x 487,587,840
    "qwen2.5-32b": (32_763_876_352, 62_411_243_520, 1_557_135_360, 262_144, 1_310_720, 63_968_378_880),
    # As Llama-3-8B with 32,000 words: 2 x 32000 x 4096 for the head.
    "mistral-7b": (7_241_732_096, 13_958_643_712, 262_144_000, 131_072, 524_288, 14_220_787_712),
    # A layer: 4 x (5120 x 5120 + 5120), 2 x 5120 x 20480 + 20480 + 5120, and two norms of 2 x 5120: 314,639,360. 40 of
    # them, 50272 x 5120 words, 2050 x 5120 positions and a last norm of 2 x 5120.
    # 2 x 40 x (4 x 5120 x 5120 + 2 x 5120 x 20480); 2 x 50272 x 5120; 2 x 40 x 40 x 128 x 2 B; 4 x 40 x 40 x 128;
    # 2 x (12,582,912,000 + 257,392,640)
    "opt-13b": (12_853_473_280, 25_165_824_000, 514_785_280, 819_200, 819_200, 25_680_609_280),
}


def test_every_model_is_counted_here() -> None:
    assert set(MODEL_BY_NAME) == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    model = MODEL_BY_NAME[name]
    assert COUNTS[name] == (
        model.parameters,
        model.linear_flop_per_token,
        model.head_flop_per_token,
        model.kv_bytes_per_token,
        model.attention_flop_per_pair,
        model.streamed_weight_bytes,
    )
    assert model.weight_bytes == 2 * model.parameters


def test_tied_embeddings_are_counted_once_and_read_once() -> None:
    llama = MODEL_BY_NAME["llama-3-8b"]
    tied = llama.model_copy(update={"tied_embeddings": True})
    assert type(llama).model_validate(tied.model_dump()).parameters == llama.parameters - 128_256 * 4096


def test_heads_must_divide() -> None:
    llama = MODEL_BY_NAME["llama-3-8b"]
    with pytest.raises(ValueError, match="multiple of kv_heads"):
        type(llama).model_validate({**llama.model_dump(), "kv_heads": 5})


@pytest.mark.parametrize(
    ("name", "flop_per_s", "bytes_per_s", "memory_bytes", "ridge"),
    [
        ("a100-80g", 312e12, 2.039e12, 80e9, 153),
        ("a100-40g", 312e12, 1.555e12, 40e9, 201),
        ("h100-sxm", 989.4e12, 3.35e12, 80e9, 295),
        ("h200", 989.4e12, 4.8e12, 141e9, 206),
    ],
)
def test_data_sheets(name: str, flop_per_s: float, bytes_per_s: float, memory_bytes: float, ridge: int) -> None:
    gpu = GPU_BY_NAME[name]
    assert (gpu.flop_per_s, gpu.bytes_per_s, gpu.memory_bytes) == (flop_per_s, bytes_per_s, memory_bytes)
    assert round(gpu.flop_per_s / gpu.bytes_per_s) == ridge


def test_every_entry_names_its_source() -> None:
    assert all(entry.source for shelf in (MODEL_BY_NAME, GPU_BY_NAME) for entry in shelf.values())


def test_memory_of_one_h100() -> None:
    # 0.90 x 80e9 - 16,060,522,496 = 55,939,477,504 B; / 131,072 = 426,784.3 tokens; / 8192 = 52.1 reservations.
    llama, hardware = MODEL_BY_NAME["llama-3-8b"], Hardware()
    assert hardware.usable_kv_bytes(llama) == pytest.approx(55_939_477_504)
    assert hardware.kv_capacity_tokens(llama) == 426_784
    assert hardware.kv_capacity_tokens(llama) // 8192 == 52


def test_memory_of_the_paged_attention_paper() -> None:
    # 12 GiB at 819,200 B a token: 15,728.6 tokens, 7.7 reservations of 2048.
    capacity = Hardware(gpu=GPU_BY_NAME["a100-40g"], kv_bytes=12 * 2.0**30).kv_capacity_tokens(MODEL_BY_NAME["opt-13b"])
    assert capacity == 15_728
    assert capacity // 2048 == 7


def test_given_kv_bytes_take_the_place_of_the_fraction() -> None:
    llama = MODEL_BY_NAME["llama-3-8b"]
    assert Hardware(kv_bytes=10 * 131_072.0).kv_capacity_tokens(llama) == 10
    assert Hardware(kv_bytes=10 * 131_072.0 - 1).kv_capacity_tokens(llama) == 9  # half a token is none


def test_effective_rates() -> None:
    hardware = Hardware()
    assert hardware.effective_flop_per_s == pytest.approx(692.58e12)
    assert hardware.effective_bytes_per_s == pytest.approx(2.68e12)
