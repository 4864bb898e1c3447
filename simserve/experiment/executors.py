"""Where the runs of an experiment are computed: in this process, in a pool of processes, or on a Dask cluster.

All are `concurrent.futures` executors whose `map` keeps the order of its arguments, so results do not depend on the
choice.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 10
"""How long a Dask scheduler has to answer."""


class ExecutorError(Exception):
    """An executor cannot be had; the message says why and what to do."""


class InProcess(Executor):
    """Runs each call at once, in this process."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the call and return its finished future."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Workers(ProcessPoolExecutor):
    """Processes on this machine, which can be ended in the middle of their work."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        if threading.current_thread() is threading.main_thread():  # no other thread is interrupted, or may set this
            # Workers leave Ctrl-C to this process, from birth: one that learns it later could be interrupted before.
            handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                self.submit(int).result()
            finally:
                signal.signal(signal.SIGINT, handler)

    def map(self, fn: Any, *iterables: Any, **options: Any) -> Iterator[Any]:
        """Yield the results in order. Unlike the base's, an iterator that is dropped cancels nothing: see `kill`."""
        futures = deque(self.submit(fn, *arguments) for arguments in zip(*iterables, strict=False))
        return (futures.popleft().result() for _ in range(len(futures)))

    def kill(self) -> None:
        """End all workers now, calls and all: with those cancelled first, the pool would trip over them."""
        for worker in multiprocessing.active_children():
            worker.kill()
        self.shutdown()


@contextmanager
def open_executor(where: str = "local", workers: int | None = None) -> Iterator[Executor]:
    """Open an executor for as long as the context lasts; leaving it by an exception drops all calls not yet done.

    `where` is `local` for `workers` processes on this machine (all cores by default; 1 stays in this process), or
    `dask://host:port` for the scheduler of a Dask cluster whose workers have simserve installed.

    Raises:
        ExecutorError: not a known place, or the cluster cannot be reached.
    """
    if where == "local":
        opened = _local(workers or _cores())
    elif where.startswith("dask://"):
        opened = _dask(where.removeprefix("dask://"))
    else:
        raise ExecutorError(f"unknown executor {where!r}: give local or dask://host:port")
    with opened as executor:
        yield executor


def _cores() -> int:
    """Return the cores this process may use; where the system cannot say, those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _local(workers: int) -> Iterator[Executor]:
    if workers == 1:
        yield InProcess()
        return
    pool = Workers(workers)
    try:
        yield pool
    except BaseException:
        pool.kill()
        raise
    pool.shutdown()


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError:
        raise ExecutorError("a Dask cluster needs the extra: pip install 'simserve[cluster]'") from None
    try:
        client = Client(address, timeout=PATIENCE_S)
    except (OSError, ValueError) as fault:
        raise ExecutorError(f"no Dask scheduler answers at {address!r}: {fault}") from None
    with client:
        yield client.get_executor()
