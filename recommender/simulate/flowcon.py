"""FlowCon as the recommender of recorded traces: CPU by how much jobs learn for what they use (algorithms 1 and 2).

A node is shared by the containers with a recorded loss; the others keep what was declared. A share becomes a request:
of the node's cores if recorded, else of the most that was declared on it at a time. A job that FlowCon does not limit
has its declared CPU, and all have their declared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from recommender.base.records import CPU, Amounts, amounts_of
from recommender.contention.flowcon import UNLIMITED, FlowCon, Measured
from recommender.simulate.clock import Recommended, RoundInput, SimulatedRecommender, Trace

LOSS = "loss"


@dataclass(slots=True)
class FlowConNode:
    """The jobs of one node: latest evaluation and CPU time of each, by number."""

    shares: FlowCon
    jobs: dict[str, Measured] = field(default_factory=dict)
    used_core_s: dict[str, float] = field(default_factory=dict)

    def observe(self, number: int, evaluation: float, used_core_s: float) -> None:
        """Take in one sample; NaN without a recorded loss."""
        name = str(number)
        self.used_core_s[name] = self.used_core_s.get(name, 0.0) + used_core_s
        if math.isfinite(evaluation):
            self.jobs[name] = Measured(evaluation, self.used_core_s[name])


class FlowConShares(SimulatedRecommender):
    """Recommends for the containers with a loss, each node by itself."""

    def __init__(self, traces: Sequence[Trace], step_s: float) -> None:
        self._traces, self._step_s = traces, step_s
        self._losses = [trace.series.features.get(LOSS) for trace in traces]
        self._declared: list[Amounts] = [amounts_of(trace.declared[0]) for trace in traces]
        placed: dict[str, list[Trace]] = {}
        for trace in traces:
            placed.setdefault(trace.series.node or "", []).append(trace)
        self._nodes = {name: FlowConNode(FlowCon(capacity_of(on_it))) for name, on_it in placed.items()}

    def recommend(self, observed: RoundInput) -> Recommended:
        """Shares of the nodes on which a job began or ended, or that are due."""
        now = observed.round
        for number, position, used in zip(
            now.numbers.tolist(), now.positions.tolist(), observed.usage.tolist(), strict=True
        ):
            losses = self._losses[number]
            if losses is not None:
                self._node_of(number).observe(number, float(losses[position]), used[CPU] * self._step_s)
        for number in now.ended:
            self._node_of(number).jobs.pop(str(number), None)
        given = {
            int(name): self._share(int(name), limit, node.shares.capacity_cores)
            for node in self._nodes.values()
            if node.jobs and node.shares.is_due(now.now_s, node.jobs)
            for name, limit in node.shares.run(now.now_s, node.jobs).items()
        }
        return Recommended(list(given), np.array([[amounts] * 3 for amounts in given.values()]).reshape(-1, 3, 2))

    def _node_of(self, number: int) -> FlowConNode:
        return self._nodes[self._traces[number].series.node or ""]

    def _share(self, number: int, limit: float, capacity_cores: float) -> Amounts:
        cpu_cores, memory_bytes = self._declared[number]
        return cpu_cores if limit == UNLIMITED else limit * capacity_cores, memory_bytes


def capacity_of(traces: Iterable[Trace]) -> float:
    """Cores of a node, see above; NaN if unknown."""
    listed = list(traces)
    recorded = [cores for trace in listed if math.isfinite(cores := trace.series.facts.allocatable[CPU])]
    if recorded:
        return max(recorded)
    changes = []
    for trace in listed:
        cores = float(np.nanmax(trace.declared[:, CPU], initial=0.0))
        changes += [(float(trace.series.timestamps[0]), cores), (float(trace.series.timestamps[-1]) + 1.0, -cores)]
    return float(np.max(np.cumsum([cores for _, cores in sorted(changes)]), initial=0.0)) or math.nan
