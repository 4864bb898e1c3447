import os
import time

import pandas as pd
import pytest
from distributed import LocalCluster

from simserve.experiment.executors import ExecutorError, InProcess, open_executor
from simserve.experiment.study import run_study
from tests.scenarios import small


def square(number: int) -> int:
    time.sleep(0.02 if number == 0 else 0)  # the first call ends last
    return number * number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_calls(workers: int) -> None:
    with open_executor(workers=workers) as executor:
        assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]


def process(_: int) -> int:
    return os.getpid()


def test_one_worker_is_this_process() -> None:
    with open_executor(workers=1) as executor:
        assert isinstance(executor, InProcess)
        assert list(executor.map(process, range(2))) == [os.getpid()] * 2
    with open_executor(workers=2) as executor:
        assert os.getpid() not in executor.map(process, range(2))


def test_a_dask_cluster_gives_the_same_tables() -> None:
    scenario = small(replications=2)
    with (
        LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster,
        open_executor(f"dask://{cluster.scheduler_address}") as executor,
    ):
        tables = run_study(scenario, executor)
    for name, table in run_study(scenario, InProcess()).items():
        pd.testing.assert_frame_equal(tables[name], table, check_exact=True)


@pytest.mark.parametrize("address", ["", "nonsense://1", "127.0.0.1:9"])
def test_a_cluster_that_does_not_answer(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simserve.experiment.executors.PATIENCE_S", 0.2)
    with (
        pytest.raises(ExecutorError, match=f"no Dask scheduler answers at '{address}'"),
        open_executor(f"dask://{address}"),
    ):
        pass


def test_an_unknown_place_is_refused() -> None:
    with (
        pytest.raises(ExecutorError, match="unknown executor 'spark': give local or dask://host:port"),
        open_executor("spark"),
    ):
        pass
