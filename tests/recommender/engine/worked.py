"""A fleet and groups whose arrays tests set by hand, and an engine without a cluster."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recommender.base.records import Block, Sample
from recommender.engine.container_arrays import BY_GRAPH
from recommender.engine.containers import NewContainer
from recommender.engine.engine import Engine
from recommender.engine.fleet import Fleet
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.keys import Group, Instance, Running
from recommender.engine.options import Options
from recommender.engine.seen import Memory, Samples
from recommender.engine.situation import MIN_JUDGED_SAMPLES
from recommender.learning import model as models
from recommender.policies.histogram import HistogramAggregate, HistogramSession

MODEL = models.load(models.BUNDLED)
GIB = 2.0**30
NOTHING = (math.nan, math.nan)
NOW_S, CYCLE = 1_000_000.0, 30
MARGIN = Options().rails.memory_margin
MAIN, SIDE = Group("ns", "job", "main"), Group("ns", "job", "side")


class World:
    """Groups by number, and containers in them: each has one sample, for its slot; all else is set by hand."""

    def __init__(self, groups: int = 1) -> None:
        self.fleet = Fleet(MODEL, 1.0, CYCLE, lambda _: NewContainer(None, HistogramSession()))
        self.groups = GroupArrays()
        self.groups.grow(groups)
        self.groups.alive[:] = True

    def add(self, group: int = 0, **state: Any) -> int:
        """Add a container, by default a mature one with a forecast; returns its slot."""
        instance = Instance("ns", f"uid-{len(self.fleet.members)}", "main")
        self.fleet.observe(Samples.of([(instance, Sample(NOW_S, 0.5, GIB))]))
        slot, arrays = self.fleet.members[instance].slot, self.fleet.arrays
        mature = {"decided_by": BY_GRAPH, "samples": MIN_JUDGED_SAMPLES, "phase": 1, "wanted": (0.5, GIB)}
        for name, value in {"group": group, **mature, **state}.items():
            getattr(arrays, name)[slot] = value
        return slot


def instance(number: int = 0, container: str = "main") -> Instance:
    return Instance("ns", f"uid-{number}", container)


def running(**fields: Any) -> Running:
    """A container that requests two cores and 4 GiB."""
    defaults = {"workload": None, "started_s": NOW_S, "requests": (2.0, 4 * GIB), "limits": NOTHING}
    return Running(fields.pop("group", MAIN), **(defaults | fields))


def an_engine(memory: Memory | None = None, step_s: float = 1.0) -> Engine:
    return Engine(Fleet(MODEL, step_s, CYCLE), Options(), memory=memory)


def pairs(*rows: tuple[float, float]) -> np.ndarray:
    """float64 (n, 2)."""
    return np.array(rows, np.float64).reshape(-1, 2)


def with_history(cpu_cores: float, memory_gib: float) -> HistogramAggregate:
    history = HistogramAggregate()
    rows = np.repeat(pairs((cpu_cores, memory_gib * GIB)), 100, axis=0)
    history.session("past").advance(Block(rows, np.arange(100) * 60 + int(NOW_S) - 6000, np.empty(0, np.int64)))
    history.leave("past")
    return history
