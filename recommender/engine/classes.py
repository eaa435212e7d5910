"""Workload classes: their finished runs, which outlive the jobs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from recommender.base.errors import BadInput
from recommender.base.records import CPU, MEMORY, FloatArray, or_nan
from recommender.base.units import BYTES_PER_MIB, counted, format_time
from recommender.engine.containers import Containers, Member, slots_of
from recommender.engine.keys import Running, WorkloadKey
from recommender.engine.persistence import MAX_TEXT_CHARS, decode_curve, encode_curve, pack, unpack
from recommender.kernels.experts import EXPERTS
from recommender.kernels.histogram import DAY_S
from recommender.policies.class_runs import ClassRuns
from recommender.policies.demand_curve import DemandCurve
from recommender.policies.evidence import latest
from recommender.policies.memory_runs import (
    AGES,
    MAX_RUNS,
    NO_CLASSES,
    ClassMemory,
    RunMemory,
    Spreads,
    spread_of_classes,
    variances_of_classes,
)

MAX_CONTAINERS = 64
"""Containers of a class, by name, that are kept; its profile holds no more."""

MIN_OBSERVED_SHARE = 2.0 / 3.0
"""A run observed for less than this share of its duration is not kept."""

REFRESH_SHARE = 0.1
"""The spread of a namespace is learned again after so many new runs, as a share of those that it rests on."""


class Classes:
    """The classes of the cluster, by namespace and name."""

    def __init__(self) -> None:
        self._known: dict[WorkloadKey, dict[str, ClassRuns]] = {}
        self._used_s: dict[WorkloadKey, float] = {}
        self.changed: dict[WorkloadKey, None] = {}
        """Classes whose profiles are out of date, longest first."""
        self._trained_variances = NO_CLASSES
        self._learned_runs = Counter[str]()
        self._spreads: dict[str, tuple[float, Spreads]] = {}

    def load(self, key: WorkloadKey, state: str, used_s: float) -> None:
        """Load the kept state of a class profile; runs that ended since come after it.

        `BadInput` if it is damaged; the class starts from scratch.
        """
        content = unpack(state, f"workload class {key}")
        try:
            runs = {str(name): [decode_curve(run) for run in kept] for name, kept in dict(content["runs"]).items()}
            levels = {name: float(level) for name, level in dict(content["levels"]).items() if name in runs}
            losses = {name: _decode_losses(kept) for name, kept in dict(content.get("losses", {})).items()}
            withheld = set(map(str, content.get("withheld", ())))
            memory = {str(name): decode_memory_runs(part) for name, part in dict(content["memory"]).items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"workload class {key}: the kept runs do not fit ({error!r})"
            raise BadInput(problem, remedy="Nothing to do: the class starts from scratch.") from error
        for name, kept in runs.items():
            known = self.runs(key, name)
            known.replace([*kept, *known.kept])
            known.level = levels.get(name, known.level)
            known.charge(*losses.get(name, (0.0, 0.0, 0.0)))
            known.withheld |= name in withheld
        for name, of_runs in memory.items():
            known = self.runs(key, name)
            known.memory = ClassMemory([*of_runs, *known.memory])
            self._learned_runs[key.namespace] += len(of_runs)
        self._used_s[key] = max(used_s, self._used_s.get(key, used_s))

    def states(self) -> dict[WorkloadKey, str]:
        """The state of each class with runs, as `load` takes it."""
        return {key: _packed(self._taught(key)) for key in self._used_s}

    def runs(self, key: WorkloadKey, container: str) -> ClassRuns:
        """The runs of a container of a class; the caller may add to them."""
        of_class = self._known.setdefault(key, {})
        if container not in of_class and len(of_class) >= MAX_CONTAINERS:
            return ClassRuns()
        return of_class.setdefault(container, ClassRuns())

    def spread(self, namespace: str) -> Spreads:
        """How far the memory of runs spreads within classes of a namespace and of the training.

        Those of other namespaces, whose owners could move it, do not count.
        """
        runs = self._learned_runs[namespace]
        due, spread = self._spreads.get(namespace, (0.0, Spreads()))
        if runs >= due:
            of_one = (known for key, known in self._known.items() if key.namespace == namespace)
            variances = variances_of_classes(runs.memory for known in of_one for runs in known.values())
            spread = spread_of_classes(np.concatenate([self._trained_variances, variances], axis=1), variances.shape[1])
            self._spreads[namespace] = (1.0 + REFRESH_SHARE) * runs + 1.0, spread
        return spread

    def set_trained(self, variances: FloatArray) -> None:
        """Take over how far the memory of runs spreads within classes of the training, see `variances_of_classes`."""
        self._trained_variances = variances
        self._spreads.clear()

    def known(self, key: WorkloadKey, container: str) -> ClassRuns | None:
        runs = self._known.get(key, {}).get(container)
        return runs if runs is not None and len(runs) else None

    def learn(
        self,
        key: WorkloadKey,
        container: str,
        curve: DemandCurve,
        memory: RunMemory | None,
        duration_s: float,
        now_s: float,
    ) -> bool:
        """Learn a completed run of `duration_s`, and its memory if known; False if too little of it was observed."""
        run = _complete_curve(curve, duration_s)
        if run is None:
            return False
        self.runs(key, container).add(run)
        self._record_use(key, now_s)
        if memory is not None:
            self.learn_memory(key, container, memory, now_s)
        return True

    def learn_memory(self, key: WorkloadKey, container: str, memory: RunMemory, now_s: float) -> None:
        """Learn the memory of a run that completed or was OOM-killed."""
        self.runs(key, container).memory.add(memory)
        self._learned_runs[key.namespace] += 1
        self._record_use(key, now_s)

    def _record_use(self, key: WorkloadKey, now_s: float) -> None:
        self._used_s[key] = now_s
        self.changed[key] = None

    def in_use(self, key: WorkloadKey, now_s: float) -> None:
        """Record that a class has running containers, once a day, so that its profile is not collected."""
        if key in self._used_s and now_s - self._used_s[key] > DAY_S:
            self._record_use(key, now_s)

    def drop_untaught(self, in_use: Collection[WorkloadKey]) -> None:
        """Forget classes without completed and without present runs."""
        for key in [key for key in self._known if key not in self._used_s and key not in in_use]:
            del self._known[key]

    def expired(self, now_s: float, ttl_s: float) -> list[WorkloadKey]:
        """Classes without a run for so long, and for as long as their runs take: long ones are seldom started."""
        return [key for key, used_s in self._used_s.items() if now_s - used_s > ttl_s + self._longest_s(key)]

    def _longest_s(self, key: WorkloadKey) -> float:
        return max((run.duration_s for runs in self._known[key].values() for run in runs.kept), default=0.0)

    def over_limit(self, max_classes: int) -> list[WorkloadKey]:
        """Of each namespace the classes beyond a limit, least recently used."""
        latest = sorted(self._used_s, key=lambda key: (key.namespace, -self._used_s[key]))
        return [
            key for _, of_one in groupby(latest, attrgetter("namespace")) for key in islice(of_one, max_classes, None)
        ]

    def forget(self, key: WorkloadKey) -> None:
        self._known.pop(key, None)
        self._used_s.pop(key, None)
        self.changed[key] = None

    def status(self, key: WorkloadKey) -> dict[str, Any] | None:
        """Status of the profile of a class; None if it is to have none."""
        if key not in self._used_s:
            return None
        runs = self._taught(key)
        typical_s = max((known.typical_s for known in runs.values()), default=0.0)
        kept = max(map(len, runs.values()), default=0)
        demand = [(name, encode_demand(known), known.memory) for name, known in runs.items()]
        return {
            "updated": format_time(self._used_s[key]),
            "why": f"workload class: {counted(kept, 'run')} kept, {typical_s:.0f} s each (median)",
            "containers": [
                {"name": name, "demand": content, "peaksMemoryBytes": [round(peak) for peak in memory.peaks_bytes]}
                for name, content, memory in demand
                if content is not None
            ],
            "state": _packed(runs),
        }

    def _taught(self, key: WorkloadKey) -> dict[str, ClassRuns]:
        return {name: known for name, known in sorted(self._known[key].items()) if len(known) or len(known.memory)}


def learn_finished_run(
    classes: Classes,
    fleet: Containers,
    member: Member,
    running: Running,
    now_s: float,
    declared_bytes: float = math.nan,
    *,
    killed: bool = False,
) -> bool:
    """Learn a run that completed and was whole; False for another one, as one that was stopped and then exited with 0.

    If it was OOM-killed and restarted on the way, it is known now how much memory was enough. One whose start was not
    seen may have had its peak before: a lower one would get the next runs killed.
    """
    ended, whole = running.ended, not (running.restarts or running.resumed_pod_uid)
    if running.workload is None or ended is None or ended.exit_code != 0 or running.terminating:
        return False
    key, container = WorkloadKey(member.instance.namespace, running.workload), member.instance.container
    memory, curve = None, fleet.curves.curve(member.slot)
    duration_s = curve.duration_s
    if ended.finished_s is not None and ended.started_s is not None:
        duration_s = ended.finished_s - ended.started_s
    if not fleet.start_was_unseen(slots_of([member]))[0]:
        memory = fleet.memory.run(member.slot)._replace(
            input_size=running.input_size, duration_s=duration_s, declared_bytes=declared_bytes
        )
    if not whole:
        if killed and memory is not None:
            classes.learn_memory(key, container, memory._replace(killed=True), now_s)
        return False
    return classes.learn(key, container, curve, memory, duration_s, now_s)


def encode_demand(runs: ClassRuns) -> dict[str, Any] | None:
    """Demand of a class for its PhaseProfile: mean cores and peak memory by time since start.

    CPU is the estimated demand; `usedCoreSeconds` is the CPU time that a run used in the end.
    """
    curve = runs.expected()
    if curve is None:
        return None
    return {
        "stepSeconds": round(curve.step_s, 3),
        "runs": len(runs),
        "usedCoreSeconds": round(curve.used_core_s, 3),
        "cpuCores": [round(float(cores), 3) for cores in curve.levels[:, CPU]],
        "memoryBytes": [round(float(used)) for used in curve.levels[:, MEMORY]],
    }


def decode_memory_runs(content: Mapping[str, Any]) -> list[RunMemory]:
    """Memory of runs from its JSON; `KeyError`, `TypeError` or `ValueError` if it is none."""
    peaks = np.array(content["mib"], np.float64) * BYTES_PER_MIB
    rises = np.array(content["of_late"], np.float64).reshape(-1, AGES)
    if peaks.shape != (len(rises),) or not (np.isfinite(peaks).all() and np.isfinite(rises).all()):
        raise ValueError("the memory of runs does not fit")
    facts = [[float(or_nan(one)) for one in content.get(name, [None] * len(peaks))] for name in _FACTS]
    positive = [one for name, of_runs in zip(_FACTS, facts, strict=True) for one in of_runs if name != "seconds"]
    if any(one < 0.0 or math.isinf(one) for of_runs in facts for one in of_runs) or 0.0 in positive:
        raise ValueError("the size of an input, a duration or declared memory is not positive")
    killed = map(bool, content["killed"])
    return [RunMemory(*run) for run in zip(peaks.tolist(), rises, killed, *facts, strict=True)]


def _decode_losses(content: Any) -> tuple[FloatArray, FloatArray, float]:
    """What experts have cost, see `ClassRuns`; ValueError or TypeError if it does not fit."""
    losses, charged, samples = (np.asarray(part, np.float64) for part in content)
    for part, shape in ((losses, (EXPERTS,)), (charged, (EXPERTS,)), (samples, ())):
        if part.shape != shape or not (np.isfinite(part) & (part >= 0.0)).all():
            raise ValueError("the losses of experts do not fit")
    return losses, charged, float(samples)


_FACTS = {"inputs": "input_sizes", "seconds": "durations_s", "declared": "declared_bytes"}
"""What may be unknown of each run, by its name in the JSON."""


def _encode_memory_runs(runs: ClassMemory, most: int) -> dict[str, Any]:
    """The latest runs ready for JSON, in a few digits, rounded up."""
    kept = latest(runs.durations_s, most)
    facts = {name: np.round(getattr(runs, column)[kept], 6) for name, column in _FACTS.items()}
    return {
        "mib": np.ceil(runs.peaks_bytes[kept] / BYTES_PER_MIB * 100.0) / 100.0,
        "of_late": np.ceil(runs.rises[kept] * 1e4) / 1e4,
        "killed": runs.killed[kept],
        **{name: known for name, known in facts.items() if not np.isnan(known).all()},
    }


class _Detail(NamedTuple):
    """How much a profile keeps of each container: curves, buckets of these in one, and runs of which it has memory."""

    curves: int
    merged: int
    memory: int


DETAILS = (
    *(_Detail(n, 1, MAX_RUNS) for n in (32, 16, 8, 4, 2, 1)),
    *(_Detail(1, 1, n) for n in (128, 64, 32)),
    *(_Detail(1, n, 32) for n in (2, 4, 8, 16)),
    *(_Detail(1, 16, n) for n in (16, 8, 4, 2, 1)),
)
"""From all to the least: rather fewer curves than less memory, which kills, and rather coarse curves than none."""

MAX_NUMBERS = MAX_TEXT_CHARS // 2
"""More numbers do not fit, and packing them is not tried: most take three to five characters."""


def _packed(runs: Mapping[str, ClassRuns]) -> str:
    """Pack the latest runs of each container, as many as fit."""
    levels = {name: round(known.level, 4) for name, known in runs.items()}
    losses = {
        name: [np.round(known.losses, 1), np.round(known.charged, 1), round(known.samples, 1)]
        for name, known in runs.items()
    }
    others = {"levels": levels, "losses": losses, "withheld": [name for name, known in runs.items() if known.withheld]}
    text, fewest = "", MAX_NUMBERS + 1.0
    for detail in DETAILS:
        if (numbers := sum(_numbers(known, detail) for known in runs.values())) < fewest:
            kept = {name: _encode_curves(known, detail) for name, known in runs.items()}
            memory = {name: _encode_memory_runs(known.memory, detail.memory) for name, known in runs.items()}
            text, fewest = pack({"runs": kept, "memory": memory, **others}), numbers
            if len(text) <= MAX_TEXT_CHARS:
                break
    return text


def _encode_curves(runs: ClassRuns, detail: _Detail) -> list[dict[str, Any]]:
    kept = latest(runs.durations_s, detail.curves).tolist()
    return [encode_curve(runs.kept[number].merged(detail.merged)) for number in kept]


def _numbers(runs: ClassRuns, detail: _Detail) -> float:
    """How many numbers this detail keeps of a container, about."""
    buckets = sum(len(run.levels) for run in runs.kept[-detail.curves :]) / detail.merged
    return 2.0 * buckets + AGES * min(detail.memory, len(runs.memory))


def _complete_curve(curve: DemandCurve, duration_s: float) -> DemandCurve | None:
    """The curve extended to the duration of the run; None if too little of it was observed."""
    buckets = max(len(curve.levels), int(np.ceil(duration_s / curve.step_s - 1e-9)))
    seen = np.flatnonzero(~np.isnan(curve.levels[:, CPU]))
    if not len(seen) or seen[-1] + 1 - seen[0] < MIN_OBSERVED_SHARE * buckets - 2:
        return None
    levels = np.full((buckets, 2), np.nan, np.float32)
    levels[: len(curve.levels)] = curve.levels
    return replace(curve, levels=levels)
