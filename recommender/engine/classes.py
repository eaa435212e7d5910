"""What is known of workload classes: their finished runs, which outlive the jobs they are of."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

import numpy as np

from recommender.engine.containers import Containers
from recommender.engine.keys import Running, WorkloadKey
from recommender.engine.member import Member
from recommender.engine.persistence import LONGEST_TEXT, curve_content, curve_of, pack, unpack
from recommender.errors import BadInput
from recommender.policies.class_runs import ClassRuns
from recommender.policies.demand_curve import DemandCurve
from recommender.policies.memory_runs import AGES, ClassMemory, RunMemory
from recommender.records import CPU, MEMORY
from recommender.units import BYTES_PER_MIB, moment

DAY_S = 86400.0

MOST_CONTAINERS = 64
"""Of a class, by name; of more nothing is kept, nor does its profile take them."""

LEAST_SEEN = 2.0 / 3.0
"""A run of which less was seen is not kept: nobody knows what was missed."""


class Classes:
    """The classes of the cluster, by namespace and name."""

    def __init__(self) -> None:
        self._known: dict[WorkloadKey, dict[str, ClassRuns]] = {}
        self._used_s: dict[WorkloadKey, float] = {}
        self.changed: dict[WorkloadKey, None] = {}
        """Those whose profiles tell something else, the longest waiting first."""

    def load(self, key: WorkloadKey, state: str, used_s: float) -> None:
        """Take in what a class profile keeps; runs that ended since come after it.

        Raises
        ------
        BadInput
            It is damaged; the class starts anew.
        """
        content = unpack(state, f"workload class {key}")
        try:
            runs = {str(name): [curve_of(run) for run in kept] for name, kept in dict(content["runs"]).items()}
            levels = {name: float(level) for name, level in dict(content["levels"]).items() if name in runs}
            memory = {str(name): memory_of(of_runs) for name, of_runs in dict(content["memory"]).items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"workload class {key}: the kept runs do not fit ({error!r})"
            raise BadInput(problem, remedy="Nothing is to be done; the class starts anew.") from error
        for name, kept in runs.items():
            known = self.runs(key, name)
            known.replace([*kept, *known.runs])
            known.level = levels.get(name, known.level)
        for name, of_runs in memory.items():
            known = self.runs(key, name)
            known.memory = ClassMemory([*of_runs, *known.memory])
        self._used_s[key] = max(used_s, self._used_s.get(key, used_s))

    def runs(self, key: WorkloadKey, container: str) -> ClassRuns:
        """The runs of a container of a class; more may be added to what is returned."""
        of_class = self._known.setdefault(key, {})
        if container not in of_class and len(of_class) >= MOST_CONTAINERS:
            return ClassRuns()
        return of_class.setdefault(container, ClassRuns())

    def known(self, key: WorkloadKey, container: str) -> ClassRuns | None:
        """The runs of a container of a class if there are any."""
        runs = self._known.get(key, {}).get(container)
        return runs if runs is not None and len(runs) else None

    def learn(
        self, key: WorkloadKey, container: str, curve: DemandCurve, memory: RunMemory, duration_s: float, now_s: float
    ) -> bool:
        """A run came to a good end after `duration_s`; False when too little of it was seen."""
        run = _whole(curve, duration_s)
        if run is None:
            return False
        self.runs(key, container).add(run)
        self.learn_memory(key, container, memory, now_s)
        return True

    def learn_memory(self, key: WorkloadKey, container: str, memory: RunMemory, now_s: float) -> None:
        """What a run left behind that came to a good end, or was killed for memory."""
        self.runs(key, container).memory.add(memory)
        self._used_s[key] = now_s
        self.changed[key] = None

    def in_use(self, key: WorkloadKey, now_s: float) -> None:
        """Runs of a class are there; once a day that is written down, so that it is not cleared away."""
        if key in self._used_s and now_s - self._used_s[key] > DAY_S:
            self._used_s[key] = now_s
            self.changed[key] = None

    def drop_untaught(self, in_use: Collection[WorkloadKey]) -> None:
        """Forget classes of which no run came to a good end and none is there."""
        for key in [key for key in self._known if key not in self._used_s and key not in in_use]:
            del self._known[key]

    def expired(self, now_s: float, ttl_s: float) -> list[WorkloadKey]:
        """Classes without a run for so long."""
        return [key for key, used_s in self._used_s.items() if now_s - used_s > ttl_s]

    def over_limit(self, most: int) -> list[WorkloadKey]:
        """Of the classes of each namespace those used longest ago, where there are more than so many."""
        latest = sorted(self._used_s, key=lambda key: (key.namespace, -self._used_s[key]))
        return [key for _, of_one in groupby(latest, attrgetter("namespace")) for key in islice(of_one, most, None)]

    def forget(self, key: WorkloadKey) -> None:
        """A class is no more."""
        self._known.pop(key, None)
        self._used_s.pop(key, None)
        self.changed[key] = None

    def status(self, key: WorkloadKey) -> dict[str, Any] | None:
        """The status of the profile of a class; None where it shall have none."""
        if key not in self._used_s:
            return None
        runs = {name: known for name, known in sorted(self._known[key].items()) if len(known.memory)}
        typical_s = max((known.typical_s for known in runs.values()), default=0.0)
        number = max(map(len, runs.values()), default=0)
        demand = [(name, encode_demand(known), known.memory) for name, known in runs.items()]
        return {
            "updated": moment(self._used_s[key]),
            "why": f"workload class: {number} runs kept, {typical_s:.0f} s each (median)",
            "containers": [
                {"name": name, "demand": content, "peaksMemoryBytes": [round(peak) for peak in memory.peaks_bytes]}
                for name, content, memory in demand
                if content is not None
            ],
            "state": _packed(runs),
        }


def learn_ended(
    classes: Classes, fleet: Containers, member: Member, running: Running, now_s: float, *, killed: bool = False
) -> bool:
    """A run that came to its end by itself, and was whole, adds to what is known of its class; False for another one.

    Of one that was killed for memory before it got there it is known now how much memory was enough.
    """
    ended, whole = running.ended, not (running.restarts or running.resumed_pod_uid)
    if running.workload is None or ended is None or ended.exit_code != 0:
        return False
    key, container = WorkloadKey(member.instance.namespace, running.workload), member.instance.container
    memory = fleet.memory.run(member.slot)._replace(input_size=running.input_size)
    if not whole:
        if killed:
            classes.learn_memory(key, container, memory._replace(killed=True), now_s)
        return False
    curve = fleet.curves.curve(member.slot)
    duration_s = curve.duration_s
    if ended.finished_s is not None and ended.started_s is not None:
        duration_s = ended.finished_s - ended.started_s
    return classes.learn(key, container, curve, memory, duration_s, now_s)


def encode_demand(runs: ClassRuns) -> dict[str, Any] | None:
    """The demand of a class as a PhaseProfile shows it: mean cores and largest memory by the time since start.

    These are what was wanted; the CPU time is what such a run has used in the end.
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


def memory_of(content: Mapping[str, Any]) -> list[RunMemory]:
    """What runs left behind, from its JSON; `KeyError`, `TypeError` or `ValueError` when it is none."""
    peaks = np.array(content["mib"], np.float64) * BYTES_PER_MIB
    # Kept by a version that did not know them: such runs became no age of which a rise is known.
    rises = np.array(content.get("of_late", np.zeros((len(peaks), AGES))), np.float64).reshape(-1, AGES)
    if peaks.shape != (len(rises),) or not (np.isfinite(peaks).all() and np.isfinite(rises).all()):
        raise ValueError("what runs left behind does not fit")
    told = content.get("inputs", [None] * len(peaks))
    sizes = [math.nan if size is None else float(size) for size in told]
    if any(size <= 0.0 or math.isinf(size) for size in sizes):
        raise ValueError("the size of an input is not positive")
    return [RunMemory(*run) for run in zip(peaks.tolist(), rises, map(bool, content["killed"]), sizes, strict=True)]


def _memory_content(runs: ClassMemory) -> dict[str, Any]:
    """Ready for JSON, in a few digits, rounded up."""
    told = {"inputs": runs.input_sizes} if not np.isnan(runs.input_sizes).all() else {}
    return {
        "mib": np.ceil(runs.peaks_bytes / BYTES_PER_MIB * 100.0) / 100.0,
        "of_late": np.ceil(runs.rises * 1e4) / 1e4,
        "killed": runs.killed,
        **told,
    }


def _packed(runs: Mapping[str, ClassRuns]) -> str:
    """The latest runs of each container, as many as there is room for."""
    number = max(map(len, runs.values()), default=0)
    while True:
        kept = {name: [curve_content(run) for run in known.runs[-number:]] for name, known in runs.items()}
        levels = {name: round(known.level, 4) for name, known in runs.items()}
        memory = {name: _memory_content(known.memory) for name, known in runs.items()}
        text = pack({"runs": kept, "levels": levels, "memory": memory})
        if len(text) <= LONGEST_TEXT or number <= 1:
            return text
        number //= 2


def _whole(curve: DemandCurve, duration_s: float) -> DemandCurve | None:
    """A curve as long as the run was; None when too little of it was seen."""
    buckets = max(len(curve.levels), int(np.ceil(duration_s / curve.step_s - 1e-9)))
    seen = np.flatnonzero(~np.isnan(curve.levels[:, CPU]))
    if not len(seen) or seen[-1] + 1 - seen[0] < LEAST_SEEN * buckets - 2:
        return None
    levels = np.full((buckets, 2), np.nan, np.float32)
    levels[: len(curve.levels)] = curve.levels
    return replace(curve, levels=levels)
