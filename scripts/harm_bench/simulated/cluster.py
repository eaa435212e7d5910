"""A simulated cluster, advanced tick by tick: pods are created, use resources, are killed, resized and evicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from harm_bench.simulated import controllers, kubelet
from harm_bench.simulated.kubelet import Kill
from harm_bench.simulated.pods import Workload
from harm_bench.simulated.updater import INTERVAL_S, Updater

DAY_S = 86400.0

UPDATER_PHASE_S = INTERVAL_S / 2.0
"""The updater runs halfway between full minutes, at which recommenders run: the two are not synchronised."""


@dataclass(slots=True)
class Cluster:
    """Workloads side by side that do not compete for resources.

    `now_s`, `tick_s`: Present time and step of the simulation, seconds.
    `kills`: Kills since the last `take_kills`.
    """

    workloads: Sequence[Workload]
    now_s: float
    tick_s: float = 15.0
    kills: list[Kill] = field(default_factory=list)
    updater: Updater = field(default_factory=Updater)
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.now_s

    def step(self) -> None:
        self.now_s += self.tick_s
        for workload in self.workloads:
            tally = workload.tallies[int((self.now_s - self.began_s) // DAY_S)]
            controllers.reconcile(workload, tally, self.now_s)
            for pod in workload.live:
                self.kills += kubelet.run(workload, pod, tally, self.now_s, self.tick_s)
                kubelet.resize(workload, pod, tally, self.now_s)
            if (self.now_s + UPDATER_PHASE_S) % INTERVAL_S < self.tick_s:
                self.updater.loop(workload, tally, self.now_s)
                controllers.reconcile(workload, tally, self.now_s)

    def take_kills(self) -> list[Kill]:
        taken, self.kills = self.kills, []
        return taken
