"""Which VPAs should be there for workloads that nobody wrote one for: a pure decision, one namespace at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from recommender.cluster.errors import ApiError
from recommender.cluster.objects.metadata import ObjectKey, OwnerRef
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.vpas.auto_created import WantedVpa, is_as_wanted, is_edited, is_managed_by, names_for
from recommender.cluster.workloads.namespaces import Namespace
from recommender.cluster.workloads.ownership import WELL_KNOWN, Ref, Workload
from recommender.cluster.workloads.targets import TRAINING_JOBS
from recommender.cluster.workloads.training_jobs import TRAINING_JOB_KINDS
from recommender.live.auto.settings import AUTO, harmless, read_wish
from recommender.live.auto.view import AutoView

COVERED = TRAINING_JOB_KINDS | {("", kind) for kind in ("Job", "CronJob", "Deployment", "StatefulSet", "DaemonSet")}
"""(group, kind) of the workloads that get a VPA; well-known kinds have no group here."""


MADE_OF_JOBS = "JobSet"
"""Without a scale subresource the updater acts on none: then each of its Jobs has a VPA of its own."""

NOT_ACTED_UPON = "the updater acts on no kind without a scale subresource: this VPA only recommends"


@dataclass(slots=True)
class VpaChanges:
    """What is to be done in a namespace, in this order.

    Attributes
    ----------
    remove
        VPAs of ours, and why each goes.
    change
        VPAs of ours, and what they are to say.
    notes
        What a person should know, by the object it is about.
    unsure
        Of some workload it could not be told whether it should have one: to be asked again.
    """

    remove: list[tuple[Vpa, str]] = field(default_factory=list)
    change: list[tuple[Vpa, WantedVpa]] = field(default_factory=list)
    create: list[WantedVpa] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    unsure: bool = False


class Planning:
    """Works out what is to be done so that each labelled workload has one VPA, and none beside one that a person made.

    Parameters
    ----------
    workloads, vpas
        All that are known in this namespace.
    recommender
        Our name: what made VPAs say in `recommenders` and in their label.
    around
        What else must be known. Where a call raises an ApiError, that workload's VPA stays as it is.
    """

    def __init__(
        self,
        namespace: Namespace,
        workloads: Mapping[Ref, Workload],
        vpas: Mapping[ObjectKey, Vpa],
        recommender: str,
        around: AutoView,
    ) -> None:
        self._namespace, self._workloads, self._vpas = namespace, workloads, vpas
        self._recommender, self._around = recommender, around
        theirs = []
        self._made: dict[str, list[Vpa]] = defaultdict(list)  # by the uid of the workload
        for vpa in sorted(vpas.values(), key=lambda vpa: (vpa.created_s, vpa.key)):
            if vpa.owner is not None and is_managed_by(vpa, recommender):
                self._made[vpa.owner.uid].append(vpa)
            else:
                theirs.append(vpa)
        self._targets = {Ref.of(v.target.api_version, v.target.kind, v.target.name): v.key.name for v in theirs}
        self._above = {upper: name for ref, name in self._targets.items() for upper in self._way_up(ref)}
        self._names_of_theirs = {vpa.key.name for vpa in theirs}
        self._changes = VpaChanges()

    def done(self) -> VpaChanges:
        """What is to be done."""
        self._check_label(f"Namespace {self._namespace.name}", self._namespace.labels)
        for workload in self._workloads.values():
            if (workload.ref.group, workload.kind) in COVERED and workload.uid:
                try:
                    self._decide(workload)
                except ApiError as error:
                    self._changes.notes[_words_for(workload)] = f"cannot tell whether it is to have a VPA: {error}"
                    self._changes.unsure = True
        return self._changes

    # -- one workload ----------------------------------------------------------------------------------------------

    def _decide(self, workload: Workload) -> None:
        present = self._made.get(workload.uid, [])
        if not present and not self._is_labelled(workload):
            self._check_label(_words_for(workload), workload.labels)
            return
        reason = self._reason_against(workload)
        kept = None if reason else next((vpa for vpa in present if not vpa.deleting), None)
        for vpa in present:
            if vpa is not kept and not vpa.deleting:
                self._changes.remove.append((vpa, reason or "its workload has another one"))
        if reason or workload.deleting:
            return
        if kept is not None:
            self._keep(kept, workload)
        elif not workload.finished and not self._namespace.deleting and not present:
            self._make(workload)

    def _reason_against(self, workload: Workload) -> str:
        """Why a workload should have no VPA of ours; empty when it should."""
        about = _words_for(workload)
        if not self._is_labelled(workload):
            return f"{about} is not labelled {AUTO}=true, nor is its namespace"
        if workload.kind == MADE_OF_JOBS and not self._around.is_scalable(workload.api_version, workload.kind):
            return f"the updater acts on no {MADE_OF_JOBS}: each of the Jobs of {about} has one"
        if (owner := workload.owner) is not None and self._counts(owner):
            if AUTO in workload.labels:
                self._changes.notes[about] = f"gets no VPA: {owner.kind}/{owner.name} controls it, label that"
            return f"{owner.kind}/{owner.name} controls {about}"
        beside = self._targets.get(workload.ref) or self._above.get(workload.ref)
        beside = beside or next((self._targets[ref] for ref in self._way_up(workload.ref) if ref in self._targets), "")
        return f"the VPA {beside}, which somebody made, is for the pods of {about}" if beside else ""

    def _is_labelled(self, workload: Workload) -> bool:
        above = self._set_of(workload)
        inherited = self._namespace.labels.get(AUTO) if above is None else above.labels.get(AUTO)
        return workload.labels.get(AUTO, inherited or self._namespace.labels.get(AUTO)) == "true"

    def _set_of(self, workload: Workload) -> Workload | None:
        """The set of Jobs that a Job belongs to: what is said of the set holds for it."""
        owner = workload.owner
        return self._workloads.get(Ref.of_owner(owner)) if owner is not None and owner.kind == MADE_OF_JOBS else None

    def _check_label(self, about: str, labels: Mapping[str, str]) -> None:
        if (value := labels.get(AUTO, "true")) not in ("true", "false"):
            self._changes.notes[about] = f"its label {AUTO}={value} is neither true nor false, and counts as false"

    def _counts(self, owner: OwnerRef) -> bool:
        """A VPA then belongs to the owner, or to what is above it."""
        known = owner.kind in WELL_KNOWN or (owner.kind in TRAINING_JOBS and owner.kind != MADE_OF_JOBS)
        return known or self._around.is_scalable(owner.api_version, owner.kind)

    def _way_up(self, ref: Ref) -> Iterator[Ref]:
        """Who controls a controller, and who controls that, as far as is known."""
        passed = {ref}
        while (workload := self._workloads.get(ref)) is not None and workload.owner is not None:
            ref = Ref.of_owner(workload.owner)
            if ref in passed:
                return
            passed.add(ref)
            yield ref

    # -- what it should have ---------------------------------------------------------------------------------------

    def _keep(self, vpa: Vpa, workload: Workload) -> None:
        wanted = self._wanted(vpa.key.name, workload)
        if is_as_wanted(vpa, wanted):
            return
        if is_edited(vpa):
            about = f"VPA {vpa.key}"
            self._changes.notes[about] = "was changed by hand and is left as it is; delete it to have it made anew"
        else:
            self._changes.change.append((vpa, wanted))

    def _make(self, workload: Workload) -> None:
        name = next((name for name in names_for(workload) if name not in self._names_of_theirs), "")
        if not name:
            self._changes.notes[_words_for(workload)] = "gets no VPA: others have the names it could have"
            return
        wanted = self._wanted(name, workload)
        earlier = self._vpas.get(wanted.key)
        if earlier is None:
            self._changes.create.append(wanted)
        elif not earlier.deleting:  # of one of this name that is gone, and the collector late: made when it is away
            self._changes.remove.append((earlier, "its workload is gone, and another one has its name"))

    def _wanted(self, name: str, workload: Workload) -> WantedVpa:
        above = self._set_of(workload)
        own = {**(above.annotations if above is not None else {}), **workload.annotations}
        wish = read_wish(own, self._namespace.annotations)
        problems = list(wish.problems)
        if problems:
            self._changes.notes[_words_for(workload)] = f"the VPA only recommends (mode Off): {'; '.join(problems)}"
        if workload.kind not in WELL_KNOWN and not self._around.is_scalable(workload.api_version, workload.kind):
            problems.append(NOT_ACTED_UPON)
        pods = {*workload.templates.resizability, *self._around.live_pods(workload)}
        has_in_place = self._around.has_in_place(self._namespace.name)
        settings, reason = harmless(wish.settings, workload.kind, pods, has_in_place)
        return WantedVpa(name, workload, self._recommender, settings, "; ".join(filter(None, [*problems, reason])))


def _words_for(workload: Workload) -> str:
    return f"{workload.kind} {workload.key}"
