"""Nodes whose containers share their CPU: who may ask for how much where all together want more than there is.

Two policies give weights. `flowcon` has lists, growth efficiency, back-off and listeners of FlowCon (algorithms 1 and
2), by what each container used and what its job told; a limit is a weight, and its least share the floor. `phasewise`
serves jobs in the order in which fair sharing would end them, by earlier runs of their classes (`FairQueue`).

Cores go by these weights up to the forecast. What one does not want now goes to the others, and where there is enough
for all each has what it wants. On a node that is busy a container that uses all it is entitled to shows nothing of what
it wants: it is taken to want the whole node. Together they request no more than their owners do: a request is a weight
here, and what is not requested leaves the node open to others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from recommender.contention.fair_queue import FairQueue, Known
from recommender.contention.flowcon import FREE, FlowCon, FlowConOptions, Measured
from recommender.contention.forecast import RunsOfClass, stages_of
from recommender.contention.sharing import fair_shares
from recommender.engine.container_arrays import AHEAD_S
from recommender.engine.keys import Group, Instance, Running
from recommender.engine.seen import Evaluation, Samples
from recommender.engine.tally import Report
from recommender.policies.class_runs import ClassRuns
from recommender.policies.demand_curve import DemandCurve
from recommender.records import CPU, BoolArray, FloatArray, IntArray

PHASEWISE = "phasewise"
"""The policy that is ours."""

BUSY, HELD_BACK = 0.9, 0.8
"""From these shares on: a node is busy, of its cores; a container is held back, of what it is entitled to."""

LEAST_CORES = 0.001
"""Who requests nothing is entitled to hardly anything."""


class SharedNode(NamedTuple):
    """A node whose containers share it.

    Attributes
    ----------
    cpu_cores, declared_cores
        What there is for them, and what they may request together.
    groups
        int64 (m,): the slot of the group of each.
    weights
        Of each.
    held_back
        bool (m,): it uses all that it is entitled to, on a node that is busy.
    """

    cpu_cores: float
    declared_cores: float
    groups: IntArray
    weights: Sequence[float]
    held_back: BoolArray


def divided(nodes: Iterable[SharedNode], cpu_cores: FloatArray, most_cores: FloatArray) -> FloatArray:
    """float64 (n,): what containers of each group are given of what they want, and all of it where nobody shares.

    A group with containers on several nodes has one target: the largest of their shares. One whose containers are yet
    to come gets what it wants up to `most_cores`, float64 (n,).

    Examples
    --------
    Two that want three cores each of a node with four, the first of which learns:

    >>> node = SharedNode(4.0, 4.0, np.array([0, 1]), [0.75, 0.25], np.array([False, False]))
    >>> wanted, most = np.array([3.0, 3.0, 3.0]), np.array([9.0, 9.0, 2.0])
    >>> divided([node], wanted, most).tolist()
    [3.0, 1.0, 2.0]

    Whose owners request half a core each:

    >>> divided([node._replace(declared_cores=1.0)], wanted, most).tolist()
    [0.75, 0.25, 2.0]
    """
    given = np.full(len(cpu_cores), np.nan)
    for node in nodes:
        wanted = np.where(node.held_back, node.cpu_cores, np.nan_to_num(cpu_cores[node.groups]))
        cores = np.array(fair_shares(node.cpu_cores, wanted.tolist(), node.weights))
        in_all = float(cores.sum())
        np.fmax.at(given, node.groups, cores * (min(1.0, node.declared_cores / in_all) if in_all else 1.0))
    return np.where(np.isnan(given) | np.isnan(cpu_cores), np.minimum(cpu_cores, most_cores), given)


class Work(NamedTuple):
    """What a container has used since it started, and the earlier runs of its class; None where it has none."""

    used_core_s: float
    runs: ClassRuns | None


@dataclass(slots=True)
class _Container:
    run: Instance
    node: str
    by: str
    group: Group
    declared_cores: float
    request_cores: float
    changed_s: float
    used_cores: float = math.nan
    used_core_s: float = 0.0
    before_s: float = math.nan
    sampled_s: float = math.nan
    told_s: float = math.nan
    curve: str = ""
    measured: Measured | None = None
    resumed_core_s: float = 0.0


@dataclass(slots=True)
class _Node:
    cpu_cores: float
    flowcon: FlowCon
    limits: Mapping[str, float] = field(default_factory=dict)
    queue: FairQueue = field(default_factory=FairQueue)


MOST_RUNS = 10_000
"""Of so many runs it is known what was done, for pods that go on with them."""

_There = Sequence[tuple[Instance, _Container]]


class Shares:
    """Who shares which node, and how its training comes along. It begins anew with each engine.

    Parameters
    ----------
    work_of
        What is known of the work of a container; asked where jobs share by `phasewise`.
    """

    def __init__(self, work_of: Callable[[Instance], Work], options: FlowConOptions | None = None) -> None:
        self._work_of, self._options = work_of, options or FlowConOptions()
        self._nodes: dict[str, _Node] = {}
        self._containers: dict[Instance, _Container] = {}
        self._came_or_went_s: dict[str, float] = {}
        self._done_core_s: dict[Instance, float] = {}
        self._made = WeakKeyDictionary[ClassRuns, tuple[Sequence[DemandCurve], RunsOfClass]]()

    def take_nodes(self, changed: Mapping[str, float | None]) -> None:
        """How many cores there are for those that share a node; None for one that nobody shares any more."""
        for name, cpu_cores in changed.items():
            if cpu_cores is None:
                self._nodes.pop(name, None)
                self._came_or_went_s.pop(name, None)
            elif name in self._nodes:
                self._nodes[name].cpu_cores = max(0.0, cpu_cores)
            else:
                self._nodes[name] = _Node(max(0.0, cpu_cores), FlowCon(1.0, self._options))

    def place(self, instance: Instance, running: Running, declared_cores: float, now_s: float) -> None:
        """Where a container runs, and what it requests since now; NaN where nobody says what its owner declared."""
        known, node, request_cores = self._containers.get(instance), running.shares_node, running.requests[CPU]
        if running.finished or not node:
            self.forget(instance, now_s)
        elif known is not None and known.node == node:
            if request_cores != known.request_cores:
                known.request_cores, known.changed_s = request_cores, now_s
            known.by, known.group = running.shares_by, running.group
        else:
            declared_cores = request_cores if math.isnan(declared_cores) else declared_cores
            most_cores = declared_cores if declared_cores > 0.0 else math.inf  # who declares nothing sets no bound
            run = instance._replace(pod_uid=running.resumed_pod_uid or instance.pod_uid)
            self._containers[instance] = _Container(
                run, node, running.shares_by, running.group, most_cores, request_cores, now_s, told_s=now_s
            )
            self._came_or_went_s[node] = now_s

    def forget(self, instance: Instance, now_s: float) -> None:
        """A container is gone."""
        if (gone := self._containers.pop(instance, None)) is not None:
            self._came_or_went_s[gone.node] = now_s

    def observe(self, samples: Samples, evaluations: Mapping[Instance, Evaluation], now_s: float) -> None:
        """What containers used, and what was told last of their training.

        What was told before is told again until there is something new; it counts once. What a container had used when
        it told of its training is known only since it is here.
        """
        told = zip(samples.whose, samples.told.tolist(), strict=True)
        for instance, (at_s, cpu_cores, _) in told if self._containers else ():
            known = self._containers.get(instance)
            if known is None or not cpu_cores >= 0.0 or at_s > now_s + AHEAD_S:
                continue
            passed_s = at_s - known.sampled_s
            if -AHEAD_S <= passed_s <= 0.0:
                continue
            known.used_core_s += cpu_cores * max(0.0, np.nan_to_num(passed_s))
            known.used_cores, known.before_s, known.sampled_s = cpu_cores, known.sampled_s, at_s
        for instance, (value, scale, told_s, curve) in evaluations.items():
            known = self._containers.get(instance)
            if known is not None and told_s > known.told_s and math.isfinite(value):
                known.told_s, known.curve, known.measured = told_s, curve, Measured(value, known.used_core_s, scale)

    def shared(self, now_s: float, slots: Mapping[Group, int], report: Report) -> list[SharedNode]:
        """The nodes with the weights of those on them, now; one with which something goes wrong is reported."""
        held: dict[str, list[tuple[Instance, _Container]]] = {name: [] for name in self._nodes}
        for instance, container in self._containers.items():
            if container.node in held and container.group in slots:
                held[container.node].append((instance, container))
        found: list[SharedNode] = []
        for name, there in held.items():
            with report.guard(f"shares of node {name}"):
                if there:
                    found.append(self._shared(name, there, now_s, slots))
        return found

    def _shared(self, name: str, there: _There, now_s: float, slots: Mapping[Group, int]) -> SharedNode:
        node, containers = self._nodes[name], [container for _, container in there]
        held_back = _held_back(node.cpu_cores, containers, self._came_or_went_s.get(name, -math.inf))
        if all(container.by == PHASEWISE for container in containers):
            weights = self._queued(node, there, held_back, now_s)
        else:  # one of them asks for FlowCon
            weights = self._by_flowcon(node, there, now_s)
        groups = np.array([slots[container.group] for container in containers], np.int64)
        declared_cores = sum(container.declared_cores for container in containers)
        return SharedNode(node.cpu_cores, declared_cores, groups, weights, held_back)

    def _stages(self, runs: ClassRuns | None) -> RunsOfClass:
        """Those runs in stages, made once for as long as the class learns nothing."""
        if runs is None:
            return RunsOfClass()
        of, made = self._made.get(runs, (None, RunsOfClass()))
        if of is not runs.runs:
            made = RunsOfClass(
                [stages_of(run.step_s, run.levels[:, CPU].tolist(), run.used_core_s) for run in runs.runs]
            )
            self._made[runs] = runs.runs, made
        return made

    def _queued(self, node: _Node, there: _There, held_back: BoolArray, now_s: float) -> list[float]:
        jobs = {}
        for (instance, container), is_held_back in zip(there, held_back.tolist(), strict=True):
            used_core_s, runs = self._work_of(instance)
            cores = node.cpu_cores if is_held_back else float(np.nan_to_num(container.used_cores))
            jobs[str(instance)] = Known(self._done(instance, container, used_core_s), cores, self._stages(runs))
        weights = node.queue.weights(now_s, node.cpu_cores, jobs)
        return [weights[str(instance)] for instance, _ in there]

    def _done(self, instance: Instance, container: _Container, used_core_s: float) -> float:
        """What a container has used, with what pods did before it that it goes on from; those may still be saving."""
        known = self._done_core_s.pop(container.run, 0.0)
        if used_core_s == 0.0 and container.run != instance:
            container.resumed_core_s = known
        done_core_s = container.resumed_core_s + used_core_s
        self._done_core_s[container.run] = max(known, done_core_s)
        if len(self._done_core_s) > MOST_RUNS:
            del self._done_core_s[next(iter(self._done_core_s))]
        return done_core_s

    def _by_flowcon(self, node: _Node, there: _There, now_s: float) -> list[float]:
        """Algorithm 1 runs when its time has come; one that tells nothing of its training is not limited.

        Who comes to tell of another curve, as its loss in place of its accuracy, is taken for one that has just come.
        """
        names = [f"{instance} {one.curve}" for instance, one in there]
        told = [one.measured for _, one in there]
        jobs = {name: measured for name, measured in zip(names, told, strict=True) if measured is not None}
        if node.flowcon.is_due(now_s, jobs):
            node.limits = node.flowcon.run(now_s, jobs) if jobs else {}
        least = 1.0 / (self._options.beta * len(there))
        return [max(node.limits.get(name, FREE), least) for name in names]


def _held_back(cpu_cores: float, there: Sequence[_Container], came_or_went_s: float) -> BoolArray:
    """Who uses all that it is entitled to on a busy node; of one whose samples cannot show it yet it is assumed.

    A sample is a mean over a while: the first one after its request has changed, or somebody came or went, tells of
    before as well.
    """
    entitled_to = np.fmax(np.array([one.request_cores for one in there]), LEAST_CORES)
    entitled_to *= cpu_cores / entitled_to.sum()
    show_it = np.array([one.before_s > max(one.changed_s, came_or_went_s) for one in there])
    used = np.where(show_it, [one.used_cores for one in there], entitled_to)
    held_back: BoolArray = (used.sum() >= BUSY * cpu_cores) & (used >= HELD_BACK * entitled_to)
    return held_back
