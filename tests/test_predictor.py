import numpy as np
import pytest
from pydantic import TypeAdapter

from simserve.scheduling.predictor import PredictorSpec
from simserve.workload import Streams, Workload


def predict(predictor: object, outputs: list[int], seed: int = 1) -> np.ndarray:
    ints = [np.array(column) for column in (outputs, outputs, outputs, [0] * len(outputs))]
    workload = Workload(np.arange(float(len(outputs))), *ints)
    return (
        TypeAdapter(PredictorSpec).validate_python(predictor).predict(workload, Streams(seed).generator("predictions"))
    )


def test_the_oracle_knows_and_a_constant_does_not() -> None:
    assert predict("oracle", [3, 900]).tolist() == [3, 900]
    assert predict({"kind": "constant", "tokens": 50}, [3, 900]).tolist() == [50, 50]


def test_buckets_by_their_upper_edge() -> None:
    bucketed = {"kind": "bucketed", "edges": [64, 256]}
    assert predict(bucketed, [1, 64, 65, 256, 257, 9999]).tolist() == [64, 64, 256, 256, 512, 512]


def test_noise_has_the_spread_it_says() -> None:
    size = 100_000
    errors = np.log(predict({"kind": "lognormal_noise", "sigma": 0.5}, [200] * size) / 200)
    assert abs(errors.mean()) < 5 * 0.5 / np.sqrt(size)
    assert errors.std() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(2 * size))


def test_the_same_errors_at_every_sigma() -> None:
    mild, wild = (np.log(predict({"kind": "lognormal_noise", "sigma": sigma}, [100] * 50) / 100) for sigma in (0.5, 1))
    np.testing.assert_allclose(wild, 2 * mild)
    assert predict({"kind": "lognormal_noise", "sigma": 0}, [7]).tolist() == [7]
