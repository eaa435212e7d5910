"""What was known before a start, as the engine asks for it: from checkpoints, statuses and PhaseProfiles.

What is known of workload classes is kept in PhaseProfiles of their own: it outlives the jobs that taught it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from recommender.cluster.errors import ClusterError, Invalid
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.vpas.status import published_in
from recommender.engine.classes import Classes
from recommender.engine.keys import Group, Instance, WorkloadKey
from recommender.engine.seen import GroupStart
from recommender.engine.tally import Report
from recommender.live.containers import ContainerIndex
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.policies.histogram_aggregate import HistogramAggregate
from recommender.records import Amounts

NOTHING: Amounts = (math.nan, math.nan)

MOST_CLASSES = 500
"""Of one namespace; of more those used longest ago are forgotten. Whoever may run jobs there can make up any number."""

TIDIED_EVERY_S = 3600.0
"""How often classes that nothing is run of any more are looked for."""


class Remembered:
    """The engine's memory in a cluster.

    Parameters
    ----------
    states
        The VPAs that are ours.
    """

    def __init__(self, view: View, states: Mapping[ObjectKey, VpaState]) -> None:
        self._view, self._states = view, states

    def group(self, group: Group) -> GroupStart:
        """History from the checkpoint, the target in force from the status, all else from the profile."""
        key = ObjectKey(group.namespace, group.vpa)
        state = self._states[key]
        history = HistogramAggregate(self._view.history(key, group.container))
        return GroupStart(history, _standing(state, group.container), state.kept_once("groups", group.container))

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        """What the profile kept of a container."""
        state = self._states[ObjectKey(group.namespace, group.vpa)]
        return state.kept_once("members", f"{instance.pod_uid}/{instance.container}")


def _standing(state: VpaState, container: str) -> Amounts:
    """The target in force, before limits.

    What was left behind at the end of another process stands in the status, and in no container: what had stood before
    is the uncapped target there, and goes on.
    """
    before = published_in(state.vpa.status).get(container)
    if before is None:
        return NOTHING
    cpu_cores, memory_bytes = (
        target if math.isnan(uncapped) else uncapped
        for uncapped, target in zip(before.uncapped, before.target, strict=True)
    )
    return cpu_cores, memory_bytes


class ClassProfiles:
    """Reads and writes the profiles of the engine's classes.

    Parameters
    ----------
    ttl_s
        A class that nothing was run of for so long is forgotten.
    at_most
        So many are written in one round.
    """

    def __init__(self, view: View, classes: Classes, ttl_s: float, at_most: float = math.inf) -> None:
        self._view, self._classes, self._ttl_s, self._at_most = view, classes, ttl_s, at_most
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
        """Write the PhaseProfiles of the classes that changed, the longest waiting first; delete those of lost ones."""
        changed = self._classes.changed
        if not self._read or not changed:
            return
        for key in self._classes.over_limit(MOST_CLASSES):
            self._classes.forget(key)
        for key in list(changed)[: int(min(self._at_most, len(changed)))]:
            with report.guard(f"workload class {ObjectKey(*key)}"):
                self._write(key)
        report.unwritten_profiles += len(changed)

    def _write(self, key: WorkloadKey) -> None:
        del self._classes.changed[key]
        status = self._classes.status(key)
        try:
            if status is None:
                self._view.drop_class(ObjectKey(*key))
            else:
                self._view.show_class(ObjectKey(*key), status)
        except Invalid:
            raise  # as it is it never will be taken: another run may change that
        except ClusterError:
            self._classes.changed[key] = None
            raise

    def tidy(self, index: ContainerIndex, now_s: float) -> None:
        """Now and then, forget classes that nothing is run of any more."""
        if not self._read or now_s - self._tidied_s < TIDIED_EVERY_S:
            return
        self._tidied_s = now_s
        in_use = {WorkloadKey(*key) for key in index.classes()}
        for key in in_use:
            self._classes.in_use(key, now_s)
        self._classes.drop_untaught(in_use)
        for key in self._classes.expired(now_s, self._ttl_s):
            self._classes.forget(key)
