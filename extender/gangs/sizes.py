"""The sizes of gangs by their jobs, which are read from the API server: few in each run, and then cached."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

from extender.gangs.gang import NOT_READ_YET, JobSize
from extender.gangs.member import Member
from recommender.base.units import MonotonicClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadObject
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import path_of
from recommender.cluster.workloads.kinds import JOB_KINDS, KUBEFLOW

log = logging.getLogger(__name__)

MAX_READS = 25  # per run. Anyone may create gated pods that name thousands of jobs; all gangs wait while they are read
Job = tuple[str, str]  # API path, and the UID of the pod's owner: a job that is recreated under its name is another one


class JobSizes:
    """Sizes of jobs. More than `MAX_READS` that are due wait for the next runs, the longest waiting first.

    `ttl_s`, `no_size_ttl_s`: how long a size is cached, and how long the lack of one.
    """

    def __init__(
        self, api: Api, ttl_s: float, no_size_ttl_s: float, monotonic: MonotonicClock = time.monotonic
    ) -> None:
        self._api, self._ttl_s, self._no_size_ttl_s, self._monotonic = api, ttl_s, no_size_ttl_s, monotonic
        self._known: dict[Job, tuple[JobSize | None, float]] = {}
        self._due: dict[Job, None] = {}  # in order of arrival
        self._asked: set[Job] = set()
        self._reads_left = 0

    def begin_run(self) -> None:
        """Read sizes that were due in the last run; forget jobs that nobody asked for in it."""
        self._known = {job: known for job, known in self._known.items() if job in self._asked}
        self._due = {job: None for job in self._due if job in self._asked}
        self._asked.clear()
        self._reads_left = MAX_READS
        for job in list(islice(self._due, MAX_READS)):
            del self._due[job]
            self._read(job)

    def of(self, member: Member) -> JobSize | None:
        """The size of a pod's job; None if it has none, `NOT_READ_YET` if it is not its turn."""
        path = path_of_job(member)
        if path is None:
            return None
        job = (path, member.owner.uid if member.owner is not None else "")
        self._asked.add(job)
        _, until_s = self._known.get(job, (None, 0.0))
        if self._monotonic() >= until_s and job not in self._due:
            if self._reads_left:
                self._read(job)
            else:
                self._due[job] = None
        return self._known[job][0] if job in self._known else NOT_READ_YET

    def _read(self, job: Job) -> None:
        self._reads_left -= 1
        try:
            size = size_of_job(self._api.get(job[0]))
        except (ApiError, BadObject) as error:
            log.warning("the job of a gang cannot be read: %s", error)
            size = None
        self._known[job] = size, self._monotonic() + (self._ttl_s if size else self._no_size_ttl_s)


RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
JOBSET = ("jobset.x-k8s.io/v1alpha2", "jobsets")


def path_of_job(member: Member) -> str | None:
    """API path of the job of a pod, by its group's label or its owner; None for unknown kinds."""
    label, _, name = member.membership.name.partition("=")
    if label == "jobset.sigs.k8s.io/jobset-name":
        return path_of(JOBSET, member.key.namespace, name)
    owner = member.owner
    if owner is not None and owner.kind == "Job":
        return path_of(("batch/v1", "jobs"), member.key.namespace, owner.name)
    if owner is not None and (KUBEFLOW, owner.kind) in JOB_KINDS:
        return path_of((f"{KUBEFLOW}/v1", f"{owner.kind.lower()}s"), member.key.namespace, owner.name)
    return None


@reads("job")
def size_of_job(raw: Fields) -> JobSize | None:
    """The size of a job; None if it says that no pod runs, BadObject if it is malformed."""
    spec, status = raw.child("spec"), raw.child("status")
    pods, roles = _pods_at_once(spec), status.child("replicaStatuses")
    of_job = {entry.text("name"): _pods_of_child(entry) for entry in spec.children("replicatedJobs")}
    failed = RANGE.findall(status.text("failedIndexes"))  # such as `1,3-5`
    ended = status.integer("succeeded") + sum(max(0, int(last or first) - int(first) + 1) for first, last in failed)
    ended += sum(roles.child(role).integer("succeeded") for role in roles.raw)
    ended += sum(
        jobs.integer("succeeded") * of_job.get(jobs.text("name"), 0) for jobs in status.children("replicatedJobsStatus")
    )
    return JobSize(pods, ended) if pods > 0 else None


def _pods_at_once(spec: Fields) -> int:
    if "replicatedJobs" in spec:
        return sum(entry.integer("replicas", 1) * _pods_of_child(entry) for entry in spec.children("replicatedJobs"))
    if replicas := [name for name in spec.raw if name.endswith("ReplicaSpecs")]:
        minimum = spec.child("runPolicy").child("schedulingPolicy").integer("minAvailable")
        roles: Mapping[str, Any] = spec.child(replicas[0]).raw
        return minimum or sum(spec.child(replicas[0]).child(role).integer("replicas", 1) for role in roles)
    return parallel_pods(spec)


def _pods_of_child(entry: Fields) -> int:
    return parallel_pods(entry.child("template").child("spec"))


def parallel_pods(spec: Fields) -> int:
    """The number of pods of a batch Job that run at once: its parallelism, limited by its completions."""
    parallelism = spec.integer("parallelism", 1)
    return min(parallelism, spec.integer("completions", parallelism))
