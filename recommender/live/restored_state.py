"""State from before a restart, for the engine: from checkpoints, VPA statuses and PhaseProfiles.

Workload classes have PhaseProfiles of their own, which outlive the jobs that they were learned from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from recommender.cluster.errors import ClusterError, Invalid
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pair import NOTHING
from recommender.cluster.vpas.status import recommendations_in
from recommender.engine.classes import Classes
from recommender.engine.keys import Group, Instance, WorkloadKey
from recommender.engine.seen import GroupStart, Memory
from recommender.engine.tally import Report
from recommender.live.containers import ContainerIndex
from recommender.live.view.view import View
from recommender.live.vpa_state import VpaState
from recommender.policies.histogram import HistogramAggregate
from recommender.records import Amounts

MAX_CLASSES_PER_NAMESPACE = 500
"""Above this the least recently used are forgotten: anybody who may create jobs can invent any number of classes."""

CLEANUP_INTERVAL_S = 3600.0
"""How often classes that nothing runs of are looked for."""


class RestoredState(Memory):
    """What the cluster holds."""

    def __init__(self, view: View, states: Mapping[ObjectKey, VpaState]) -> None:
        self._view, self._states = view, states

    def group(self, group: Group) -> GroupStart:
        """History from the checkpoint, the target in force from the status, everything else from the PhaseProfile."""
        key = ObjectKey(group.namespace, group.vpa)
        state = self._states[key]
        history = HistogramAggregate(self._view.history(key, group.container))
        return GroupStart(history, _target_in_force(state, group.container), state.pop_saved("groups", group.container))

    def container(self, instance: Instance, group: Group) -> Mapping[str, Any] | None:
        state = self._states[ObjectKey(group.namespace, group.vpa)]
        return state.pop_saved("members", f"{instance.pod_uid}/{instance.container}")


def _target_in_force(state: VpaState, container: str) -> Amounts:
    """The target in force, before limits.

    The values that a process publishes when it stops are in the status, but applied to no container. The target that
    was in force before is then the uncapped target in the status, and stays in force.
    """
    published = recommendations_in(state.vpa.status).get(container)
    if published is None:
        return NOTHING
    cpu_cores, memory_bytes = (
        target if math.isnan(uncapped) else uncapped
        for uncapped, target in zip(published.uncapped, published.target, strict=True)
    )
    return cpu_cores, memory_bytes


class ClassProfiles:
    """Reads and writes the PhaseProfiles of the engine's workload classes, `max_per_round` at most.

    A class that nothing has run of for `ttl_s` is forgotten.
    """

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
                self._write(key)
        report.unwritten_profiles += len(changed)

    def _write(self, key: WorkloadKey) -> None:
        del self._classes.changed[key]
        status = self._classes.status(key)
        try:
            if status is None:
                self._view.delete_class_profile(ObjectKey(*key))
            else:
                self._view.write_class_profile(ObjectKey(*key), status)
        except Invalid:
            raise  # no retry: the server will not accept it until another run changes it
        except ClusterError:
            self._classes.changed[key] = None
            raise

    def drop_unused(self, index: ContainerIndex, now_s: float) -> None:
        """Once in a while, forget classes that nothing runs of any more."""
        if not self._loaded or now_s - self._cleaned_up_s < CLEANUP_INTERVAL_S:
            return
        self._cleaned_up_s = now_s
        used_now = {WorkloadKey(*key) for key in index.workload_classes()}
        for key in used_now:
            self._classes.in_use(key, now_s)
        self._classes.drop_untaught(used_now)
        for key in self._classes.expired(now_s, self._ttl_s):
            self._classes.forget(key)
