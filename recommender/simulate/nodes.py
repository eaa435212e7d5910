"""Packs pods onto nodes over time: what a cluster that follows its requests would pay for.

At each time requests that end or fall free their room; then pods that begin and requests that rise are placed, the
largest first (by the largest share of a node that it takes).

- A pod goes to the node in use on which it leaves least room (best fit). If it has room on none, a node is added, of
  the cheapest type that it fits on. Pods with devices go to nodes with devices, others to those without, if there are
  types of both kinds.
- A pod whose request rises keeps its node if that has room. If not, it goes to another, and counts as displaced.
- A node without pods is given back at once. Every ten minutes nodes less than half requested are drained, the emptiest
  first, if other nodes in use have room for all their pods and these belong to services: as cluster-autoscaler does by
  default, except that it may also move runs, which would lose their work.
- A pod larger than every node has as many whole nodes as its largest share needs, for itself alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recommender.base.nodes import NodeType, NodeUse
from recommender.base.records import CPU, MEMORY, SERVICE_KINDS, Amounts, BoolArray, FloatArray, Played, UsageSeries
from recommender.base.units import SECONDS_PER_HOUR
from recommender.simulate.judging import durations_s

DRAINED_EVERY_S, DRAINED_BELOW = 600.0, 0.5
"""Defaults of cluster-autoscaler: scale-down-unneeded-time and scale-down-utilization-threshold."""

DEVICES = 2  # column after those of CPU and memory
_ROUNDING = 1e-9  # of a node


@dataclass(slots=True)
class Pod:
    """What the containers of a pod had in force together.

    `times_s`, increasing, float64 (k,), and `wants`, float64 (k, 3): from each time on cores, bytes and devices; zero
    after its end. `lost`: core-seconds and byte-seconds of work lost by kills.
    """

    name: str
    times_s: FloatArray
    wants: FloatArray
    moves: bool = False  # it belongs to a service, which does not lose its work when it is moved
    lost: Amounts = (0.0, 0.0)


def nodes_needed(
    series: Sequence[UsageSeries],
    played: Mapping[str, Mapping[str, Played]],
    rows: Sequence[str],
    types: Sequence[NodeType],
) -> dict[str, NodeUse]:
    """The nodes that the judged containers need under each of these rows that is known for all of them, by row.

    `played`: by container and row, what was in force.
    """
    judged = [one for one in series if one.container in played]
    complete = [name for name in rows if all(name in played[one.container] for one in judged)]
    return {
        name: pack(pods_of(judged, {one.container: played[one.container][name] for one in judged}), types)
        for name in complete
    }


def pods_of(series: Sequence[UsageSeries], played: Mapping[str, Played]) -> list[Pod]:
    """The pods of these containers, whose names have namespace and pod before the last slash if these are known.

    What a container has first is taken to be in force from its first sample on, though it is judged only later.
    """
    containers: dict[str, list[Pod]] = {}
    for one in series:
        pod = _as_pod(one, played[one.container])
        containers.setdefault(pod.name, []).append(pod)
    return [of[0] if len(of) == 1 else _together(of) for of in containers.values()]


def _as_pod(series: UsageSeries, one: Played) -> Pod:
    times_s, amounts = one.decisions
    end_s = float(series.timestamps[-1] + durations_s(series)[-1])
    devices = np.full(len(amounts), np.nan_to_num(series.facts.devices))
    wants = np.vstack([np.column_stack([amounts, devices]), np.zeros(3)])
    at_s = np.concatenate([series.timestamps[:1], times_s[1:], [end_s]]).astype(np.float64)
    kind = (series.owner or "").partition("/")[0]
    name = series.container.rpartition("/")[0] or series.container
    return Pod(name, at_s, wants, kind in SERVICE_KINDS, one.run.lost)


def _together(pods: Sequence[Pod]) -> Pod:
    """One pod of several containers."""
    times_s = np.unique(np.concatenate([one.times_s for one in pods]))
    wants = np.zeros((len(times_s), 3))
    for one in pods:
        at = np.searchsorted(one.times_s, times_s, side="right") - 1
        wants += np.where(at[:, np.newaxis] >= 0, one.wants[at], 0.0)
    lost = sum(one.lost[0] for one in pods), sum(one.lost[1] for one in pods)
    return Pod(pods[0].name, times_s, wants, pods[0].moves, lost)


def pack(pods: Sequence[Pod], types: Sequence[NodeType]) -> NodeUse:
    """Pack pods onto nodes of these types, which all have a price or none, by the rule above."""
    requesting = [pod for pod in pods if pod.wants[:, DEVICES].any()]
    if not any(one.devices for one in types):
        pods, without, requesting = [replace(pod, wants=pod.wants * [1, 1, 0]) for pod in pods], requesting, []
    else:
        without = []
    nodes, stranded_hours = _packed(pods, types), math.nan
    if requesting:
        alone = _packed([replace(pod, wants=pod.wants * [0, 0, 1]) for pod in requesting], types)
        stranded_hours = max(0.0, float((nodes.hours - alone.hours) @ nodes.room[:, DEVICES]))
    lost_hours = sum((nodes.lost_hours(pod) for pod in pods), np.zeros(len(types)))
    return NodeUse(
        hours=nodes.spanned_s / SECONDS_PER_HOUR,
        node_hours=float(nodes.hours.sum()),
        peak_nodes=nodes.peak,
        lost_node_hours=float(lost_hours.sum()),
        cost=float((nodes.hours + lost_hours) @ [one.price_per_hour for one in nodes.types]),
        displaced=nodes.displaced,
        stranded_device_hours=stranded_hours,
        larger=tuple(pods[number].name for number in sorted(nodes.larger)),
        without_devices=tuple(pod.name for pod in without),
    )


def _packed(pods: Sequence[Pod], types: Sequence[NodeType]) -> _Nodes:
    """The nodes after all of these pods have ended."""
    nodes = _Nodes(types, [pod.moves for pod in pods])
    times_s = np.concatenate([np.empty(0), *(pod.times_s for pod in pods)])
    wants = np.concatenate([np.empty((0, 3)), *(pod.wants for pod in pods)])
    numbers = np.repeat(np.arange(len(pods)), [len(pod.times_s) for pod in pods])
    order = np.argsort(times_s, kind="stable")
    moments_s, starts = np.unique(times_s[order], return_index=True)
    drain_s = math.inf
    for now_s, rows in zip(moments_s.tolist(), np.split(order, starts[1:]), strict=True):
        if drain_s <= now_s:
            nodes.advance(drain_s)
            nodes.drain()
        nodes.advance(now_s)
        nodes.change(numbers[rows].tolist(), wants[rows])
        drain_s = (now_s // DRAINED_EVERY_S + 1.0) * DRAINED_EVERY_S  # until the next change once is enough
    return nodes


class _Nodes:
    """The nodes in use at a time, and the pods on them, by number.

    `free`: float64 (m, 3), what is left on each node; less than nothing on those given back, and on those that a larger
    pod has for itself. `hours`: float64 (t,), node-hours so far by type, the cheapest first; `room`: float64 (t, 3).
    """

    def __init__(self, types: Sequence[NodeType], moves: Sequence[bool]) -> None:
        self.types = sorted(types, key=lambda one: (np.nan_to_num(one.price_per_hour), one.cpu_cores, one.memory_bytes))
        self.room = np.array([(one.cpu_cores, one.memory_bytes, one.devices) for one in self.types], np.float64)
        self._per_unit = np.divide(1.0, self.room, out=np.zeros_like(self.room), where=self.room > 0.0)
        has_devices = self.room[:, DEVICES] > 0.0
        mixed = has_devices.any() and not has_devices.all()
        self._with_devices, self._without_devices = has_devices | (not mixed), ~(has_devices & mixed)
        self.hours, self.peak, self.displaced, self.larger = np.zeros(len(types)), 0, 0, set[int]()
        self.free, self._type_of, self._count = np.empty((0, 3)), np.empty(0, np.int64), np.empty(0, np.int64)
        self._pods: list[set[int]] = []
        self._node_of, self._wants, self._moves = dict[int, int](), dict[int, FloatArray](), moves
        self._now_s, self.spanned_s = math.nan, 0.0

    def advance(self, now_s: float) -> None:
        """Count the time until now."""
        passed_s = 0.0 if math.isnan(self._now_s) else now_s - self._now_s
        in_use = np.bincount(self._type_of, self._count, minlength=len(self.types))
        self.peak = max(self.peak, int(in_use.sum()))
        self.hours += in_use * passed_s / SECONDS_PER_HOUR
        self.spanned_s += passed_s
        self._now_s = now_s

    def change(self, numbers: Sequence[int], wants: FloatArray) -> None:
        """Change what pods request, float64 (k, 3), zero at their end."""
        rising = []
        for number, want in zip(numbers, wants, strict=True):
            had, node = self._wants.get(number), self._node_of.get(number, -1)
            if not want.any():
                self._take(number)
            elif had is not None and self._count[node] == 1 and (want <= had).all():
                self.free[node] += had - want
                self._wants[number] = want
            else:
                rising.append((number, want))
        for number, want in sorted(rising, key=lambda one: -self._share(one[1]).min()):
            self._raise(number, want)

    def drain(self) -> None:
        """Give back nodes that are less than half requested, the emptiest first, if all of their pods may move."""
        shares = self._requested_shares()
        for node in np.argsort(shares, kind="stable")[: np.count_nonzero(shares < DRAINED_BELOW)].tolist():
            filled = self._requested_shares()[node] >= DRAINED_BELOW  # by pods from another node
            if filled or not all(self._moves[number] for number in self._pods[node]):
                continue
            numbers = sorted(self._pods[node], key=lambda number: -self._share(self._wants[number]).min())
            before, others = self.free.copy(), list[int]()
            self.free[node] = -np.inf
            for number in numbers:
                if (other := self._best(self._wants[number])) is None:
                    break
                self.free[other] -= self._wants[number]
                others.append(other)
            self.free = before
            if len(others) == len(numbers):
                wanted = [(number, self._wants[number]) for number in numbers]
                for number, _ in wanted:
                    self._take(number)
                for (number, want), other in zip(wanted, others, strict=True):
                    self._put(number, want, other)

    def lost_hours(self, pod: Pod) -> FloatArray:
        """float64 (t,): node-hours of the work that kills cost a pod, on the type that it would be given."""
        found, lost = np.zeros(len(self.types)), np.array([*pod.lost, 0.0])
        if lost.any():
            cpu_cores, memory_bytes, devices = pod.wants[-2]
            lost[DEVICES] = devices * max(pod.lost[CPU] / cpu_cores, pod.lost[MEMORY] / memory_bytes)
            found[self._cheapest(pod.wants[-2])[0]] = self._share(lost).min() / SECONDS_PER_HOUR
        return found

    def _raise(self, number: int, want: FloatArray) -> None:
        """Give a pod more, on its node if there is room."""
        if (node := self._node_of.get(number)) is not None:
            left = self.free[node] + self._wants[number] - want
            if (left >= -_ROUNDING * self.room[self._type_of[node]]).all():
                self.free[node] = left
                self._wants[number] = want
                return
            self.displaced += int(self._count[node] == 1)
            self._take(number)
        node = self._best(want)
        self._put(number, want, self._added(number, want) if node is None else node)

    def _put(self, number: int, want: FloatArray, node: int) -> None:
        self.free[node] -= want
        self._pods[node].add(number)
        self._node_of[number], self._wants[number] = node, want

    def _take(self, number: int) -> None:
        """Take a pod from its node, which is given back if it was the last one there."""
        if (node := self._node_of.pop(number, None)) is not None:
            self.free[node] += self._wants.pop(number)
            self._pods[node].discard(number)
            if not self._pods[node]:
                self._count[node], self.free[node] = 0, -np.inf

    def _best(self, want: FloatArray) -> int | None:
        """The node in use on which this leaves least room; None if it has room on none."""
        left = self.free - want
        of_type = self.room[self._type_of]
        fits = np.flatnonzero((left >= -_ROUNDING * of_type).all(axis=1) & self._suits(want)[self._type_of])
        if not len(fits):
            return None
        return int(fits[(left[fits, :DEVICES] / of_type[fits, :DEVICES]).sum(axis=1).argmin()])

    def _added(self, number: int, want: FloatArray) -> int:
        """A node added for this pod, or so many whole ones for a larger one, counted as one node."""
        of_type, whole = self._cheapest(want)
        empty = np.flatnonzero(self._count == 0)
        if not len(empty):
            self.free = np.vstack([self.free, np.zeros(3)])
            self._type_of, self._count = np.append(self._type_of, 0), np.append(self._count, 0)
            self._pods.append(set())
        node = int(empty[0]) if len(empty) else len(self._pods) - 1
        self._type_of[node], self._count[node] = of_type, whole
        self.free[node] = self.room[of_type] if whole == 1 else -np.inf
        self.larger.update([number] if whole > 1 else ())
        return node

    def _cheapest(self, want: FloatArray) -> tuple[int, int]:
        """The type whose nodes hold this at the least price, or in the smallest number, and that number."""
        whole = np.maximum(np.ceil(self._share(want) - _ROUNDING), 1.0)
        prices = np.array([np.nan_to_num(one.price_per_hour, nan=1.0) for one in self.types])
        costs = whole * np.maximum(prices, _ROUNDING)  # infinitely many of a type that it does not suit
        at = min(range(len(self.types)), key=lambda at: (whole[at] > 1.0, costs[at], at))
        return at, int(whole[at])

    def _share(self, want: FloatArray) -> FloatArray:
        """float64 (t,): the largest share of a node of each type that this is; infinite for types it does not suit."""
        shares: FloatArray = (want * self._per_unit).max(axis=1)
        shares[~self._suits(want)] = np.inf
        return shares

    def _requested_shares(self) -> FloatArray:
        """float64 (m,): the largest share of each node that is requested; infinite where none is free for others."""
        requested = self.room[self._type_of] - self.free
        shares: FloatArray = (requested * np.maximum(self._per_unit[self._type_of], _ROUNDING)).max(axis=1)
        return shares

    def _suits(self, want: FloatArray) -> BoolArray:
        """bool (t,): to which types a pod goes: where some have devices and some have none, to those like itself."""
        return self._with_devices if want[DEVICES] > 0.0 else self._without_devices
