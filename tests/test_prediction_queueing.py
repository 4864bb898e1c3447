"""The workers of prediction serving against queueing theory.

As in test_queueing: 25 replications of seed 1, and the closed form must lie inside the 99.9 % Student-t interval of the
mean over the replications, which must be narrow enough to tell. The first fifth of the queries is dropped.
"""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from simserve import query_simulation
from simserve.query_records import QueryRecords
from tests.predictions import fixed, line, plain, poisson, scenario
from tests.test_queueing import REPLICATIONS, sleeping_wait_s, slow

EXPONENTIAL = {"profile": line(1.0), "noise": "exponential"}


def runs(rate_per_s: float, num_requests: int, **system: Any) -> list[QueryRecords]:
    whole = scenario(plain(**system), num_requests, poisson(rate_per_s))
    return [query_simulation.run(whole, "a", replication) for replication in range(REPLICATIONS)]


def late_part(values: np.ndarray) -> np.ndarray:
    return values[len(values) // 5 :]


def waits_s(records: QueryRecords) -> np.ndarray:
    return late_part(records.admitted_s - records.queries.arrival_s)


def latencies_s(records: QueryRecords) -> np.ndarray:
    return late_part(records.finish_s - records.queries.arrival_s)


def assert_mean(expected: float, means: list[float], within: float) -> None:
    """The closed form lies in the interval, and the interval is at most +- `within` of it."""
    half = stats.t.ppf(0.9995, REPLICATIONS - 1) * stats.sem(means)
    assert half < within * expected, f"the interval, +-{half / expected:.1%}, is too wide to tell"
    assert abs(np.mean(means) - expected) < half, f"{np.mean(means):.4f} +- {half:.4f}, theory {expected:.4f}"


# One query at a time.


@pytest.mark.parametrize(
    ("load", "num_requests", "within"), [(0.5, 8_000, 0.05), (0.8, 20_000, 0.08), slow(0.9, 100_000, 0.1)]
)
def test_one_at_a_time_is_m_d_1(load: float, num_requests: int, within: float) -> None:
    # D = 1: load / (2 (1 - load)).
    means = [float(waits_s(records).mean()) for records in runs(load, num_requests)]
    assert_mean(load / (2 * (1 - load)), means, within)


@pytest.mark.parametrize(
    ("load", "num_requests", "within"), [(0.5, 10_000, 0.06), (0.8, 25_000, 0.12), slow(0.9, 150_000, 0.1)]
)
def test_exponential_noise_is_m_m_1(load: float, num_requests: int, within: float) -> None:
    # Mean 1: wait load / (1 - load). Latency is exponential with rate 1 - load: its P99 is ln(100) / (1 - load).
    found = runs(load, num_requests, **EXPONENTIAL)
    assert_mean(load / (1 - load), [float(waits_s(records).mean()) for records in found], within)
    p99_s = [float(np.percentile(latencies_s(records), 99)) for records in found]
    assert np.mean(p99_s) == pytest.approx(np.log(100) / (1 - load), rel=0.06)


def test_lognormal_noise_is_m_g_1() -> None:
    # Pollaczek-Khinchine: E[S^2] = exp(sigma^2), so load exp(sigma^2) / (2 (1 - load)).
    found = runs(0.5, 15_000, noise={"kind": "lognormal", "sigma": 0.8})
    assert_mean(0.5 * np.exp(0.64) / (2 * 0.5), [float(waits_s(records).mean()) for records in found], 0.08)


# Several replicas on one queue.


def erlang_c(replicas: int, load: float) -> float:
    """Return the probability of waiting in M/M/c, `load` in services: by the recursion of Erlang B."""
    blocked = 1.0
    for k in range(1, replicas + 1):
        blocked = load * blocked / (k + load * blocked)
    return replicas * blocked / (replicas - load * (1 - blocked))


def test_erlang_c_itself() -> None:
    # One server: the load. Two at a load of 1: B = 1/5, C = 2/5 / (2 - 4/5) = 1/3.
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("replicas", "load", "num_requests", "within"),
    [(2, 1.4, 15_000, 0.1), (4, 3.2, 25_000, 0.1), (8, 5.6, 20_000, 0.12), slow(4, 3.6, 200_000, 0.1)],
)
def test_replicas_are_m_m_c(replicas: int, load: float, num_requests: int, within: float) -> None:
    """In a busy spell of several replicas a batch ends at some moment, and the head of the one queue is taken."""
    found = runs(load, num_requests, replicas=replicas, **EXPONENTIAL)
    chance = erlang_c(replicas, load)
    assert_mean(chance / (replicas - load), [float(waits_s(records).mean()) for records in found], within)
    assert_mean(chance, [float((waits_s(records) > 0).mean()) for records in found], within / 2)


# Batches.


@pytest.mark.parametrize(
    ("limit", "rate_per_s", "num_requests", "within"),
    [(4, 3.2, 25_000, 0.03), (2, 1.2, 15_000, 0.02), (8, 6.8, 30_000, 0.04), (1, 0.8, 20_000, 0.08)],
)
def test_batches_of_constant_service_are_m_d_k_1(
    limit: int, rate_per_s: float, num_requests: int, within: float
) -> None:
    found = runs(rate_per_s, num_requests, controller=fixed(limit))
    assert_mean(sleeping_wait_s(limit, rate_per_s), [float(waits_s(records).mean()) for records in found], within)


def batch_all_latency_s(rate_per_s: float, fixed_s: float, per_query_s: float, largest: int = 400) -> float:
    """Return the mean latency if each batch takes all who wait, in `fixed + per_query x size`; nobody waiting, the next
    who comes.

    The sizes are a Markov chain: in a batch of n come Poisson(rate x service of n). Who comes in a batch waits half of
    it on average, and the whole of the next.
    """
    sizes = np.arange(1, largest + 1)
    service_s = fixed_s + per_query_s * sizes
    come = stats.poisson.pmf(np.arange(largest + 1)[np.newaxis, :], (rate_per_s * service_s)[:, np.newaxis])
    step = come[:, 1:].copy()
    step[:, 0] += come[:, 0]
    step /= step.sum(axis=1, keepdims=True)
    share = np.full(largest, 1 / largest)
    for _ in range(2000):
        share = share @ step
    # Queries of the next batch, and their latencies: half of this one and all of the next; without this one's half for
    # the one who finds the worker idle.
    counts = share @ (come[:, 1:] @ sizes + come[:, 0])
    seconds = share @ (
        come[:, 1:] @ (sizes * service_s) + service_s / 2 * (come[:, 1:] @ sizes) + come[:, 0] * service_s[0]
    )
    return float(seconds / counts)


def inoue_bound_s(rate_per_s: float, fixed_s: float, per_query_s: float) -> float:
    """Return an upper bound on the same (Inoue, Performance Evaluation, 2021)."""
    load = rate_per_s * per_query_s
    phi_0 = (
        (per_query_s + fixed_s)
        / (2 * (1 - load))
        * (1 + 2 * rate_per_s * fixed_s + (1 - rate_per_s * fixed_s) / (1 + load))
    )
    phi_1 = 1.5 * fixed_s / (1 - load) + per_query_s / 2 * (load + 2) / (1 - load**2)
    return float(min(phi_0, phi_1))


def test_batch_all_itself() -> None:
    # Without a cost per query a batch takes 1 s whatever its size: M/D^[1,K]/1 with K very large, wait and service.
    assert batch_all_latency_s(0.8, 1.0, 0.0) == pytest.approx(sleeping_wait_s(40, 0.8) + 1, rel=1e-6)
    # Hardly any traffic: everyone alone, 2 s.
    assert batch_all_latency_s(1e-6, 1.0, 1.0) == pytest.approx(2, rel=1e-5)
    # A simulated point of the literature: 11.34, and the bound 11.39.
    assert batch_all_latency_s(0.8, 1.0, 1.0) == pytest.approx(11.34, rel=0.005)
    assert inoue_bound_s(0.8, 1.0, 1.0) == pytest.approx(11.39, abs=0.005)


@pytest.mark.parametrize(
    ("rate_per_s", "fixed_s", "per_query_s", "num_requests", "within"),
    [
        (0.8, 1.0, 1.0, 60_000, 0.02),
        (0.5, 1.0, 1.0, 20_000, 0.02),
        (0.3, 2.0, 1.0, 10_000, 0.02),
        (8.0, 0.5, 0.05, 30_000, 0.01),
        slow(0.9, 1.0, 1.0, 300_000, 0.02),
    ],
)
def test_batch_all(rate_per_s: float, fixed_s: float, per_query_s: float, num_requests: int, within: float) -> None:
    found = runs(rate_per_s, num_requests, controller=fixed(1_000_000), profile=line(fixed_s, per_query_s))
    means = [float(latencies_s(records).mean()) for records in found]
    assert_mean(batch_all_latency_s(rate_per_s, fixed_s, per_query_s), means, within)
    assert np.mean(means) < inoue_bound_s(rate_per_s, fixed_s, per_query_s) * (1 + within / 4)
    if (rate_per_s, fixed_s, per_query_s) == (0.8, 1.0, 1.0):
        assert np.mean(means) == pytest.approx(11.34, rel=0.02)


# Little's law, and deadlines.


def test_little() -> None:
    """The area under the number of those in the system, counted by events, is the sum of the latencies."""
    whole = scenario(
        plain(controller="aimd", profile=line(0.003, 0.0005), max_delay_s=0.002),
        3000,
        poisson(600),
        slo={"latency_s": 0.02},
    )
    records = query_simulation.run(whole, "a")
    events = np.concatenate((records.queries.arrival_s, records.finish_s))
    order = np.argsort(events, kind="stable")
    inside = np.cumsum(np.repeat([1, -1], 3000)[order])
    area = float((inside[:-1] * np.diff(events[order])).sum())
    assert area == pytest.approx((records.finish_s - records.queries.arrival_s).sum(), rel=1e-9)
    assert inside[-1] == 0
    assert inside.max() > 5


def test_impatience_is_that_of_m_m_1_with_deadlines_to_start() -> None:
    """M/M/1 where nobody waits longer than d (Barrer, 1957), here at a load of 1.2 services a second.

    The work that an arrival meets has density p0 rate e^(-(1 - rate) x) up to d, and beyond d only who is served counts:
    with rate a and service 1, p0 (1 + a (e^((a-1) d) - 1) / (a - 1) + a e^((a-1) d)) = 1, and the mass beyond d,
    p0 a e^((a-1) d), is the share that is lost.
    """
    rate, patience_s = 1.2, 3.0
    growth = np.exp((rate - 1) * patience_s)
    idle = 1 / (1 + rate * (growth - 1) / (rate - 1) + rate * growth)
    lost = idle * rate * growth
    whole = scenario(plain(**EXPONENTIAL), 20_000, poisson(rate), workload={"deadline_s": patience_s})
    shares = [float(late_part(query_simulation.run(whole, "a", r).expired).mean()) for r in range(REPLICATIONS)]
    assert lost == pytest.approx(1 - (1 - idle) / rate)  # who is served keeps the worker busy
    assert_mean(lost, shares, 0.03)
