"""The engines: SimPy processes that turn requests into tokens, iteration by iteration; `predictive` serves queries."""

from simserve.engine.arrivals import Arrivals
from simserve.engine.base import Engine
from simserve.engine.clock import Clock
from simserve.engine.continuous import ContinuousEngine
from simserve.engine.request_level import RequestLevelEngine

__all__ = ["Arrivals", "Clock", "ContinuousEngine", "Engine", "RequestLevelEngine"]
