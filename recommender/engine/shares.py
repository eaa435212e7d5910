"""Nodes whose containers share CPU: how it is divided where they want more than there is.

Two policies give weights. `flowcon` is FlowCon's algorithms 1 and 2, with its lists, growth efficiency, back-off and
listeners, on the usage and progress of each job; a limit serves as weight, its minimum share as floor. `phasewise`
serves jobs in the order in which fair sharing would finish them, by earlier runs of their classes (`FairQueue`).

CPU is divided by weight up to the forecast, and what one does not need goes to the others. On a busy node the usage of
a container that uses all it is entitled to hides its demand, which is taken to be the whole node. Together they request
no more than their owners declared: a request serves as weight, and the rest leaves the node open to others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from recommender.base.records import CPU, BoolArray, FloatArray, IntArray
from recommender.contention.fair_queue import FairQueue, RunningJob
from recommender.contention.flowcon import UNLIMITED, FlowCon, FlowConOptions, Measured
from recommender.contention.sharing import RunsOfClass, fair_shares, stages_of
from recommender.engine.container_arrays import MAX_CLOCK_SKEW_S
from recommender.engine.keys import Group, Instance, Running
from recommender.engine.seen import Evaluation, Samples
from recommender.engine.tally import Report
from recommender.policies.class_runs import ClassRuns
from recommender.policies.demand_curve import DemandCurve

PHASEWISE = "phasewise"
"""Our own policy."""

BUSY_SHARE, HELD_BACK_SHARE = 0.9, 0.8
"""Used shares from which a node is busy, of its cores, and a container is held back, of its entitlement."""

MIN_CORES = 0.001
"""Entitlement of a container without a request."""


class SharedNode(NamedTuple):
    """A node whose containers share CPU.

    `cpu_cores` are available to them, `declared_cores` they may request together. `groups`, int64 (m,), are the slots
    of their groups; `held_back`, bool (m,), those that use all that they are entitled to, on a busy node.
    """

    cpu_cores: float
    declared_cores: float
    groups: IntArray
    weights: Sequence[float]
    held_back: BoolArray


def divide_cores(nodes: Iterable[SharedNode], cpu_cores: FloatArray, cap_cores: FloatArray) -> FloatArray:
    """float64 (n,): cores that each group gets of what it wants; all of it where CPU is not shared.

    A group with containers on several nodes has one target, the largest of their shares. Without containers yet it gets
    what it wants up to `cap_cores`, float64 (n,).

    Examples
    --------
    Two that want three cores each of a node with four, the first of which learns:

    >>> node = SharedNode(4.0, 4.0, np.array([0, 1]), [0.75, 0.25], np.array([False, False]))
    >>> wanted, cap = np.array([3.0, 3.0, 3.0]), np.array([9.0, 9.0, 2.0])
    >>> divide_cores([node], wanted, cap).tolist()
    [3.0, 1.0, 2.0]

    Whose owners request half a core each:

    >>> divide_cores([node._replace(declared_cores=1.0)], wanted, cap).tolist()
    [0.75, 0.25, 2.0]
    """
    given = np.full(len(cpu_cores), np.nan)
    for node in nodes:
        wanted = np.where(node.held_back, node.cpu_cores, np.nan_to_num(cpu_cores[node.groups]))
        cores = np.array(fair_shares(node.cpu_cores, wanted.tolist(), node.weights))
        total = float(cores.sum())
        np.fmax.at(given, node.groups, cores * (min(1.0, node.declared_cores / total) if total else 1.0))
    return np.where(np.isnan(given) | np.isnan(cpu_cores), np.minimum(cpu_cores, cap_cores), given)


class Work(NamedTuple):
    """CPU time that a container has used since it started, and the earlier runs of its class; None without a class."""

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
    previous_s: float = math.nan
    sampled_s: float = math.nan
    evaluated_s: float = math.nan
    curve: str = ""
    measured: Measured | None = None
    resumed_core_s: float = 0.0


@dataclass(slots=True)
class _Node:
    cpu_cores: float
    flowcon: FlowCon
    containers_changed_s: float = -math.inf
    limits: Mapping[str, float] = field(default_factory=dict)
    queue: FairQueue = field(default_factory=FairQueue)


MAX_RUNS = 10_000
"""Number of runs whose CPU time is kept for pods that resume them."""

_OnNode = Sequence[tuple[Instance, _Container]]


class Shares:
    """Shared nodes, and the training progress on them. Starts from scratch with each engine.

    `work_of` returns the work of a container; it is called where jobs share by `phasewise`.
    """

    def __init__(self, work_of: Callable[[Instance], Work], options: FlowConOptions | None = None) -> None:
        self._work_of, self._options = work_of, options or FlowConOptions()
        self._nodes: dict[str, _Node] = {}
        self._containers: dict[Instance, _Container] = {}
        self._done_core_s: dict[Instance, float] = {}
        self._stages_cache = WeakKeyDictionary[ClassRuns, tuple[Sequence[DemandCurve], RunsOfClass]]()

    def take_nodes(self, changed: Mapping[str, float | None]) -> None:
        """Update the cores of shared nodes; None for a node that is no longer shared."""
        for name, cpu_cores in changed.items():
            if cpu_cores is None:
                self._nodes.pop(name, None)
            elif name in self._nodes:
                self._nodes[name].cpu_cores = max(0.0, cpu_cores)
            else:
                self._nodes[name] = _Node(max(0.0, cpu_cores), FlowCon(1.0, self._options))

    def follow_clock(self, now_s: float) -> None:
        """After a clock was set back, move times that now lie in the future to now, or they would hold until then."""
        for node in self._nodes.values():
            node.flowcon.follow_clock(now_s)
            node.containers_changed_s = min(node.containers_changed_s, now_s)
        for known in self._containers.values():
            known.changed_s, known.evaluated_s = min(known.changed_s, now_s), min(known.evaluated_s, now_s)

    def place(self, instance: Instance, running: Running, declared_cores: float, now_s: float) -> None:
        """Update where a container runs and what it requests; NaN if its owner's request is unknown."""
        known, node, request_cores = self._containers.get(instance), running.shares_node, running.requests[CPU]
        if running.finished or not node:
            self.forget(instance, now_s)
        elif known is not None and known.node == node:
            if request_cores != known.request_cores:
                known.request_cores, known.changed_s = request_cores, now_s
            known.by, known.group = running.shares_by, running.group
        else:
            declared_cores = request_cores if math.isnan(declared_cores) else declared_cores
            cap_cores = declared_cores if declared_cores > 0.0 else math.inf  # no request, no cap
            run = instance._replace(pod_uid=running.resumed_pod_uid or instance.pod_uid)
            self._containers[instance] = _Container(
                run, node, running.shares_by, running.group, cap_cores, request_cores, now_s, evaluated_s=now_s
            )
            self._containers_changed(node, now_s)

    def forget(self, instance: Instance, now_s: float) -> None:
        if (gone := self._containers.pop(instance, None)) is not None:
            self._containers_changed(gone.node, now_s)

    def _containers_changed(self, node: str, now_s: float) -> None:
        if node in self._nodes:
            self._nodes[node].containers_changed_s = now_s

    def observe(self, samples: Samples, usable: IntArray, evaluations: Mapping[Instance, Evaluation]) -> None:
        """Take in the samples at the positions `usable`, int64 (k,), and the latest training evaluations.

        An evaluation is passed again until there is a new one, and counts once. CPU time up to an evaluation is counted
        only from when the container was first seen here.
        """
        rows = zip(usable.tolist(), samples.values[usable].tolist(), strict=True) if self._containers else ()
        for row, (at_s, cpu_cores, _) in rows:
            known = self._containers.get(samples.instances[row])
            if known is None or -MAX_CLOCK_SKEW_S <= (passed_s := at_s - known.sampled_s) <= 0.0:
                continue
            known.used_core_s += cpu_cores * max(0.0, np.nan_to_num(passed_s))
            known.used_cores, known.previous_s, known.sampled_s = cpu_cores, known.sampled_s, at_s
        for instance, (value, scale, evaluated_s, curve) in evaluations.items():
            known = self._containers.get(instance)
            if known is not None and evaluated_s > known.evaluated_s and math.isfinite(value):
                known.evaluated_s, known.curve = evaluated_s, curve
                known.measured = Measured(value, known.used_core_s, scale)

    def shared(self, now_s: float, slots: Mapping[Group, int], report: Report) -> list[SharedNode]:
        """The shared nodes with present weights; a node that fails is reported."""
        on_nodes: dict[str, list[tuple[Instance, _Container]]] = {name: [] for name in self._nodes}
        for instance, container in self._containers.items():
            if container.node in on_nodes and container.group in slots:
                on_nodes[container.node].append((instance, container))
        found: list[SharedNode] = []
        for name, on_node in on_nodes.items():
            with report.guard(f"shares of node {name}"):
                if on_node:
                    found.append(self._shared(name, on_node, now_s, slots))
        return found

    def _shared(self, name: str, on_node: _OnNode, now_s: float, slots: Mapping[Group, int]) -> SharedNode:
        node, containers = self._nodes[name], [container for _, container in on_node]
        held_back = _held_back(node.cpu_cores, containers, node.containers_changed_s)
        if all(container.by == PHASEWISE for container in containers):
            weights = self._phasewise_weights(node, on_node, held_back, now_s)
        else:  # at least one asks for FlowCon
            weights = self._flowcon_weights(node, on_node, now_s)
        groups = np.array([slots[container.group] for container in containers], np.int64)
        declared_cores = sum(container.declared_cores for container in containers)
        return SharedNode(node.cpu_cores, declared_cores, groups, weights, held_back)

    def _stages(self, runs: ClassRuns | None) -> RunsOfClass:
        """Runs of a class as stages, cached until the class learns."""
        if runs is None:
            return RunsOfClass()
        of, made = self._stages_cache.get(runs, (None, RunsOfClass()))
        if of is not runs.runs:
            stages = (stages_of(run.step_s, run.levels[:, CPU].tolist(), run.used_core_s) for run in runs.runs)
            made = RunsOfClass(list(stages))
            self._stages_cache[runs] = runs.runs, made
        return made

    def _phasewise_weights(self, node: _Node, on_node: _OnNode, held_back: BoolArray, now_s: float) -> list[float]:
        jobs = {}
        for (instance, container), is_held_back in zip(on_node, held_back.tolist(), strict=True):
            used_core_s, runs = self._work_of(instance)
            cores = node.cpu_cores if is_held_back else float(np.nan_to_num(container.used_cores))
            done_core_s = self._completed_core_s(instance, container, used_core_s)
            jobs[str(instance)] = RunningJob(done_core_s, cores, self._stages(runs))
        weights = node.queue.weights(now_s, node.cpu_cores, jobs)
        return [weights[str(instance)] for instance, _ in on_node]

    def _completed_core_s(self, instance: Instance, container: _Container, used_core_s: float) -> float:
        """CPU time of a container plus that of the pods that it resumes, which may still be saving."""
        known = self._done_core_s.pop(container.run, 0.0)
        if used_core_s == 0.0 and container.run != instance:
            container.resumed_core_s = known
        done_core_s = container.resumed_core_s + used_core_s
        self._done_core_s[container.run] = max(known, done_core_s)
        if len(self._done_core_s) > MAX_RUNS:
            del self._done_core_s[next(iter(self._done_core_s))]
        return done_core_s

    def _flowcon_weights(self, node: _Node, on_node: _OnNode, now_s: float) -> list[float]:
        """Run algorithm 1 when it is due; a job without evaluations is not limited.

        A job that changes to another curve, from accuracy to loss for example, counts as new.
        """
        names = [f"{instance} {one.curve}" for instance, one in on_node]
        measures = [one.measured for _, one in on_node]
        jobs = {name: measured for name, measured in zip(names, measures, strict=True) if measured is not None}
        if node.flowcon.is_due(now_s, jobs):
            node.limits = node.flowcon.run(now_s, jobs) if jobs else {}
        floor = 1.0 / (self._options.beta * len(on_node))
        return [max(node.limits.get(name, UNLIMITED), floor) for name in names]


def _held_back(cpu_cores: float, on_node: Sequence[_Container], containers_changed_s: float) -> BoolArray:
    """Whether each container uses all it is entitled to on a busy node; assumed until a sample can show it.

    A sample is a mean over an interval: the first one after a change of requests or containers covers the time before.
    """
    entitled_to = np.fmax(np.array([one.request_cores for one in on_node]), MIN_CORES)
    entitled_to *= cpu_cores / entitled_to.sum()
    valid = np.array([one.previous_s > max(one.changed_s, containers_changed_s) for one in on_node])
    used = np.where(valid, [one.used_cores for one in on_node], entitled_to)
    held_back: BoolArray = (used.sum() >= BUSY_SHARE * cpu_cores) & (used >= HELD_BACK_SHARE * entitled_to)
    return held_back
