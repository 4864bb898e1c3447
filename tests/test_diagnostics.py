import numpy as np
import pytest

from simserve.catalog import MODEL_BY_NAME, Hardware
from simserve.cost import Linear, Roofline
from simserve.diagnostics import ideal_decode_throughput_tok_per_s, overtaken_requests, prefill_alone_s
from simserve.records import Log
from simserve.workload import Workload


def workload(prompts: list[int], outputs: list[int]) -> Workload:
    ints = [np.array(column, dtype=np.int64) for column in (prompts, outputs, prompts, [0] * len(prompts))]
    return Workload(np.arange(len(prompts), dtype=np.float64), *ints)


def test_prefill_alone_is_the_sum_over_prompts() -> None:
    cost = Linear(step_s=1.0, prefill_token_s=0.5)
    # (1 + 2/2) + (1 + 2/2) + (1 + 6/2) = 2 + 2 + 4
    assert prefill_alone_s(workload([2, 2, 6], [1, 1, 1]), cost) == pytest.approx(8)


def test_ideal_throughput_at_the_mean_context() -> None:
    cost = Roofline().price(MODEL_BY_NAME["llama-3-8b"], Hardware())
    # Mean context 600 + 100/2 = 650. Bytes: weights 16,060,522,496 + 128 * (650 read + 1 written) * 131,072
    # = 26,982,490,112, over 0.8 * 3.35e12 bytes/s = 10.0682 ms for 128 tokens.
    expected = 128 / (26_982_490_112 / (0.8 * 3.35e12))
    assert ideal_decode_throughput_tok_per_s(workload([600, 600], [50, 150]), cost, 128) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("admitted", "overtaken"),
    [([0, 0, 1, 3], 0), ([2, 0, 1, 3], 1), ([3, 2, 1, 0], 3), ([0, 5, -1, 4], 1), ([], 0)],  # -1 was never admitted
)
def test_who_was_overtaken(admitted: list[int], overtaken: int) -> None:
    log = Log(len(admitted))
    log.admitted_iteration = admitted
    assert overtaken_requests(log.records(workload([1] * len(admitted), [1] * len(admitted)))) == overtaken
