"""Watches and writes what moves depend on: Jobs with their records, PhaseProfiles with categories and barred classes,
and what VPAs set in new pods.

Writes use optimistic locking, and are visible here before the watch shows them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeGuard

from extender.moves.board import MoveInputs, Rate
from extender.moves.job import ANNOTATION, MoveRecord, MovingJob, read_job, records_json
from extender.moves.replacement import read_vpa_targets
from extender.pods.pod import PREFIX, categories_of
from extender.watches import Watches
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import NotFound
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.profiles import CLASS_PREFIX, MOVE, PROFILES, class_profile_key
from recommender.cluster.watching.reflector import Reflector
from recommender.contention.sharing import Stage, stages_of
from recommender.progress.growth import Category

log = logging.getLogger(__name__)

JOBS = ("batch/v1", "jobs")

BARRED = f"{PREFIX}moves-barred"
"""Annotation of a class's PhaseProfile: names the job that did not run again after a move."""


@dataclass(frozen=True, slots=True)
class ProfileFacts:
    """What matters here of a PhaseProfile."""

    key: ObjectKey
    # categories, rates: of its pods, by UID
    categories: Mapping[str, Category]
    rates: Mapping[str, Rate]
    run: Sequence[Stage]  # stages of a whole run of its class; empty for the profile of a VPA
    bars_class: bool  # whether jobs of its class must not be moved


@reads("PhaseProfile")
def read_profile_facts(raw: Fields) -> ProfileFacts:
    metadata, status, all_categories = raw.child("metadata"), raw.child("status"), list(Category)
    categories = {uid: all_categories[number] for uid, number in categories_of(status).items() if number is not None}
    run = _run_of(status) if raw.child("spec").flag("class") else ()
    return ProfileFacts(
        read_key(metadata), categories, _rates_of(status), run, BARRED in metadata.string_map("annotations")
    )


def _rates_of(status: Fields) -> dict[str, Rate]:
    """Rates by pod UID; of several containers the one that uses most."""
    rates: dict[str, Rate] = {}
    for pod in status.children("pods"):
        cpu_cores, since_s = pod.quantity("meanCpuCores"), pod.time_s("startedAt")
        if cpu_cores is not None and since_s is not None:
            rate = Rate(cpu_cores, since_s)
            rates[pod.text("uid")] = max(rate, rates.get(pod.text("uid"), rate))
    return rates


def _run_of(status: Fields) -> Sequence[Stage]:
    """Stages of a run of the class; of several containers the one that uses most."""
    runs = [
        stages_of(step_s, cpu_cores, demand.quantity("usedCoreSeconds"))
        for demand in (container.child("demand") for container in status.children("containers"))
        if (step_s := demand.quantity("stepSeconds")) and _is_curve(cpu_cores := demand.raw.get("cpuCores"))
    ]
    return max(runs, key=lambda run: sum(stage.core_s for stage in run), default=())


def _is_curve(raw: object) -> TypeGuard[list[float]]:
    return isinstance(raw, list) and bool(raw) and all(isinstance(level, int | float) for level in raw)


class MoveStore:
    """Jobs and PhaseProfiles as watched, with our own later writes."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._profiles = Reflector(api, path_of(PROFILES), read_profile_facts)
        self._jobs = Reflector(api, path_of(JOBS), read_job)
        self._targets = Reflector(api, path_of(VPAS), read_vpa_targets)
        self.watches = Watches(self._profiles, self._jobs, self._targets)
        self._written: dict[str, tuple[set[str], MovingJob]] = {}

    def known(self) -> MoveInputs:
        # the first by name last: of several that name a pod, it counts
        profiles = sorted(self._profiles.snapshot().values(), key=lambda each: each.key, reverse=True)
        return MoveInputs(
            {(each.key.namespace, uid): category for each in profiles for uid, category in each.categories.items()},
            {(each.key.namespace, uid): rate for each in profiles for uid, rate in each.rates.items()},
            {_class_of(profile.key): profile.run for profile in profiles if profile.run},
            self.jobs(),
            {(each.namespace, each.controller): each.targets for each in self._targets.snapshot().values()},
        )

    def profile_of(self, namespace: str, uid: str) -> ObjectKey | None:
        """The PhaseProfile with the category of a pod, in its namespace: a record on a Job may name any UID."""
        profiles = self._profiles.snapshot().values()
        return min((p.key for p in profiles if p.key.namespace == namespace and uid in p.categories), default=None)

    def jobs(self) -> dict[str, MovingJob]:
        seen = {job.uid: job for job in self._jobs.snapshot().values()}
        self._written = {
            uid: (behind, job)
            for uid, (behind, job) in self._written.items()
            if uid in seen and seen[uid].version in behind
        }
        return seen | {uid: job for uid, (_, job) in self._written.items()}

    def late_classes(self) -> set[ObjectKey]:
        """Workload classes whose jobs are not moved, since one did not run again in time."""
        profiles = (profile.key for profile in self._profiles.snapshot().values() if profile.bars_class)
        return {_class_of(key) for key in profiles} | {
            ObjectKey(job.key.namespace, job.workload) for job in self.jobs().values() if job.late
        }

    # -- writes; each raises `ApiError` --------------------------------------------------------------------------------

    def write(self, job: MovingJob, records: Sequence[MoveRecord]) -> MovingJob:
        """Write the records of a Job; `Conflict` if it has changed since it was read."""
        metadata = {"uid": job.uid, "resourceVersion": job.version, "annotations": {ANNOTATION: records_json(records)}}
        new = read_job(self._api.patch(path_of(JOBS, *job.key), {"metadata": metadata}))
        behind, _ = self._written.get(job.uid, (set(), job))
        self._written[job.uid] = ({*behind, job.version}, new)
        return new

    def bar_class(self, job: MovingJob, record: MoveRecord) -> None:
        """Annotate the class's PhaseProfile, if there is one: it outlives the Job."""
        profile = class_profile_key(ObjectKey(job.key.namespace, job.workload))
        self._annotate(profile, BARRED, f"{job.key.name} did not come back from a move to {record.node}")

    def annotate_move(self, namespace: str, uid: str, text: str) -> None:
        """Annotate a pod's PhaseProfile, if there is one, with the text on its move."""
        if profile := self.profile_of(namespace, uid):
            self._annotate(profile, MOVE, text)

    def _annotate(self, profile: ObjectKey, name: str, text: str) -> None:
        with suppress(NotFound):
            self._api.patch(
                path_of(PROFILES, *profile), {"metadata": {"annotations": {name: text}}}, metadata_only=True
            )


def _class_of(profile: ObjectKey) -> ObjectKey:
    return ObjectKey(profile.namespace, profile.name.removeprefix(CLASS_PREFIX))
