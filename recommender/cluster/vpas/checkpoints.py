"""Histograms kept in upstream's checkpoint objects: read once, written in turn, and cleared away when they are ours.

The default recommender finds a checkpoint by `spec.vpaObjectName` and `spec.containerName`, whatever its name; so a
name that is taken or too long costs nothing but beauty.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadObject, ClusterError, Conflict, Invalid, NotFound, Unreachable
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import VPAS, path_of

log = logging.getLogger(__name__)

CHECKPOINTS = ("autoscaling.k8s.io/v1", "verticalpodautoscalercheckpoints")

MAX_NAME_CHARS = 253
HASH_DIGITS = 10

CONTAINER_UNUSED_S = 8 * 86400.0
"""A container that wrote nothing for so long is gone (upstream forgets its samples as late)."""

MAX_LOSS_SHARE, MAX_LOSS_S = 0.1, 600.0
"""Of what we have seen of a VPA, what a kill may take: the longer it was seen, the less often it is written."""

WRITE_TIMEOUT_S = 5.0
"""For one request."""

MAX_NAMESPACE_LISTS = 20
"""Up to so many namespaces are listed one by one; more are one list of all."""


class CheckpointKey(NamedTuple):
    """Whose history it is; of an object that names no container, nobody's."""

    vpa: ObjectKey
    container: str

    def __str__(self) -> str:
        return f"{self.vpa}, container {self.container}"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint object.

    Attributes
    ----------
    name
        Of the object, in the VPA's namespace.
    updated_s
        Unix seconds of its last write; 0 when it does not say.
    status
        As the API server gave it; empty where only the rest was asked for.
    """

    key: CheckpointKey
    name: str
    uid: str
    updated_s: float
    status: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.key.vpa.namespace}/{self.name}"


@reads("VerticalPodAutoscalerCheckpoint")
def read_checkpoint(raw: Fields) -> Checkpoint:
    """A checkpoint from its JSON."""
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
    """What one call of `write` did, in checkpoints; `left` VPAs were not reached in time."""

    written: int = 0
    failed: int = 0
    left: int = 0
    unreachable: bool = False
    problems: list[str] = field(default_factory=list)


class Checkpoints:
    """The checkpoint objects of the VPAs that name us; an `ApiError` where they cannot be listed.

    Parameters
    ----------
    clock
        Monotonic seconds, for deadlines.
    namespace
        The only one to look at; None for all.
    """

    def __init__(self, api: Api, clock: Callable[[], float], namespace: str | None = None) -> None:
        self._api, self._clock, self._namespace = api, clock, namespace
        self._names: dict[CheckpointKey, str] = {}  # of the object that holds a history, as far as we know
        self._last_write_s: dict[ObjectKey, float] = {}
        self._first_write_s: dict[ObjectKey, float] = {}
        self._with_checkpoints: set[ObjectKey] = set()
        self.listed_s = math.inf
        """When all were listed last (unix seconds); infinite: not since others may have written some."""

    # -- reading ---------------------------------------------------------------------------------------------------

    def load(self, vpas: Collection[ObjectKey]) -> list[Checkpoint]:
        """The checkpoints of these VPAs: at the start, and of those that come to us later. Of several the latest."""
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
        """Whether there can be some of a VPA: one made since all were listed has those of its name alone."""
        return vpa in self._with_checkpoints or not created_s > self.listed_s

    def _listed(self, *namespaces: str | None) -> Iterator[Checkpoint]:
        """The checkpoints of these namespaces; None stands for all."""
        for namespace in namespaces:
            for page in self._api.list_pages(path_of(CHECKPOINTS, namespace)):
                for raw in page.get("items") or ():
                    try:
                        yield read_checkpoint(raw)
                    except BadObject as error:
                        log.warning("passed over: %s", error)

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(
        self,
        statuses: Mapping[ObjectKey, Callable[[], Mapping[str, Mapping[str, Any]]]],
        deadline_s: float,
        max_writes: float = math.inf,
        interval_s: float = 0.0,
    ) -> WriteReport:
        """Write the checkpoints of VPAs, those first that waited longest, until the time is up.

        Parameters
        ----------
        statuses
            By VPA, what gives its containers' statuses by name; called only when its turn comes.
        deadline_s
            On our clock; a VPA that was begun is finished.
        max_writes
            Once so many checkpoints are written, only VPAs that never were have a turn: all they know would be lost.
        interval_s
            A VPA whose turn was less than this ago is left for later, as is one that was written for long, for a tenth
            of that time and ten minutes at most; none when it is 0.
        """
        report = WriteReport()
        for gone in self._last_write_s.keys() - statuses.keys():
            self.forget(gone)
        now_s = self._clock() if interval_s else 0.0
        due = [vpa for vpa in statuses if not interval_s or self._is_due(vpa, now_s, interval_s)]
        waiting = sorted(due, key=lambda vpa: (self._last_write_s.get(vpa, -math.inf), vpa))
        for place, vpa in enumerate(waiting):
            over_limit = vpa in self._last_write_s and report.written + report.failed >= max_writes
            if over_limit or self._clock() >= deadline_s:
                report.left = len(waiting) - place
                break
            told = statuses[vpa]()
            for container, status in told.items():
                self._write_one(CheckpointKey(vpa, container), status, report)
            if told:  # of one that has nothing to tell yet, the first word is not waited for
                self._last_write_s[vpa] = last_write_s = self._clock()
                self._first_write_s.setdefault(vpa, last_write_s)
            if report.unreachable:  # the others would only wait as long, one after the other
                report.left = len(waiting) - place - 1
                break
        return report

    def _is_due(self, vpa: ObjectKey, now_s: float, interval_s: float) -> bool:
        last_write_s = self._last_write_s.get(vpa, -math.inf)
        seen_s = last_write_s - self._first_write_s[vpa] if vpa in self._first_write_s else 0.0
        return now_s - last_write_s >= max(interval_s, min(MAX_LOSS_SHARE * seen_s, MAX_LOSS_S))

    def forget(self, vpa: ObjectKey) -> None:
        """The VPA is gone, or another recommender's."""
        self._last_write_s.pop(vpa, None)
        self._first_write_s.pop(vpa, None)
        for key in [key for key in self._names if key.vpa == vpa]:
            del self._names[key]

    def _write_one(self, key: CheckpointKey, status: Mapping[str, Any], report: WriteReport) -> None:
        try:
            self._put(key, status)
            report.written += 1
        except NotFound:  # the namespace is gone, or going
            self._names.pop(key, None)
        except ClusterError as error:
            report.failed += 1
            report.unreachable = isinstance(error, Unreachable)
            report.problems.append(f"checkpoint of {key}: {error}")

    def _put(self, key: CheckpointKey, status: Mapping[str, Any]) -> None:
        """Patch the object, make it where there is none, and leave alone one of the same name that is another's."""
        known = self._names.get(key)
        for name in [known] if known else names_for(key):
            try:
                self._patch_or_create(key, name, status, exists=known is not None)
            except (Conflict, Invalid) as error:  # made by someone just now; another's, or of a status that is refused
                refusal = error
                continue
            self._names[key] = name
            self._with_checkpoints.add(key.vpa)
            return
        self._names.pop(key, None)
        raise refusal

    def _patch_or_create(self, key: CheckpointKey, name: str, status: Mapping[str, Any], *, exists: bool) -> None:
        if not exists:
            with suppress(Conflict):  # it has come since all were listed
                return self._create(key, name, status)
        try:
            self._patch(key, name, status)
        except NotFound:
            self._create(key, name, status)

    def _patch(self, key: CheckpointKey, name: str, status: Mapping[str, Any]) -> None:
        """The tests make sure that it is this container's."""
        operations: list[Mapping[str, Any]] = [
            {"op": "test", "path": "/spec/vpaObjectName", "value": key.vpa.name},
            {"op": "test", "path": "/spec/containerName", "value": key.container},
            {"op": "add", "path": "/status", "value": status},
        ]
        path = path_of(CHECKPOINTS, key.vpa.namespace, name)
        self._api.patch(path, operations, timeout_s=WRITE_TIMEOUT_S, metadata_only=True)

    def _create(self, key: CheckpointKey, name: str, status: Mapping[str, Any]) -> None:
        body = {
            "apiVersion": CHECKPOINTS[0],
            "kind": "VerticalPodAutoscalerCheckpoint",
            "metadata": {"name": name, "namespace": key.vpa.namespace},
            "spec": {"vpaObjectName": key.vpa.name, "containerName": key.container},
            "status": status,
        }
        self._api.create(path_of(CHECKPOINTS, key.vpa.namespace), body, timeout_s=WRITE_TIMEOUT_S)

    # -- clearing away ---------------------------------------------------------------------------------------------

    def collect(
        self, existing: Set[ObjectKey], ours: Set[ObjectKey], now_s: float, covers: Callable[[str], bool]
    ) -> list[str]:
        """Delete what nobody will read again, and return the names of what went.

        Of VPAs that are gone: all, as the default recommender does. Of our own VPAs: those that nobody has written for
        `CONTAINER_UNUSED_S`, whoever made them. A VPA of another recommender keeps all of its checkpoints.

        Parameters
        ----------
        existing, ours
            Sets of all VPAs whoever they name, and those that name us; both from complete lists.
        now_s
            Unix seconds.
        covers
            Whether what lies in a namespace is our business.
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
        """Asked of the server itself before anything is deleted for it."""
        try:
            self._api.get(path_of(VPAS, *vpa))
        except NotFound:
            return True
        except ClusterError:
            return False
        return False

    def _delete(self, checkpoint: Checkpoint) -> bool:
        path = path_of(CHECKPOINTS, checkpoint.key.vpa.namespace, checkpoint.name)
        try:
            self._api.delete(path, uid=checkpoint.uid)
        except NotFound:
            return False
        except ClusterError as error:
            log.warning("checkpoint %s is not deleted: %s", checkpoint, error)
            return False
        self._names.pop(checkpoint.key, None)
        return True


def names_for(key: CheckpointKey) -> list[str]:
    """What a checkpoint may be called: as upstream calls it, where that can be a name; then as nothing else is."""
    plain = f"{key.vpa.name}-{key.container}"
    digits = hashlib.sha256(f"{key.vpa.name}\0{key.container}".encode()).hexdigest()[:HASH_DIGITS]
    unique = f"{plain[: MAX_NAME_CHARS - HASH_DIGITS - 1].rstrip('-.')}-{digits}"
    return [plain, unique] if len(plain) <= MAX_NAME_CHARS else [unique]
