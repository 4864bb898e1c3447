"""Scenarios: from a YAML file to frozen, checked values, and to the points of their sweeps.

`load` reads a file, `find` gets it by name, `at_point` and `grid` vary it. Everything that is wrong with a scenario
comes out as one `ScenarioError`.
"""

from simserve.scenario.errors import ScenarioError
from simserve.scenario.loader import available, find, load
from simserve.scenario.points import at_point, grid
from simserve.scenario.shape import json_schema
from simserve.scenario.study import Study

__all__ = ["ScenarioError", "Study", "at_point", "available", "find", "grid", "json_schema", "load"]
