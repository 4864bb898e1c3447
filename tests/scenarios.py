"""Small scenarios for tests."""

from typing import Any

from simserve.scenario.serving import ServingScenario

CHAT: dict[str, Any] = {
    "num_requests": 60,
    "arrivals": {"kind": "poisson", "rate_per_s": 8},
    "prompt_tokens": {"kind": "lognormal", "mean": 512, "sigma": 0.8, "max": 8000},
    "output_tokens": {"kind": "lognormal", "mean": 60, "sigma": 0.8, "max": 4096},
}

SYSTEMS: dict[str, Any] = {
    "static": {"engine": "request_level", "max_batch_size": 16},
    "orca": {"engine": "continuous", "memory": {"kind": "reservation", "reserve": "max", "max_tokens": 8192}},
}


def small(**changes: Any) -> ServingScenario:
    """Return a chat scenario of 60 requests and two systems, with top-level keys replaced."""
    fields = {
        "name": "small",
        "model": "llama-3-8b",
        "workload": CHAT,
        "slo": {"ttft_s": 1.0, "tpot_s": 0.05},
        "systems": SYSTEMS,
    }
    return ServingScenario.model_validate(fields | changes)
