"""A pod that is bound is what it was while it waited, and a node: mostly it need not be read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from sys import intern
from typing import Any, NamedTuple

import orjson

from extender.pods.pod import Pod

Json = Mapping[str, Any]

MOST_HELD = 4096
"""Waiting pods remembered; the others are read again when they are bound."""

OF_METADATA = ("labels", "annotations", "ownerReferences", "generateName")
"""What a pod is read from beside its names and its spec."""


class _Held(NamedTuple):
    """A waiting pod, the state of the controllers it was read by, and the digest of all that binding leaves alone."""

    pod: Pod
    controllers: int
    digest: bytes


class Rereading:
    """Reads pods as `read` does, for one thread.

    Parameters
    ----------
    read
        Makes a pod of its JSON.
    version_of
        Namespace -> another number after every change of the controllers there.
    """

    def __init__(self, read: Callable[[Json], Pod], version_of: Callable[[str], int]) -> None:
        self._read, self._version_of = read, version_of
        self._held: OrderedDict[str, _Held] = OrderedDict()

    def __call__(self, raw: Json) -> Pod:
        """The pod; raises what `read` raises."""
        held = self._held.pop(_text(raw, "metadata", "uid"), None)
        if held is not None and (node := _node_alone(raw)) and self._is_same(held, raw):
            return held.pod.bound_to(intern(node))
        pod = self._read(raw)
        if not pod.node and not pod.finished:
            self._held[pod.uid] = _Held(pod, self._version_of(pod.namespace), _digest(raw))
            if len(self._held) > MOST_HELD:
                self._held.popitem(last=False)
        return pod

    def _is_same(self, held: _Held, raw: Json) -> bool:
        return held.controllers == self._version_of(held.pod.namespace) and held.digest == _digest(raw)


def _text(raw: Json, part: str, name: str) -> str:
    """A field of `metadata` or `spec`; empty where there is none, which others may complain about."""
    fields = raw.get(part)
    told = fields.get(name) if isinstance(fields, dict) else None
    return told if isinstance(told, str) else ""


def _node_alone(raw: Json) -> str:
    """Where a pod is bound of which its kubelet has not said anything yet; else empty."""
    status = raw.get("status")
    if not isinstance(status, dict) or status.get("startTime") or status.get("containerStatuses"):
        return ""
    return _text(raw, "spec", "nodeName") if status.get("phase") == "Pending" else ""


def _digest(raw: Json) -> bytes:
    """Of a pod that could be read, or of one that may be the same."""
    metadata, spec = raw["metadata"], raw.get("spec") or {}
    of_spec = spec.copy()
    of_spec.pop("nodeName", None)
    kept = ([metadata.get(name) for name in OF_METADATA], of_spec)
    return blake2b(orjson.dumps(kept), digest_size=16).digest()
