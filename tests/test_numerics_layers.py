"""Norm, activation, rotary embedding and attention of the mini-Llama, by hand where hands suffice."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from simserve.numerics import Ledger, Llama3Scaling, LlamaConfig
from simserve.numerics.attention import grouped_attention
from simserve.numerics.config import MINI, MINI_13M
from simserve.numerics.layers import linear, rms_norm, softmax, swiglu
from simserve.numerics.rotary import frequencies, rotate, rotation


def test_rms_norm_by_hand() -> None:
    # The mean square of (3, 4) is 12.5, and with an eps of 3.5 the root of 16 is 4: (3/4, 4/4) times (1, 2).
    ledger = Ledger()
    normed = rms_norm(np.array([[3.0, 4.0]]), np.array([1.0, 2.0]), 3.5, ledger)
    assert normed.tolist() == [[0.75, 2.0]]
    assert ledger == Ledger(norm_bytes=16)


def test_linear_enters_its_product() -> None:
    # 3 rows times [2, 4]: 2 * 3 * 2 * 4 = 48 FLOP; 8 weights of 4 bytes are read, however many rows there are.
    ledger = Ledger()
    rows = linear(np.ones((3, 2), np.float32), np.ones((2, 4), np.float32), ledger)
    assert (rows == 2).all()
    assert rows.shape == (3, 4)
    assert ledger == Ledger(linear_flop=48, linear_bytes=32)


def test_swiglu_by_hand() -> None:
    # silu(0) = 0; silu(ln 3) = ln 3 * 3/4. A gate of -1000 overflows its exponential, and gives 0.
    gate_up = np.array([[0.0, math.log(3), -1000.0, 5.0, 8.0, 7.0]])
    np.testing.assert_allclose(swiglu(gate_up), [[0.0, 6 * math.log(3), 0.0]], rtol=1e-15)


def test_softmax_by_hand() -> None:
    scores = np.array([[0.0, math.log(3), -np.inf]])
    softmax(scores)
    np.testing.assert_allclose(scores, [[0.25, 0.75, 0.0]], rtol=1e-15)


def config(**fields: object) -> LlamaConfig:
    return MINI.model_validate(MINI.model_dump() | fields)


def test_rotary_turns_a_head_of_two_dimensions_by_its_position() -> None:
    # The only frequency is theta ** 0 = 1: at position p, (1, 0) becomes (cos p, sin p).
    turns = frequencies(config(head_dim=2))
    assert turns.tolist() == [1.0]
    heads = np.tile([1.0, 0.0], (4, 1, 1))
    rotate(heads, rotation(np.arange(4), turns, np.float64))
    np.testing.assert_allclose(heads[:, 0], [[math.cos(p), math.sin(p)] for p in range(4)], rtol=1e-15)


def test_rotary_pairs_the_halves() -> None:
    # Of four dimensions, 0 goes with 2 at frequency 1, and 1 with 3 at 10000 ** -0.5 = 1/100.
    heads = np.array([[[1.0, 0.0, 0.0, 2.0]]])
    rotate(heads, rotation(np.array([5]), frequencies(config(head_dim=4)), np.float64))
    by_hand = [math.cos(5), -2 * math.sin(0.05), math.sin(5), 2 * math.cos(0.05)]
    np.testing.assert_allclose(heads[0, 0], by_hand, rtol=1e-14)


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_scores_depend_on_the_distance_alone(query: int, key: int, shift: int) -> None:
    rng = np.random.default_rng(1)
    turns = frequencies(MINI)
    pair = rng.standard_normal((2, 1, MINI.head_dim))
    scores = []
    for positions in ([query, key], [query + shift, key + shift]):
        turned = pair.copy()
        rotate(turned, rotation(np.array(positions), turns, np.float64))
        scores.append(float(turned[0, 0] @ turned[1, 0]))
    assert scores[0] == pytest.approx(scores[1], rel=1e-9, abs=1e-9)


def test_llama_3_scaling_by_hand() -> None:
    # Over 256 original positions: frequency 1 turns 40.7 times and stays; 1e-4 turns 0.004 times and is slowed by 8.
    # 1/100 turns 256 / 100 / 2 pi = 0.407 times: between 0.1 and 1 it is blended, (0.407 - 0.1) / 0.9 of it unchanged.
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=0.1, high_freq_factor=1.0, original_max_positions=256)
    turns = frequencies(config(head_dim=8, rope_scaling=scaling, rope_theta=1e4))
    plain = frequencies(config(head_dim=8, rope_theta=1e4))
    np.testing.assert_allclose(plain, [1, 1e-1, 1e-2, 1e-3], rtol=1e-12)
    unchanged = (256 / 100 / (2 * math.pi) - 0.1) / 0.9
    by_hand = [1, 1e-1, 1e-2 * (unchanged + (1 - unchanged) / 8), 1e-3 / 8]
    np.testing.assert_allclose(turns, by_hand, rtol=1e-12)


def test_attention_of_two_tokens_by_hand() -> None:
    # One head of dimension 1: score = query * key. Query 0 sees key 0 alone. Query 1 scores 0 and ln 3: its weights are
    # 1/4 and 3/4, and of the values 8 and 16 it gets 14.
    queries = np.array([[[5.0]], [[1.0]]])
    kv = np.array([[[0.0], [math.log(3)]], [[8.0], [16.0]]])
    hidden = np.array([[False, True], [False, False]])
    np.testing.assert_allclose(grouped_attention(queries, kv, hidden), [[8.0], [14.0]], rtol=1e-15)


def test_neighbouring_heads_share_a_kv_head() -> None:
    rng = np.random.default_rng(2)
    queries, kv = rng.standard_normal((3, 4, 8)), rng.standard_normal((4, 7, 8))
    hidden = ~np.tri(3, 7, 4, dtype=np.bool_)
    keys, values = np.repeat(kv[:2], 2, axis=0), np.repeat(kv[2:], 2, axis=0)  # one for each of the four heads
    everyone_alone = grouped_attention(queries, np.concatenate([keys, values]), hidden)
    np.testing.assert_allclose(grouped_attention(queries, kv, hidden), everyone_alone, rtol=1e-13)


def test_a_batch_axis_is_so_many_attentions() -> None:
    rng = np.random.default_rng(3)
    queries, kv = rng.standard_normal((5, 3, 4, 8)), rng.standard_normal((5, 4, 7, 8))
    hidden = rng.random((5, 3, 7)) < 0.4
    hidden[:, :, 0] = False
    one_by_one = [grouped_attention(*arguments) for arguments in zip(queries, kv, hidden, strict=True)]
    np.testing.assert_allclose(grouped_attention(queries, kv, hidden), np.stack(one_by_one), rtol=1e-13)


def test_sizes() -> None:
    # 2 layers of 64 * (64 + 64) + 64 * 64 + 3 * 64 * 160, two tables of 256 * 64, five norms of 64.
    def parameters(c: LlamaConfig) -> int:
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        linear_weights = c.hidden * (q + 2 * kv) + q * c.hidden + 3 * c.hidden * c.ffn
        return c.layers * (linear_weights + 2 * c.hidden) + 2 * c.vocab * c.hidden + c.hidden

    assert parameters(MINI) == 119_104
    assert parameters(MINI_13M) == 13_177_344


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kv_heads": 3}, r"heads \(4\) must be a multiple of kv_heads \(3\)"),
        ({"head_dim": 7}, r"head_dim \(7\) must be even"),
        ({"layers": 0}, "greater than or equal to 1"),
        (
            {"rope_scaling": {"factor": 8, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_positions": 9}},
            r"low_freq_factor \(4.0\) must be below high_freq_factor \(1.0\)",
        ),
    ],
)
def test_impossible_architectures(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        config(**fields)
