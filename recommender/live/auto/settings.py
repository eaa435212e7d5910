"""Settings of the VPAs that we create, read from annotations; those of the workload override those of its namespace.

They never let the updater evict a pod whose work no other pod continues: a job's, or a DaemonSet's.

The updater evicts pods that it cannot resize, except in mode `InPlace`, which few clusters have enabled. Elsewhere it
never evicts from a workload with fewer pods than `minReplicas`, but with `--in-place-skip-disruption-budget` it still
resizes these in place.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/updater/restriction`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from recommender.base.records import Limits
from recommender.cluster.errors import BadQuantity
from recommender.cluster.objects.quantities import millicores, parse_quantity, whole_bytes
from recommender.cluster.objects.resizability import GUARANTEED, POD_LEVEL, Resizability, resize_refusal
from recommender.cluster.objects.vpa import POD_ANNOTATIONS, REQUESTS_AND_LIMITS, annotation_problems
from recommender.cluster.vpas.auto_created import Settings
from recommender.cluster.workloads.kinds import COSTLY_KINDS

AUTO = "phasewise.dev/auto"
"""Label of a namespace or a workload: "true" lets VPAs be created. A workload's label overrides its namespace's."""

MODE = "phasewise.dev/mode"
MIN_CPU, MAX_CPU = "phasewise.dev/min-cpu", "phasewise.dev/max-cpu"
MIN_MEMORY, MAX_MEMORY = "phasewise.dev/min-memory", "phasewise.dev/max-memory"

MODES = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace")
"""Update modes of VPAs, without the deprecated `Auto`."""

NEVER_EVICTED = COSTLY_KINDS | {"DaemonSet"}
"""Kinds whose pods no other pod replaces."""

IN_PLACE, IN_PLACE_OR_RECREATE, RECREATE, INITIAL = "InPlace", "InPlaceOrRecreate", "Recreate", "Initial"

MAX_MIN_REPLICAS = 2**31 - 1
"""The largest valid `minReplicas`, which no workload reaches: none of its pods is ever evicted."""

IN_PLACE_REFUSED = (
    "this cluster's VPA refuses mode InPlace (its feature gate is off, or it is too old): the updater resizes these "
    "pods if it runs with --in-place-skip-disruption-budget, else it leaves them as they are; it never evicts them"
)
ONLY_NEW_PODS = "only new pods get the recommended requests (mode Initial)"


def settings_from(workload: Mapping[str, str], namespace: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """The settings that annotations of a workload and its namespace request, and what is wrong with these, in clauses.

    While there are problems the mode is `Off`: an invalid annotation may have been meant to restrict us.
    """
    annotations = {**namespace, **workload}
    bounds = {name for name in annotations if name.startswith(("phasewise.dev/min-", "phasewise.dev/max-"))}
    unknown = bounds - {MIN_CPU, MAX_CPU, MIN_MEMORY, MAX_MEMORY}  # a typo such as min-cpus would go unnoticed
    problems = [f"{name} is no annotation of ours" for name in sorted(unknown)]
    mode = annotations.get(MODE, Settings().mode)
    if mode not in MODES:
        problems.append(f"{MODE}: {_short(mode)} is none of {', '.join(MODES)}")
    cpu = _parse_bounds(annotations, (MIN_CPU, MAX_CPU), lambda x: millicores(x) / 1e3, "whole millicores", problems)
    memory = _parse_bounds(annotations, (MIN_MEMORY, MAX_MEMORY), whole_bytes, "whole bytes", problems)
    wrong = annotation_problems(annotations)
    passed_on = {name: annotations[name] for name in POD_ANNOTATIONS if annotations.get(name)} if not wrong else {}
    problems += wrong
    settings = Settings("Off" if problems else mode, (cpu[0], memory[0]), (cpu[1], memory[1]), annotations=passed_on)
    return settings, problems


def _parse_bounds(
    given: Mapping[str, str], names: Sequence[str], to_unit: Callable[[float], float], unit: str, problems: list[str]
) -> Limits:
    """(lowest, highest) of one resource; invalid ones are added to `problems` and left out."""
    found: list[float | None] = [None, None]
    for place, name in enumerate(names):
        if name not in given:
            continue
        try:
            value = parse_quantity(given[name].strip())
        except BadQuantity:
            problems.append(f"{name}: {_short(given[name])} is no quantity")
            continue
        if value > 0 and to_unit(value) == value:
            found[place] = value
        else:
            problems.append(f"{name}: {_short(given[name])} is not a positive number of {unit}")
    low, high = found
    if low is not None and high is not None and low > high:
        problems.append(" is more than ".join(f"{name}: {_short(given[name])}" for name in names))
        return None, None
    return low, high


def _short(text: str) -> str:
    return repr(text[:40])


def safe_settings(
    requested: Settings, kind: str, pods: Collection[Resizability], has_in_place: bool
) -> tuple[Settings, str]:
    """Restrict the settings so that no pod is evicted whose work would be lost, or refused; with a note for the user.

    `pods` are those of the templates and the live ones: admission may change some and not others.
    """
    settings = requested
    if any(pod.qos == GUARANTEED for pod in pods):
        settings = replace(settings, controlled_values=REQUESTS_AND_LIMITS)
    if settings.mode != "Off" and any(pod.pod_level for pod in pods):
        return replace(settings, mode="Off"), f"{POD_LEVEL}; the VPA only recommends (mode Off)"
    if settings.mode == RECREATE and kind in COSTLY_KINDS:
        return replace(settings, mode=INITIAL), f"a {kind}'s pods are not evicted for a resize: {ONLY_NEW_PODS}"
    if settings.mode not in (IN_PLACE, IN_PLACE_OR_RECREATE):
        return settings, ""
    if refusal := resize_refusal(pods):
        return replace(settings, mode=INITIAL), f"{refusal}; {ONLY_NEW_PODS}"
    if has_in_place:
        return replace(settings, mode=IN_PLACE, min_replicas=1), ""
    if kind in NEVER_EVICTED or settings.mode == IN_PLACE:
        return replace(settings, mode=IN_PLACE_OR_RECREATE, min_replicas=MAX_MIN_REPLICAS), IN_PLACE_REFUSED
    return settings, ""
