"""Steps an engine second by second with the usage and changes that a test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recommender.base.records import CPU, MEMORY, Sample
from recommender.engine.engine import Engine
from recommender.engine.keys import Group, Instance, Kill, Rules, Running
from recommender.engine.seen import Memory, Samples, Seen
from recommender.engine.tally import Report
from recommender.engine.target import Target
from tests.recommender.engine.worked import GIB, MAIN, NOW_S, an_engine, instance, running


class EngineDriver:
    """An engine, its clock, and at first one container in one group.

    Attributes
    ----------
    usage
        Cores and GiB, by container; those left out have no sample.
    publishes
        Whether each advised target is published at once, as a round does.
    """

    def __init__(self, memory: Memory | None = None, now_s: float = NOW_S, **fields: Any) -> None:
        self.engine: Engine = an_engine(memory)
        self.now_s, self.publishes = now_s, True
        self.usage: dict[Instance, tuple[float, float]] = {instance(): (0.5, 1.0)}
        self.groups: dict[Group, Rules | None] = {MAIN: Rules()}
        self.containers: dict[Instance, Running | None] = {instance(): running(**fields)}
        self.kills: list[Kill] = []
        self.published = 0

    def step(self, sample_interval_s: float = 1.0) -> Report:
        """One step, with everything new since the last one."""
        self.now_s += sample_interval_s
        samples = Samples.of((one, Sample(self.now_s, cpu, gib * GIB)) for one, (cpu, gib) in self.usage.items())
        report = Report()
        targets = self.engine.step(
            self.now_s, Seen(dict(self.groups), dict(self.containers), samples, tuple(self.kills)), report
        )
        self.groups.clear(), self.containers.clear(), self.kills.clear()
        for group, target in list(targets.items()) if self.publishes else ():
            amounts = float(target.estimate.target[CPU]), float(target.estimate.target[MEMORY])
            self.published += self.engine.published(group, amounts, amounts, self.now_s)
        return report

    def steps(self, n: int, sample_interval_s: float = 1.0) -> Sequence[Report]:
        return [self.step(sample_interval_s) for _ in range(n)]

    @property
    def targets(self) -> Mapping[Group, Target]:
        return self.engine.targets

    def target(self, group: Group = MAIN) -> tuple[float, float]:
        """The target of a group, cores and GiB."""
        cpu_cores, memory_bytes = self.targets[group].estimate.target.tolist()
        return cpu_cores, memory_bytes / GIB
