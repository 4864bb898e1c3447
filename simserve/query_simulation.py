"""The one place where the parts of a run of prediction serving are wired together."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simserve.cost import ServiceTimes, Situation
from simserve.engine import Clock
from simserve.engine.predictive import (
    ArrivalInbox,
    CachedInbox,
    Ensemble,
    Inbox,
    MailInbox,
    Situations,
    Worker,
)
from simserve.query_integrity import check_query_integrity
from simserve.query_records import NOT_YET, QueryLog, QueryRecords
from simserve.scenario.prediction import EnsembleSystem, Member, ModelSpec, PredictionScenario, PredictiveSystem
from simserve.workload import Queries, Streams

WRONG_LABEL_FROM = 1
"""Label 0 is the right answer."""


def run(scenario: PredictionScenario, system: str, replication: int = 0) -> QueryRecords:
    """Send the scenario's queries through one of its systems until every one is answered or dropped.

    The scenario, its seed and the replication decide everything: the same arguments give the same records.

    Raises:
        KeyError: no system of that name.
        IntegrityError: the records contradict each other, which is a fault of simserve.
    """
    streams = Streams(scenario.seed, replication)
    queries = scenario.queries_for(system).draw(streams)
    chosen = scenario.systems[system]
    slo_s = scenario.slo.latency_s if scenario.slo else math.inf
    if isinstance(chosen, PredictiveSystem):
        records = _predict(chosen, queries, slo_s, streams)
    else:
        records = _vote(chosen, queries, slo_s, streams)
    check_query_integrity(records)
    return records


def _predict(system: PredictiveSystem, queries: Queries, slo_s: float, streams: Streams) -> QueryRecords:
    """Run one model's workers."""
    clock, log, situations = Clock(), QueryLog(len(queries)), Situations()
    inbox = (
        ArrivalInbox(clock, queries, log)
        if system.cache is None
        else CachedInbox(clock, queries, log, system.cache.cache())
    )
    _start_workers("model", system, clock, inbox, log, situations, slo_s, streams)
    clock.run()
    answered_by = np.array(log.answered_by)
    admitted_s, finish_s = _times(log, answered_by)
    expired = np.zeros(len(queries), dtype=np.bool_)
    expired[log.expired] = True
    repeats = answered_by != np.arange(len(queries))
    cached = repeats & (finish_s <= queries.arrival_s)
    return QueryRecords(
        queries=queries,
        admitted_s=np.where(cached, np.nan, np.maximum(admitted_s, queries.arrival_s)),
        finish_s=np.where(cached, queries.arrival_s, finish_s),
        expired=expired[answered_by],
        cached=cached,
        joined=repeats & ~cached & ~expired[answered_by],
        batches=(log.records(),),
        models=("model",),
        replicas=len(system.speeds),
        ceilings=(_ceilings(system, situations, slo_s),),
    )


def _vote(system: EnsembleSystem, queries: Queries, slo_s: float, streams: Streams) -> QueryRecords:
    """Run several models' workers, and the selection layer before them."""
    clock, size = Clock(), len(queries)
    logs = [QueryLog(size) for _ in system.models]
    inboxes = [MailInbox(clock) for _ in system.models]
    situations = [Situations() for _ in system.models]
    for (name, model), inbox, log, known in zip(system.models.items(), inboxes, logs, situations, strict=True):
        _start_workers(name, model, clock, inbox, log, known, slo_s, streams)
    accuracies = np.array([_accuracy(model, size) for model in system.models.values()])
    layer = Ensemble(
        clock=clock,
        queries=queries,
        inboxes=inboxes,
        selection=system.selection.policy(list(system.models), streams.generator("selection")),
        labels=_labels(system, accuracies, streams),
        deadline_s=math.inf if system.deadline_s is None else system.deadline_s,
    )
    clock.process(layer.process())
    clock.run()
    nobody = np.zeros(size, dtype=np.bool_)
    starts_s = np.array([_times(log, np.arange(size))[0] for log in logs])
    first_s = np.min(np.where(np.isnan(starts_s), np.inf, starts_s), axis=0)
    return QueryRecords(
        queries=queries,
        admitted_s=np.where(first_s <= layer.finish_s, first_s, np.nan),
        finish_s=layer.finish_s,
        expired=nobody,
        cached=nobody,
        joined=nobody,
        batches=tuple(log.records() for log in logs),
        models=tuple(system.models),
        replicas=sum(len(model.speeds) for model in system.models.values()),
        ceilings=tuple(
            _ceilings(model, known, slo_s) for model, known in zip(system.models.values(), situations, strict=True)
        ),
        ballots=layer.ballots(np.argmax(accuracies, axis=0)),
    )


def _start_workers(
    name: str,
    model: ModelSpec,
    clock: Clock,
    inbox: Inbox,
    log: QueryLog,
    situations: Situations,
    slo_s: float,
    streams: Streams,
) -> None:
    """Put a worker on the clock for each replica; each learns by itself."""
    for replica, speed in enumerate(model.speeds):
        noise = model.noise.factors(streams.generator(f"service noise of {name}, replica {replica}"))
        rng = streams.generator(f"controller of {name}, replica {replica}")
        worker = Worker(
            clock=clock,
            inbox=inbox,
            controller=model.controller.controller(slo_s, rng),
            service=ServiceTimes(model.profile, model.disturbances, noise, speed),
            log=log,
            situations=situations,
            replica=replica,
            slo_s=slo_s,
            max_delay_s=model.max_delay_s,
        )
        clock.process(worker.process())


def _times(log: QueryLog, answered_by: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when the batch that answers each query starts and ends, NaN where there is none."""
    batches, batch = log.records(), np.array(log.batch_of)[answered_by]
    taken = batch != NOT_YET
    start_s, end_s = np.full((2, len(batch)), np.nan)
    start_s[taken], end_s[taken] = batches.start_s[batch[taken]], batches.end_s[batch[taken]]
    return start_s, end_s


def _ceilings(model: ModelSpec, situations: Mapping[Situation, int], slo_s: float) -> NDArray[np.int64]:
    """Return the largest batch within the SLO for each replica in each situation, without noise."""
    if slo_s == math.inf:
        return np.empty((0, 0), dtype=np.int64)
    return np.array(
        [[situation.largest_batch(model.profile, slo_s, speed) for situation in situations] for speed in model.speeds]
    )


def _accuracy(model: Member, size: int) -> NDArray[np.float64]:
    """Return how likely a model is to be right, query by query."""
    accuracy = np.full(size, model.accuracy)
    if model.drift is not None:
        accuracy[round(size * model.drift.at) :] = model.drift.accuracy
    return accuracy


def _labels(system: EnsembleSystem, accuracies: NDArray[np.float64], streams: Streams) -> NDArray[np.int64]:
    """Draw what each model says to each query, asked or not: 0 where it is right, else one of the other labels."""
    labels = np.empty(accuracies.shape, dtype=np.int64)
    for row, name, accuracy in zip(labels, system.models, accuracies, strict=True):
        rng = streams.generator(f"answers of {name}")
        right = rng.random(len(row)) < accuracy
        row[:] = np.where(right, 0, rng.integers(WRONG_LABEL_FROM, system.num_labels, len(row)))
    return labels
