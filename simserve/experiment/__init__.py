"""Many runs as one experiment: the grid of points, replications, the goodput search, intervals and claims."""

from simserve.experiment.executors import ExecutorError, open_executor
from simserve.experiment.publish import publish
from simserve.experiment.quick import quick_form
from simserve.experiment.study import Tables, run_study

__all__ = ["ExecutorError", "Tables", "open_executor", "publish", "quick_form", "run_study"]
