"""What is known of workload classes, kept in PhaseProfiles: it outlives the jobs that taught it."""

from __future__ import annotations

import math

from recommender.cluster.objects.metadata import ObjectKey
from recommender.engine.classes import Classes
from recommender.engine.keys import WorkloadKey
from recommender.engine.tally import Report
from recommender.live.containers import ContainerIndex
from recommender.live.view.view import View

TIDIED_EVERY_S = 3600.0
"""How often classes that nothing is run of any more are looked for."""


class ClassProfiles:
    """Reads and writes the profiles of the engine's classes.

    Parameters
    ----------
    ttl_s
        A class that nothing was run of for so long is forgotten.
    """

    def __init__(self, view: View, classes: Classes, ttl_s: float) -> None:
        self._view, self._classes, self._ttl_s = view, classes, ttl_s
        self._read = False
        self._tidied_s = -math.inf

    def load(self, report: Report) -> None:
        """What earlier runs taught, once; a class that cannot be read is reported and starts anew."""
        if self._read:
            return
        with report.guard("workload classes"):
            kept = self._view.classes()
            self._read = True
            for key, (state, used_s) in kept.items():
                with report.guard(f"workload class {key}"):
                    self._classes.load(WorkloadKey(*key), state, used_s)

    def show(self, report: Report) -> None:
        """Write the PhaseProfiles of the classes that changed."""
        for key in sorted(self._classes.changed) if self._read else ():
            with report.guard(f"workload class {ObjectKey(*key)}"):
                self._view.show_class(ObjectKey(*key), self._classes.status(key))
                self._classes.changed.discard(key)

    def tidy(self, index: ContainerIndex, now_s: float, report: Report) -> None:
        """Now and then, forget classes that nothing is run of any more."""
        if not self._read or now_s - self._tidied_s < TIDIED_EVERY_S:
            return
        self._tidied_s = now_s
        in_use = {WorkloadKey(*key) for key in index.classes()}
        for key in in_use:
            self._classes.in_use(key, now_s)
        self._classes.drop_untaught(in_use)
        for key in self._classes.unused(now_s, self._ttl_s):
            with report.guard(f"workload class {ObjectKey(*key)}"):
                self._view.drop_class(ObjectKey(*key))
                self._classes.forget(key)
