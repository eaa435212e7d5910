"""What the PhaseProfiles say, of whole workload classes and of single pods; and what pods are seen to use."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Set

from extender.pods.footprint import FORECAST, HISTORY, UNSEEN, Footprint, Known, Sizes, Use, footprint_of
from extender.pods.pod import SIZE_ANNOTATION, Pair, Pod, Profile

NOTHING = Known({}, "")

ClassKey = tuple[str, str]
"""Namespace and workload class."""

PodName = tuple[str, str]
"""Namespace and name."""

PodKey = tuple[str, str]
"""Namespace and UID: a profile tells of pods of its own namespace alone."""

SAME_USE = 0.1
"""Use that has changed by less than this share, or by less than `SMALL` altogether, is what it was."""

SMALL: Pair = (0.01, 2.0**20)

MOST_FOOTPRINTS = 4096
"""Pods of one job are alike: one footprint serves them all, which saves both time and memory."""


class Learned:
    """The profiles as last seen, and what pods are expected to use. Not safe for several threads by itself."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._footprints: dict[Hashable, tuple[Known, Use, Footprint]] = {}
        self._classes: dict[ClassKey, Known] = {}
        self._of_pod: dict[PodKey, Profile] = {}
        self._known_of: dict[tuple[str, str], tuple[Known, Known]] = {}
        self._named_by: dict[tuple[str, str], frozenset[str]] = {}
        self._use: dict[PodName, Use] = {}

    def put(self, profile: Profile) -> frozenset[str]:
        """A profile came or changed; the UIDs of the pods that it names now, or named before."""
        if profile.workload:
            self._classes[profile.namespace, profile.workload] = Known(profile.curves, HISTORY)
        named_before = self._forget(profile)
        self._of_pod.update({(profile.namespace, uid): profile for uid in profile.categories})
        name = (profile.namespace, profile.name)
        self._known_of[name] = Known(profile.curves, HISTORY), Known(profile.forecasts, FORECAST)
        self._named_by[name] = frozenset(profile.categories)
        return named_before.union(profile.categories)

    def drop(self, profile: Profile) -> frozenset[str]:
        """A profile is no more; the UIDs of the pods that it named."""
        if profile.workload:
            self._classes.pop((profile.namespace, profile.workload), None)
        return self._forget(profile)

    def _forget(self, profile: Profile) -> frozenset[str]:
        """Drop what a profile of this name said of single pods."""
        name = (profile.namespace, profile.name)
        self._known_of.pop(name, None)
        uids = self._named_by.pop(name, frozenset())
        for uid in uids:
            held = self._of_pod.get((profile.namespace, uid))
            if held is not None and held.name == profile.name:
                del self._of_pod[profile.namespace, uid]
        return uids

    def put_use(self, use: Mapping[PodName, Use]) -> Set[PodName]:
        """What pods were seen to use; of which ones it has changed. Those that are not named are not known any more."""
        changed = {name for name in self._use.keys() - use.keys() if self._use[name]}
        for name, containers in use.items():
            if not _alike(self._use.get(name, UNSEEN), containers):
                changed.add(name)
        self._use = {name: use[name] if name in changed else self._use.get(name, UNSEEN) for name in use}
        return changed

    def silent(self, pod: Pod) -> bool:
        """Whether one of its containers neither was learned nor asks for something."""
        known = self._known(pod).curves
        return any(math.isnan(request) for c in pod.containers if c.name not in known for request in c.requests)

    def knows(self, pod: Pod) -> bool:
        """Whether there is a history of the pod or its class."""
        return (pod.namespace, pod.workload) in self._classes or (pod.namespace, pod.uid) in self._of_pod

    def footprint(self, pod: Pod, largest: Pair) -> Footprint:
        """As `footprint_of`, by its own demand where it has one, else that of its class, else what it needs next."""
        known, size = self._known(pod), pod.words.get(SIZE_ANNOTATION, "")
        use = self._use.get((pod.namespace, pod.name), UNSEEN) if pod.node else UNSEEN
        key = (id(known), id(use), pod.containers, pod.requests, pod.gpus, pod.gpu_type, size, largest)
        held = self._footprints.get(key)
        if held is not None and held[0] is known and held[1] is use:
            return held[2]
        if len(self._footprints) >= MOST_FOOTPRINTS:
            self._footprints.clear()
        footprint = footprint_of(pod, known, use, self._sizes, largest)
        self._footprints[key] = (known, use, footprint)
        return footprint

    def _known(self, pod: Pod) -> Known:
        """What is learned of it; the same object until it changes."""
        own = self._of_pod.get((pod.namespace, pod.uid))
        demand, forecast = NOTHING, NOTHING
        if own is not None:
            demand, forecast = self._known_of[own.namespace, own.name]
        of_class = self._classes.get((pod.namespace, pod.workload), NOTHING)
        return next((known for known in (demand, of_class, forecast) if known.curves), NOTHING)

    def category(self, pod: Pod) -> int | None:
        """The number of its category; None while nothing is told of it."""
        profile = self._of_pod.get((pod.namespace, pod.uid))
        return profile.categories.get(pod.uid) if profile is not None else None


def _alike(one: Use, other: Use) -> bool:
    """Whether containers use so nearly the same that nothing need be judged anew."""
    return one.keys() == other.keys() and all(
        math.isnan(before) == math.isnan(now) and not abs(now - before) > max(SMALL[each], SAME_USE * before)
        for name, used in one.items()
        for each, (before, now) in enumerate(zip(used, other[name], strict=True))
    )
