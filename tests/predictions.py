"""What tests of prediction serving share: small systems, and runs of queries written out one by one."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simserve import query_simulation
from simserve.query_integrity import check_query_integrity
from simserve.query_records import QueryRecords
from simserve.scenario.prediction import EnsembleSystem, PredictionScenario, PredictiveSystem
from simserve.workload import Queries, Streams

Row = tuple[float, float, int]
"""A batch: its start, its end, how many queries it holds."""


def line(a_s: float, b_s: float = 0.0) -> dict[str, Any]:
    return {"kind": "linear", "a_s": a_s, "b_s": b_s}


def fixed(batch_size: int) -> dict[str, Any]:
    return {"kind": "fixed", "batch_size": batch_size}


def predictive(**fields: Any) -> PredictiveSystem:
    """Return a system with one worker that takes one query at a time, a second each, but for what is given."""
    return PredictiveSystem.model_validate({"profile": line(1.0), "controller": fixed(1), **fields})


def queries(arrival_s: Sequence[float], keys: Sequence[int] | None = None, patience_s: float = math.inf) -> Queries:
    arrived = np.array(arrival_s, dtype=np.float64)
    key = np.arange(len(arrived)) if keys is None else np.array(keys, dtype=np.int64)
    return Queries(arrived, key, arrived + patience_s)


def serve(
    arrival_s: Sequence[float],
    *,
    keys: Sequence[int] | None = None,
    patience_s: float = math.inf,
    slo_s: float = math.inf,
    seed: int = 1,
    controller: Any = None,
    **fields: Any,
) -> QueryRecords:
    """Send the queries through one model's workers; `controller` may be an object with the method `controller`."""
    is_part = controller is not None and not isinstance(controller, str | Mapping)
    system = predictive(**fields, **({} if is_part or controller is None else {"controller": controller}))
    if is_part:
        system = system.model_copy(update={"controller": controller})
    records = query_simulation._predict(system, queries(arrival_s, keys, patience_s), slo_s, Streams(seed))
    check_query_integrity(records)
    return records


def vote(arrival_s: Sequence[float], models: Mapping[str, Any], *, seed: int = 1, **fields: Any) -> QueryRecords:
    """Send the queries through an ensemble; a model takes one query at a time, a second each, and is always right."""
    member = {"profile": line(1.0), "controller": fixed(1), "accuracy": 1.0}
    full = {name: {**member, **own} for name, own in models.items()}
    system = EnsembleSystem.model_validate({"models": full, **fields})
    records = query_simulation._vote(system, queries(arrival_s), math.inf, Streams(seed))
    check_query_integrity(records)
    return records


def rows(records: QueryRecords, model: int = 0, replica: int | None = None) -> list[Row]:
    """Return start, end and size of each batch, in order of start."""
    batches = records.batches[model] if replica is None else records.batches[model].of(replica)
    return list(zip(batches.start_s.tolist(), batches.end_s.tolist(), batches.size.tolist(), strict=True))


def scenario(
    system: Mapping[str, Any], num_requests: int = 1, arrivals: Any = "burst", **fields: Any
) -> PredictionScenario:
    """Return a scenario with one system, `a`."""
    workload = {"num_requests": num_requests, "arrivals": arrivals, **fields.pop("workload", {})}
    whole = {"kind": "prediction", "name": "test", "workload": workload, "systems": {"a": system}, **fields}
    return PredictionScenario.model_validate(whole)


def poisson(rate_per_s: float) -> dict[str, Any]:
    return {"kind": "poisson", "rate_per_s": rate_per_s}


def plain(**fields: Any) -> dict[str, Any]:
    """Return a predictive system as in YAML: one query at a time, a second each, but for what is given."""
    return {"engine": "predictive", "profile": line(1.0), "controller": fixed(1), **fields}
