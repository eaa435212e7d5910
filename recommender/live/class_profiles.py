"""The PhaseProfiles of workload classes, which outlive the jobs that they were learned from."""

from __future__ import annotations

import math
from collections.abc import Collection

from recommender.cluster.errors import ClusterError, Invalid
from recommender.cluster.objects.metadata import ObjectKey
from recommender.engine.classes import Classes
from recommender.engine.keys import WorkloadKey
from recommender.engine.tally import Report
from recommender.live.view.view import View

MAX_CLASSES_PER_NAMESPACE = 500
"""Above this the least recently used are forgotten: anybody who may create jobs can invent any number of classes."""

CLEANUP_INTERVAL_S = 3600.0
"""How often classes that are out of use are looked for."""


class ClassProfiles:
    """Reads and writes the PhaseProfiles of workload classes; one out of use for `ttl_s` is forgotten."""

    def __init__(self, view: View, classes: Classes, ttl_s: float, max_per_round: float = math.inf) -> None:
        self._view, self._classes, self._ttl_s, self._max_per_round = view, classes, ttl_s, max_per_round
        self._loaded = False
        self._cleaned_up_s = -math.inf

    def load(self, report: Report) -> None:
        """Load what earlier runs taught, once; a class that cannot be read is reported and starts from nothing."""
        if self._loaded:
            return
        with report.guard("workload classes"):
            saved = self._view.saved_classes()
            self._loaded = True
            for key, (state, used_s) in saved.items():
                with report.guard(f"workload class {key}"):
                    self._classes.load(WorkloadKey(*key), state, used_s)

    def write_changed(self, report: Report) -> None:
        """Write the profiles of changed classes, the longest waiting first; delete those of forgotten ones."""
        changed = self._classes.changed
        if not self._loaded or not changed:
            return
        for key in self._classes.over_limit(MAX_CLASSES_PER_NAMESPACE):
            self._classes.forget(key)
        for key in list(changed)[: int(min(self._max_per_round, len(changed)))]:
            with report.guard(f"workload class {ObjectKey(*key)}"):
                del changed[key]
                try:
                    self._view.write_class_profile(ObjectKey(*key), self._classes.status(key))
                except Invalid:
                    raise  # no retry: the server will not accept it until another run changes it
                except ClusterError:
                    changed[key] = None
                    raise
        report.unwritten_profiles += len(changed)

    def drop_unused(self, used_now: Collection[WorkloadKey], now_s: float) -> None:
        """Once in a while, forget classes that have been out of use for long."""
        if not self._loaded or now_s - self._cleaned_up_s < CLEANUP_INTERVAL_S:
            return
        self._cleaned_up_s = now_s
        for key in used_now:
            self._classes.in_use(key, now_s)
        self._classes.drop_untaught(used_now)
        for key in self._classes.expired(now_s, self._ttl_s):
            self._classes.forget(key)
