"""Which VPAs labelled workloads without one should have: a pure decision, one namespace at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from recommender.cluster.errors import ClusterError
from recommender.cluster.objects.metadata import OwnerRef
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.vpas.auto_created import WantedVpa, is_as_wanted, is_edited, is_managed_by, names_for
from recommender.cluster.workloads.kinds import JOB_KINDS
from recommender.cluster.workloads.ownership import MAX_OWNERS, Ref, Workload
from recommender.live.auto.settings import AUTO, safe_settings, settings_from
from recommender.live.auto.view import AutoView, Namespace

COVERED_KINDS = {
    *(group_kind for group_kind, kind in JOB_KINDS.items() if kind.can_have_vpa),
    *(("", kind) for kind in ("Job", "CronJob", "Deployment", "StatefulSet", "DaemonSet")),
}
"""(group, kind) of the workloads that get a VPA; well-known kinds have an empty group here."""

NOT_SCALABLE = "the updater acts on no kind without a scale subresource: this VPA only recommends"


@dataclass(slots=True)
class VpaChanges:
    """Changes in a namespace, to be made in this order."""

    remove: list[tuple[Vpa, str]] = field(default_factory=list)  # with reasons
    change: list[tuple[Vpa, WantedVpa]] = field(default_factory=list)
    create: list[WantedVpa] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)  # for the user, by the object that they are about
    incomplete: bool = False  # to be tried again: for some workload it could not be determined what it should have


class Planner:
    """Plans changes so that each labelled workload has one VPA, and none beside a VPA that a user wrote.

    Where a lookup by `view` raises a ClusterError, the VPA of that workload stays as it is.
    """

    def __init__(self, namespace: Namespace, recommender: str, view: AutoView) -> None:
        self._namespace, self._recommender, self._view = namespace, recommender, view
        self._workloads, self._vpas = view.workloads(namespace.name), view.vpas(namespace.name)
        foreign = []
        self._ours: dict[str, list[Vpa]] = defaultdict(list)  # by the UID of the workload
        for vpa in sorted(self._vpas.values(), key=lambda vpa: (vpa.created_s, vpa.key)):
            if vpa.owner is not None and is_managed_by(vpa, recommender):
                self._ours[vpa.owner.uid].append(vpa)
            else:
                foreign.append(vpa)
        self._foreign_vpas = {Ref.of(vpa.target): vpa.key.name for vpa in foreign}
        self._vpa_below = {upper: name for ref, name in self._foreign_vpas.items() for upper in self._ancestors(ref)}
        self._foreign_names = {vpa.key.name for vpa in foreign}
        self._scalers = view.scalers(namespace.name)
        self._changes = VpaChanges()

    def plan(self) -> VpaChanges:
        self._check_label(f"Namespace {self._namespace.name}", self._namespace.labels)
        for workload in self._workloads.values():
            if (workload.ref.group, workload.kind) in COVERED_KINDS and workload.uid:
                try:
                    self._decide(workload)
                except ClusterError as error:
                    self._changes.notes[_describe(workload)] = f"cannot determine whether it should have a VPA: {error}"
                    self._changes.incomplete = True
        return self._changes

    # -- one workload ----------------------------------------------------------------------------------------------

    def _decide(self, workload: Workload) -> None:
        present = self._ours.get(workload.uid, [])
        if not present and not self._is_labelled(workload):
            self._check_label(_describe(workload), workload.labels)
            return
        reason = self._reason_for_none(workload)
        kept = None if reason else next((vpa for vpa in present if not vpa.deleting), None)
        for vpa in present:
            if vpa is not kept and not vpa.deleting:
                self._changes.remove.append((vpa, reason or "its workload has another one"))
        if reason or workload.deleting:
            return
        if kept is not None:
            self._update(kept, workload)
        elif not workload.finished and not self._namespace.deleting and not present:
            self._create(workload)

    def _reason_for_none(self, workload: Workload) -> str:
        """Why a workload should have no VPA of ours; empty when it should."""
        about = _describe(workload)
        if not self._is_labelled(workload):
            return f"{about} is not labelled {AUTO}=true, nor is its namespace"
        if scaler := self._scalers.get(workload.ref):
            reason = f"HorizontalPodAutoscaler {scaler} scales {about} by utilization, which a VPA changes"
            if AUTO in workload.labels:
                self._changes.notes[about] = f"gets no VPA: {reason}"
            return reason
        if _makes_jobs(workload.ref) and not self._view.is_scalable(workload.api_version, workload.kind):
            return f"the updater acts on no {workload.kind}: each of the Jobs of {about} has one"
        if (owner := workload.owner) is not None and self._can_have_vpa(owner):
            if AUTO in workload.labels:
                self._changes.notes[about] = f"gets no VPA: {owner.kind}/{owner.name} controls it, label that"
            return f"{owner.kind}/{owner.name} controls {about}"
        other = self._foreign_vpas.get(workload.ref) or self._vpa_below.get(workload.ref)
        above = (self._foreign_vpas[ref] for ref in self._ancestors(workload.ref) if ref in self._foreign_vpas)
        other = other or next(above, "")
        return f"the VPA {other}, which somebody made, is for the pods of {about}" if other else ""

    def _is_labelled(self, workload: Workload) -> bool:
        labels = [workload.labels, *(one.labels for one in self._makers_of(workload)), self._namespace.labels]
        return next((one[AUTO] for one in labels if AUTO in one), "") == "true"

    def _makers_of(self, workload: Workload) -> list[Workload]:
        """The jobs of CRDs that a Job was made for, such as a JobSet: their labels and annotations apply to it, too."""
        above = (self._workloads.get(ref) for ref in self._ancestors(workload.ref) if _makes_jobs(ref))
        return [one for one in above if one is not None]

    def _check_label(self, about: str, labels: Mapping[str, str]) -> None:
        if (value := labels.get(AUTO, "true")) not in ("true", "false"):
            self._changes.notes[about] = f"its label {AUTO}={value} is neither true nor false, and counts as false"

    def _can_have_vpa(self, owner: OwnerRef) -> bool:
        """Whether a VPA can target this owner, so that the VPA belongs to it or to one of its owners."""
        ref = Ref.of(owner)
        known = ref.well_known or ((ref.group, ref.kind) in COVERED_KINDS and not _makes_jobs(ref))
        return known or self._view.is_scalable(owner.api_version, owner.kind)

    def _ancestors(self, ref: Ref) -> Iterator[Ref]:
        """The known chain of controllers above a controller, at most `MAX_OWNERS`."""
        seen = {ref}
        while (workload := self._workloads.get(ref)) is not None and workload.owner is not None:
            ref = Ref.of(workload.owner)
            if ref in seen or len(seen) > MAX_OWNERS:
                return
            seen.add(ref)
            yield ref

    # -- its VPA ---------------------------------------------------------------------------------------------------

    def _update(self, vpa: Vpa, workload: Workload) -> None:
        wanted = self._desired(vpa.key.name, workload)
        if is_as_wanted(vpa, wanted):
            return
        if is_edited(vpa):
            about = f"VPA {vpa.key}"
            self._changes.notes[about] = "was changed by hand and is left as it is; delete it to have it created again"
        else:
            self._changes.change.append((vpa, wanted))

    def _create(self, workload: Workload) -> None:
        name = next((name for name in names_for(workload) if name not in self._foreign_names), "")
        if not name:
            self._changes.notes[_describe(workload)] = "gets no VPA: others have the names it could have"
            return
        wanted = self._desired(name, workload)
        earlier = self._vpas.get(wanted.key)
        if earlier is None:
            self._changes.create.append(wanted)
        elif not earlier.deleting:  # of a deleted workload of this name: wait until its VPA is gone
            self._changes.remove.append((earlier, "its workload is gone, and another one has its name"))

    def _desired(self, name: str, workload: Workload) -> WantedVpa:
        own = {
            name: text for one in (*self._makers_of(workload)[::-1], workload) for name, text in one.annotations.items()
        }
        requested, problems = settings_from(own, self._namespace.annotations)
        if problems:
            self._changes.notes[_describe(workload)] = f"the VPA only recommends (mode Off): {'; '.join(problems)}"
        if not workload.ref.well_known and not self._view.is_scalable(workload.api_version, workload.kind):
            problems.append(NOT_SCALABLE)
        pods = {*workload.templates.resizability, *self._view.live_pods(workload)}
        has_in_place = self._view.has_in_place(self._namespace.name)
        settings, reason = safe_settings(requested, workload.kind, pods, has_in_place)
        return WantedVpa(name, workload, self._recommender, settings, "; ".join(filter(None, [*problems, reason])))


def _makes_jobs(ref: Ref) -> bool:
    return ref.job_kind is not None and ref.job_kind.makes_jobs


def _describe(workload: Workload) -> str:
    return f"{workload.kind} {workload.key}"
