"""How a VPA that we make is to be: read from annotations, the workload's before its namespace's.

It is never to be acted upon so that a pod is lost whose work nobody else goes on with: a job's, which would begin anew,
or a DaemonSet's, which is the only one on its node.

The VPA's updater evicts what it cannot resize, except in mode `InPlace`, which few clusters have switched on. Elsewhere
a group of pods that is smaller than `minReplicas` is never evicted from; with `--in-place-skip-disruption-budget` the
updater resizes its pods in place all the same.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/updater/restriction`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from recommender.cluster.errors import BadQuantity
from recommender.cluster.objects.quantities import millicores, parse_quantity, whole_bytes
from recommender.cluster.objects.resizability import GUARANTEED, Resizability, resize_refusal
from recommender.cluster.objects.vpa import REQUESTS_AND_LIMITS, SHARES, SHARING_POLICIES, Bound
from recommender.cluster.vpas.auto_created import Settings
from recommender.cluster.workloads.targets import JOBS

AUTO = "phasewise.dev/auto"
"""Label of a namespace or a workload: "true" lets VPAs be made. A workload's own label goes before its namespace's."""

MODE = "phasewise.dev/mode"
MIN_CPU, MAX_CPU = "phasewise.dev/min-cpu", "phasewise.dev/max-cpu"
MIN_MEMORY, MAX_MEMORY = "phasewise.dev/min-memory", "phasewise.dev/max-memory"

MODES = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace")
"""Update modes as VPAs have them; the deprecated `Auto` is left out."""

WORDS_OF_A_BOUND = 40

NEVER_EVICTED = JOBS | {"DaemonSet"}
"""Kinds whose pods nobody stands in for."""

IN_PLACE, OR_RECREATE, RECREATE, AT_CREATION = "InPlace", "InPlaceOrRecreate", "Recreate", "Initial"

MORE_THAN_ANY = 2**31 - 1
"""`minReplicas` that no group of pods reaches, the largest that fits: nothing of it is ever evicted."""

NO_IN_PLACE = (
    "this cluster's VPA refuses mode InPlace (its feature gate is off, or it is too old): the updater resizes these "
    "pods if it runs with --in-place-skip-disruption-budget, else it leaves them as they are; it never evicts them"
)
ONLY_NEW_PODS = "only pods that are made anew get what is recommended (mode Initial)"


@dataclass(frozen=True, slots=True)
class Wish:
    """What annotations ask for.

    Attributes
    ----------
    problems
        What is wrong with them, each in one clause. While there are any the mode is `Off`: what was not understood may
        have been meant to hold us back.
    """

    settings: Settings
    problems: tuple[str, ...] = ()


def read_wish(workload: Mapping[str, str], namespace: Mapping[str, str]) -> Wish:
    """The wish of a workload in a namespace, given the annotations of both; it never raises."""
    words = {**namespace, **workload}
    problems = [f"{name} is no annotation of ours" for name in sorted(words) if _looks_like_a_bound(name)]
    mode = words.get(MODE, Settings().mode)
    if mode not in MODES:
        problems.append(f"{MODE}: {_short(mode)} is none of {', '.join(MODES)}")
    cpu = _read_bounds(words, MIN_CPU, MAX_CPU, lambda cores: millicores(cores) / 1e3, "whole millicores", problems)
    memory = _read_bounds(words, MIN_MEMORY, MAX_MEMORY, whole_bytes, "whole bytes", problems)
    shared = words.get(SHARES, "")
    if shared not in ("", *SHARING_POLICIES):
        problems.append(f"{SHARES}: {_short(shared)} is none of {', '.join(SHARING_POLICIES)}")
        shared = ""
    settings = Settings("Off" if problems else mode, (cpu[0], memory[0]), (cpu[1], memory[1]), shares=shared)
    return Wish(settings, tuple(problems))


def _read_bounds(
    words: Mapping[str, str],
    least: str,
    most: str,
    whole: Callable[[float], float],
    grain: str,
    problems: list[str],
) -> Bound:
    """(lowest, highest) of one resource, without what is wrong with them."""
    low, high = (_read_bound(words, name, whole, grain, problems) for name in (least, most))
    if low is not None and high is not None and low > high:
        problems.append(f"{least}: {_short(words[least])} is more than {most}: {_short(words[most])}")
        return None, None
    return low, high


def _read_bound(
    words: Mapping[str, str], name: str, whole: Callable[[float], float], grain: str, problems: list[str]
) -> float | None:
    if name not in words:
        return None
    try:
        value = parse_quantity(words[name].strip())
    except BadQuantity:
        problems.append(f"{name}: {_short(words[name])} is no quantity")
        return None
    if value <= 0 or whole(value) != value:
        problems.append(f"{name}: {_short(words[name])} is not a positive number of {grain}")
        return None
    return value


def _looks_like_a_bound(name: str) -> bool:
    """`phasewise.dev/min-cpus`: a slip of the pen that would otherwise pass unseen."""
    known = (MIN_CPU, MAX_CPU, MIN_MEMORY, MAX_MEMORY)
    return name.startswith(("phasewise.dev/min-", "phasewise.dev/max-")) and name not in known


def _short(text: str) -> str:
    return repr(text[:WORDS_OF_A_BOUND])


def harmless(asked: Settings, kind: str, pods: Collection[Resizability], has_in_place: bool) -> tuple[Settings, str]:
    """What a VPA is to say, given what the annotations ask for; and what a person should know of that, in words.

    Parameters
    ----------
    kind
        Of the workload.
    pods
        What its templates and its live pods say of resizing. Both count: what admission made of one pod, it may not
        make of the next.
    has_in_place
        Whether the cluster has mode `InPlace`.
    """
    settings = (
        replace(asked, controlled_values=REQUESTS_AND_LIMITS) if any(pod.qos == GUARANTEED for pod in pods) else asked
    )
    if settings.mode == RECREATE and kind in JOBS:
        return replace(settings, mode=AT_CREATION), f"a {kind}'s pods are not evicted for a resize: {ONLY_NEW_PODS}"
    if settings.mode not in (IN_PLACE, OR_RECREATE):
        return settings, ""
    if refusal := resize_refusal(pods):
        return replace(settings, mode=AT_CREATION), f"{refusal}; {ONLY_NEW_PODS}"
    if has_in_place:
        return replace(settings, mode=IN_PLACE, min_replicas=1), ""
    if kind in NEVER_EVICTED or settings.mode == IN_PLACE:
        return replace(settings, mode=OR_RECREATE, min_replicas=MORE_THAN_ANY), NO_IN_PLACE
    return settings, ""
