"""Checks whether a model can be used live, and compiles what is compiled before the first rounds need it."""

from __future__ import annotations

import importlib
import sys

import numpy as np

from recommender.engine.containers import NewContainer, slots_of
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.judging import judge
from recommender.engine.keys import Instance
from recommender.engine.options import RailOptions
from recommender.engine.seen import Samples
from recommender.engine.situation import assess
from recommender.engine.tally import Report
from recommender.learning.model import PhaseModel
from recommender.policies.class_runs import ClassRuns
from recommender.policies.demand_curve import DemandCurve
from recommender.policies.histogram import HistogramSession

CONTAINERS = 3


def check_live(model: PhaseModel) -> None:
    """Raise a `Misuse` unless the model can be used live: with demand, on CPU and memory alone."""
    Fleet(model, 1.0, 1)


def warm_up(model: PhaseModel, step_s: float, cycle_samples: int) -> None:
    """Load compiled code by running a few synthetic containers for two cycles, one with an earlier run of its class.

    What Numba's cache lacks is compiled, which takes some seconds and leaves 60 MB behind that are never used again.
    """
    _import_numba()
    rng, instances = np.random.default_rng(0), [Instance("ns", f"pod-{n}", "main") for n in range(CONTAINERS)]
    runs = ClassRuns([DemandCurve(step_s, np.full((2 * cycle_samples, 2), (1.0, 2e9), np.float32), 1.0)])
    fleet = Fleet(model, step_s, cycle_samples)
    fleet.introduce = lambda one: NewContainer(None, HistogramSession(), runs if one == instances[0] else None)
    for cell in range(2 * cycle_samples + model.detector.lag):
        now_s = cell * step_s
        fleet.observe(Samples(instances, rng.uniform((now_s, 0.1, 1e8), (now_s, 2.0, 4e9), (CONTAINERS, 3))))
        fleet.decide(fleet.due(now_s), now_s)
    members = list(fleet)
    fleet.relabel(members)  # as after a restart
    fleet.update_history(slots := slots_of(members))
    for member in members:
        member.history.observe_oom(now_s, 1e9)
        member.history.estimate()
    groups = GroupArrays(slots=CONTAINERS)
    judge(fleet, groups, slots, (0.0, 0.0), Report(), now_s)
    assess(fleet, groups, np.ones((CONTAINERS, 2)), np.ones(CONTAINERS, bool), (), now_s, RailOptions())
    groups.record_memory(slots, np.zeros(CONTAINERS), np.zeros(CONTAINERS), now_s)


def _import_numba() -> None:
    """Keep Numba from looking for a BLAS in SciPy, where that is installed: 16 MiB."""
    if "scipy.linalg" not in sys.modules:
        sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
        importlib.import_module("numba.np.arraymath")
        del sys.modules["scipy.linalg"]
