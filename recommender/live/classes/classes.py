"""What is known of workload classes: their finished runs, which outlive the jobs they are of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from recommender.cluster.objects.metadata import ObjectKey
from recommender.errors import BadInput
from recommender.live.fleet.keeping import LONGEST_TEXT, curve_content, curve_of, pack, unpack
from recommender.live.moments import moment
from recommender.policies.class_runs import ClassRuns
from recommender.policies.demand_curve import DemandCurve
from recommender.records import CPU, MEMORY

DAY_S = 86400.0

LEAST_SEEN = 2.0 / 3.0
"""A run of which less was seen is not kept: nobody knows what was missed."""


class Classes:
    """The classes of the cluster, by namespace and name."""

    def __init__(self) -> None:
        self._known: dict[ObjectKey, dict[str, ClassRuns]] = {}
        self._used_s: dict[ObjectKey, float] = {}
        self.changed: set[ObjectKey] = set()

    def load(self, key: ObjectKey, state: str, used_s: float) -> None:
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
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"workload class {key}: the kept runs do not fit ({error!r})"
            raise BadInput(problem, remedy="Nothing is to be done; the class starts anew.") from error
        for name, kept in runs.items():
            known = self.runs(key, name)
            known.replace([*kept, *known.runs])
            known.level = levels.get(name, known.level)
        self._used_s[key] = max(used_s, self._used_s.get(key, used_s))

    def runs(self, key: ObjectKey, container: str) -> ClassRuns:
        """The runs of a container of a class; more may be added to what is returned."""
        return self._known.setdefault(key, {}).setdefault(container, ClassRuns())

    def known(self, key: ObjectKey, container: str) -> ClassRuns | None:
        """The runs of a container of a class if there are any."""
        runs = self._known.get(key, {}).get(container)
        return runs if runs is not None and len(runs) else None

    def learn(self, key: ObjectKey, container: str, curve: DemandCurve, duration_s: float, now_s: float) -> bool:
        """A run came to a good end after `duration_s`; False when too little of it was seen."""
        run = _whole(curve, duration_s)
        if run is None:
            return False
        self.runs(key, container).add(run)
        self._used_s[key] = now_s
        self.changed.add(key)
        return True

    def in_use(self, key: ObjectKey, now_s: float) -> None:
        """Runs of a class are there; once a day that is written down, so that it is not cleared away."""
        if key in self._used_s and now_s - self._used_s[key] > DAY_S:
            self._used_s[key] = now_s
            self.changed.add(key)

    def drop_untaught(self, in_use: Collection[ObjectKey]) -> None:
        """Forget classes of which no run came to a good end and none is there."""
        for key in [key for key in self._known if key not in self._used_s and key not in in_use]:
            del self._known[key]

    def unused(self, now_s: float, ttl_s: float) -> list[ObjectKey]:
        """Classes without a run for so long."""
        return [key for key, used_s in self._used_s.items() if now_s - used_s > ttl_s]

    def forget(self, key: ObjectKey) -> None:
        """A class is no more."""
        self._known.pop(key, None)
        self._used_s.pop(key, None)
        self.changed.discard(key)

    def status(self, key: ObjectKey) -> dict[str, Any]:
        """The status of the profile of a class."""
        runs = {name: known for name, known in sorted(self._known[key].items()) if len(known)}
        typical_s = max((known.typical_s for known in runs.values()), default=0.0)
        number = max(map(len, runs.values()), default=0)
        return {
            "updated": moment(self._used_s[key]),
            "why": f"workload class: {number} runs kept, {typical_s:.0f} s each (median)",
            "containers": [{"name": name, "demand": demand_content(known)} for name, known in runs.items()],
            "state": _packed(runs),
        }


def demand_content(runs: ClassRuns) -> dict[str, Any] | None:
    """The demand curve of a class as a PhaseProfile shows it: mean cores and largest memory by the time since start."""
    curve = runs.expected()
    if curve is None:
        return None
    return {
        "stepSeconds": round(curve.step_s, 3),
        "runs": len(runs),
        "cpuCores": [round(float(cores), 3) for cores in curve.levels[:, CPU]],
        "memoryBytes": [round(float(used)) for used in curve.levels[:, MEMORY]],
    }


def _packed(runs: Mapping[str, ClassRuns]) -> str:
    """The latest runs of each container, as many as there is room for."""
    number = max(map(len, runs.values()), default=0)
    while True:
        kept = {name: [curve_content(run) for run in known.runs[-number:]] for name, known in runs.items()}
        text = pack({"runs": kept, "levels": {name: round(known.level, 4) for name, known in runs.items()}})
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
    return DemandCurve(curve.step_s, levels)
