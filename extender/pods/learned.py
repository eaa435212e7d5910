"""What the PhaseProfiles say, of whole workload classes and of single pods."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from extender.pods.curves import Curve
from extender.pods.footprint import Footprint, footprint_of
from extender.pods.pod import SIZE_ANNOTATION, Pair, Pod, Profile
from extender.pods.sizes import Sizes

NO_CURVES: Mapping[str, Curve] = {}

ClassKey = tuple[str, str]
"""Namespace and workload class."""


MOST_FOOTPRINTS = 4096
"""Pods of one job are alike: one footprint serves them all, which saves both time and memory."""


class Learned:
    """The profiles as last seen, and what pods are expected to use. Not safe for several threads by itself."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._footprints: dict[Hashable, tuple[Mapping[str, Curve], Footprint]] = {}
        self._classes: dict[ClassKey, Profile] = {}
        self._of_pod: dict[str, Profile] = {}
        self._named_by: dict[tuple[str, str], frozenset[str]] = {}

    def put(self, profile: Profile) -> frozenset[str]:
        """A profile came or changed; the UIDs of the pods that it names now, or named before."""
        if profile.workload:
            self._classes[profile.namespace, profile.workload] = profile
        named_before = self._forget(profile)
        self._of_pod.update(dict.fromkeys(profile.categories, profile))
        self._named_by[profile.namespace, profile.name] = frozenset(profile.categories)
        return named_before.union(profile.categories)

    def drop(self, profile: Profile) -> frozenset[str]:
        """A profile is no more; the UIDs of the pods that it named."""
        if profile.workload:
            self._classes.pop((profile.namespace, profile.workload), None)
        return self._forget(profile)

    def _forget(self, profile: Profile) -> frozenset[str]:
        """Drop what a profile of this name said of single pods."""
        name = (profile.namespace, profile.name)
        uids = self._named_by.pop(name, frozenset())
        for uid in uids:
            held = self._of_pod.get(uid)
            if held is not None and (held.namespace, held.name) == name:
                del self._of_pod[uid]
        return uids

    def knows(self, pod: Pod) -> bool:
        """Whether there is a history of the pod or its class."""
        return (pod.namespace, pod.workload) in self._classes or pod.uid in self._of_pod

    def footprint(self, pod: Pod, largest: Pair) -> Footprint:
        """As `footprint_of`, by its own demand where it has one, else that of its class."""
        known, size = self._curves(pod), pod.words.get(SIZE_ANNOTATION, "")
        key = (id(known), pod.containers, pod.requests, pod.gpus, pod.gpu_type, size, largest)
        held = self._footprints.get(key)
        if held is not None and held[0] is known:
            return held[1]
        if len(self._footprints) >= MOST_FOOTPRINTS:
            self._footprints.clear()
        footprint = footprint_of(pod, known, self._sizes, largest)
        self._footprints[key] = (known, footprint)
        return footprint

    def _curves(self, pod: Pod) -> Mapping[str, Curve]:
        """Container -> demand; the same object until it changes."""
        own = self._of_pod.get(pod.uid)
        if own is not None and own.curves:
            return own.curves
        of_class = self._classes.get((pod.namespace, pod.workload))
        return of_class.curves if of_class is not None else NO_CURVES

    def category(self, pod: Pod) -> int | None:
        """The number of its category; None while nothing is told of it."""
        profile = self._of_pod.get(pod.uid)
        return profile.categories.get(pod.uid) if profile is not None else None
