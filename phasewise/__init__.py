"""Phasewise in Python: the phases of containers, and the dry run, on data frames.

Frames have the columns of `phasewise dry-run`: timestamp, container (or namespace, pod, container), cpu_cores,
memory_bytes, and optionally workload, cpu_request_cores, memory_request_bytes and others. They may be of pandas, or of
any library whose frames can be exported to Arrow (polars, PyArrow, DuckDB, Ibis).
"""

from phasewise.estimator import PhaseModel
from phasewise.replay import DryRun, dry_run
from recommender import __version__

__all__ = ["DryRun", "PhaseModel", "__version__", "dry_run"]
