"""Histograms in upstream's checkpoint objects: loaded at the start, written in turn, garbage-collected.

The default recommender finds a checkpoint by `spec.vpaObjectName` and `spec.containerName`, whatever its name.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from recommender.base.units import MonotonicClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadObject, ClusterError, Conflict, Invalid, NotFound, Unreachable
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import VPAS, json_patch, new_object, path_of

log = logging.getLogger(__name__)

CHECKPOINTS = ("autoscaling.k8s.io/v1", "verticalpodautoscalercheckpoints")

MAX_NAME_CHARS = 253
HASH_DIGITS = 10

CONTAINER_UNUSED_S = 8 * 86400.0
"""A container without a checkpoint write for so long is gone (upstream keeps samples as long)."""

MAX_LOSS_SHARE, MAX_LOSS_S = 0.1, 600.0
"""Limits on the history lost in a crash, as a share and in seconds: VPAs known for longer are written less often."""

WRITE_TIMEOUT_S = 5.0

MAX_NAMESPACE_LISTS = 20
"""Up to so many namespaces are listed separately; for more, a single list covers all namespaces."""


Statuses = Mapping[ObjectKey, Callable[[], Mapping[str, Mapping[str, Any]]]]
"""By VPA: a function that builds the statuses of its checkpoints, by container name."""


class CheckpointKey(NamedTuple):
    """VPA and container of a history; an object without a container name belongs to no container."""

    vpa: ObjectKey
    container: str

    def __str__(self) -> str:
        return f"{self.vpa}, container {self.container}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint object and its unparsed status; last written at `updated_s` (unix seconds), 0 if unknown."""

    key: CheckpointKey
    name: str
    uid: str
    updated_s: float
    status: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.key.vpa.namespace}/{self.name}"


@reads("VerticalPodAutoscalerCheckpoint")
def read_checkpoint(raw: Fields) -> Checkpoint:
    metadata, spec, status = raw.child("metadata"), raw.child("spec"), raw.child("status")
    here = read_key(metadata)
    return Checkpoint(
        key=CheckpointKey(ObjectKey(here.namespace, spec.required("vpaObjectName")), spec.text("containerName")),
        name=here.name,
        uid=metadata.text("uid"),
        updated_s=status.time_s("lastUpdateTime") or 0.0,
        status=status.raw,
    )


@dataclass(slots=True)
class WriteReport:
    """Counts of checkpoints written and failed in a call of `write`, and of VPAs left for later calls."""

    written: int = 0
    failed: int = 0
    left: int = 0
    unreachable: bool = False
    problems: list[str] = field(default_factory=list)


class Checkpoints:
    """The checkpoint objects of our VPAs, of one namespace or all; raises an `ApiError` if they cannot be listed."""

    def __init__(self, api: Api, clock: MonotonicClock, namespace: str | None = None) -> None:
        self._api, self._clock, self._namespace = api, clock, namespace
        self._names: dict[CheckpointKey, str] = {}  # known object names
        self._written_s: dict[ObjectKey, tuple[float, float]] = {}  # first and last
        self._with_checkpoints: set[ObjectKey] = set()
        self.listed_s = math.inf
        """When all were last listed (Unix seconds); infinite before that, and after others may have written some."""

    # -- reading ---------------------------------------------------------------------------------------------------

    def load(self, vpas: Collection[ObjectKey]) -> list[Checkpoint]:
        """Load the latest checkpoints of these VPAs, at the start or when they become ours."""
        wanted, latest = frozenset(vpas), dict[CheckpointKey, Checkpoint]()
        namespaces = sorted({vpa.namespace for vpa in wanted})
        per_namespace = self._namespace is None and len(namespaces) <= MAX_NAMESPACE_LISTS
        for checkpoint in self._listed(*(namespaces if per_namespace else [self._namespace])):
            before = latest.get(checkpoint.key)
            named = checkpoint.key.vpa in wanted and checkpoint.key.container
            if named and (before is None or before.updated_s < checkpoint.updated_s):
                latest[checkpoint.key] = checkpoint
        self._names |= {key: checkpoint.name for key, checkpoint in latest.items()}
        return list(latest.values())

    def may_exist_for(self, vpa: ObjectKey, created_s: float) -> bool:
        """Whether a VPA may have checkpoints; created after the last list, only those of a former VPA of its name."""
        return vpa in self._with_checkpoints or not created_s > self.listed_s

    def _listed(self, *namespaces: str | None) -> Iterator[Checkpoint]:
        """List the checkpoints of these namespaces; None stands for all namespaces."""
        for namespace in namespaces:
            for page in self._api.list_pages(path_of(CHECKPOINTS, namespace)):
                for raw in page.get("items") or ():
                    try:
                        yield read_checkpoint(raw)
                    except BadObject as error:
                        log.warning("skipped: %s", error)

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(
        self, statuses: Statuses, deadline_s: float, max_writes: float = math.inf, interval_s: float = 0.0
    ) -> WriteReport:
        """Write the checkpoints of VPAs, the longest waiting first, until a deadline on our clock.

        A VPA in progress is completed. After `max_writes` checkpoints only VPAs never written before are, whose whole
        history would be lost. A VPA is due after `interval_s`, or a tenth of the time it has been written for, up to
        ten minutes, if longer; 0 writes all. The functions of `statuses` are called only when needed.
        """
        report = WriteReport()
        for gone in self._written_s.keys() - statuses.keys():
            self.forget(gone)
        now_s = self._clock() if interval_s else 0.0
        due = [vpa for vpa in statuses if not interval_s or self._is_due(vpa, now_s, interval_s)]
        never = -math.inf, -math.inf
        waiting = sorted(due, key=lambda vpa: (self._written_s.get(vpa, never)[1], vpa))
        for place, vpa in enumerate(waiting):
            over_limit = vpa in self._written_s and report.written + report.failed >= max_writes
            # When unreachable, the others would time out too, one after the other.
            if report.unreachable or over_limit or self._clock() >= deadline_s:
                report.left = len(waiting) - place
                break
            by_container = statuses[vpa]()
            for container, status in by_container.items():
                self._write_one(CheckpointKey(vpa, container), status, report)
            if by_container:  # a VPA without any status yet stays at the head of the queue
                last_s = self._clock()
                self._written_s[vpa] = self._written_s.get(vpa, (last_s, last_s))[0], last_s
        return report

    def _is_due(self, vpa: ObjectKey, now_s: float, interval_s: float) -> bool:
        if vpa not in self._written_s:
            return True
        first_s, last_s = self._written_s[vpa]
        return now_s - last_s >= max(interval_s, min(MAX_LOSS_SHARE * (last_s - first_s), MAX_LOSS_S))

    def forget(self, vpa: ObjectKey) -> None:
        """Forget a VPA that is gone, or now belongs to another recommender."""
        self._written_s.pop(vpa, None)
        for key in [key for key in self._names if key.vpa == vpa]:
            del self._names[key]

    def _write_one(self, key: CheckpointKey, status: Mapping[str, Any], report: WriteReport) -> None:
        try:
            self._put(key, status)
            report.written += 1
        except NotFound:  # the namespace is gone, or being deleted
            self._names.pop(key, None)
        except ClusterError as error:
            report.failed += 1
            report.unreachable = isinstance(error, Unreachable)
            report.problems.append(f"checkpoint of {key}: {error}")

    def _put(self, key: CheckpointKey, status: Mapping[str, Any]) -> None:
        """Patch or create the object, trying the next name if one is taken by another container's checkpoint."""
        known = self._names.get(key)
        for name in [known] if known else names_for(key):
            try:
                self._patch_or_create(key, name, status, exists=known is not None)
            except (Conflict, Invalid) as error:  # another container's, just created by another, or refused
                refusal = error
                continue
            self._names[key] = name
            self._with_checkpoints.add(key.vpa)
            return
        self._names.pop(key, None)
        raise refusal

    def _patch_or_create(self, key: CheckpointKey, name: str, status: Mapping[str, Any], *, exists: bool) -> None:
        if not exists:
            with suppress(Conflict):  # created since all were listed
                return self._create(key, name, status)
        try:
            self._patch(key, name, status)
        except NotFound:
            self._create(key, name, status)

    def _patch(self, key: CheckpointKey, name: str, status: Mapping[str, Any]) -> None:
        """Patch the status; only if the object belongs to this container."""
        ours = {"/spec/vpaObjectName": key.vpa.name, "/spec/containerName": key.container}
        path = path_of(CHECKPOINTS, key.vpa.namespace, name)
        self._api.patch(path, json_patch(ours, {"/status": status}), timeout_s=WRITE_TIMEOUT_S, metadata_only=True)

    def _create(self, key: CheckpointKey, name: str, status: Mapping[str, Any]) -> None:
        metadata = {"name": name, "namespace": key.vpa.namespace}
        spec = {"vpaObjectName": key.vpa.name, "containerName": key.container}
        body = new_object(CHECKPOINTS, "VerticalPodAutoscalerCheckpoint", metadata, spec=spec, status=status)
        self._api.create(path_of(CHECKPOINTS, key.vpa.namespace), body, timeout_s=WRITE_TIMEOUT_S)

    # -- garbage collection ---------------------------------------------------------------------------------------

    def collect(
        self, existing: Set[ObjectKey], ours: Set[ObjectKey], now_s: float, covers: Callable[[str], bool]
    ) -> list[str]:
        """Delete checkpoints that nobody will read again; return their names.

        Of VPAs that are gone: all, as the default recommender does. Of our own VPAs: those not written by anybody for
        `CONTAINER_UNUSED_S`. VPAs of other recommenders keep all of their checkpoints. `existing` (all VPAs) and `ours`
        must be from complete lists; `covers` says whether a namespace is ours.
        """
        gone, listed = [], list(self._listed(self._namespace))
        self.listed_s, self._with_checkpoints = now_s, {checkpoint.key.vpa for checkpoint in listed}
        for checkpoint in listed:
            vpa = checkpoint.key.vpa
            if vpa in ours:
                unread = now_s - checkpoint.updated_s > CONTAINER_UNUSED_S
            else:
                unread = covers(vpa.namespace) and vpa not in existing and self._is_gone(vpa)
            if unread and self._delete(checkpoint):
                gone.append(str(checkpoint))
        return gone

    def _is_gone(self, vpa: ObjectKey) -> bool:
        """Whether the server confirms that a VPA does not exist, before its checkpoints are deleted."""
        try:
            self._api.get(path_of(VPAS, *vpa))
        except ClusterError as error:
            return isinstance(error, NotFound)
        return False

    def _delete(self, checkpoint: Checkpoint) -> bool:
        path = path_of(CHECKPOINTS, checkpoint.key.vpa.namespace, checkpoint.name)
        try:
            self._api.delete(path, uid=checkpoint.uid)
        except NotFound:
            return False
        except ClusterError as error:
            log.warning("checkpoint %s could not be deleted: %s", checkpoint, error)
            return False
        self._names.pop(checkpoint.key, None)
        return True


def names_for(key: CheckpointKey) -> list[str]:
    """Candidate names of a checkpoint: upstream's, unless too long, then a unique one with a digest."""
    plain = f"{key.vpa.name}-{key.container}"
    digits = hashlib.sha256(f"{key.vpa.name}\0{key.container}".encode()).hexdigest()[:HASH_DIGITS]
    unique = f"{plain[: MAX_NAME_CHARS - HASH_DIGITS - 1].rstrip('-.')}-{digits}"
    return [plain, unique] if len(plain) <= MAX_NAME_CHARS else [unique]
