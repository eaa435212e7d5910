"""Options of the live recommender, by settings object: guard rails, band, limits, checkpoints, replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from recommender.cli.common import DURATION, FiniteRange, Parsed
from recommender.cli.grouped import grouped, setting
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadQuantity
from recommender.cluster.lease import LeaderElection, LeaseTimes
from recommender.cluster.objects.quantities import parse_quantity
from recommender.engine.kills import BUMP_UP_RATIO, MIN_BUMP_UP_BYTES
from recommender.engine.options import BandOptions, RailOptions
from recommender.errors import Misuse
from recommender.live.service import Timing
from recommender.live.view.scope import Shard, parse_shard
from recommender.policies.constraints import Limits, SharedLimits
from recommender.units import BYTES_PER_MIB

SHARE = FiniteRange(0.0, 1.0)

RAILS, BAND, LIMITS, OPERATION = (
    "Guard rails: corrections of the forecast before it is published",
    "Band: changes that are worth a resize",
    "Limits: bounds of what is published",
    "Operation",
)


def _parse_amount(text: str) -> float:
    """Cores or bytes as Kubernetes writes them: `250m`, `4Gi`."""
    try:
        parsed = parse_quantity(text)
    except BadQuantity as error:
        raise Misuse(f"{error}. Write 4, 250m or 8Gi") from error
    if parsed <= 0:
        raise Misuse(f"{text!r} is not above zero")
    return parsed


QUANTITY = Parsed("quantity", _parse_amount)

_RAIL, _LIMIT = RailOptions(), SharedLimits()
_rail, _band, _limit = grouped(RAILS, _RAIL), grouped(BAND, BandOptions()), grouped(LIMITS, _LIMIT)
_times = grouped(OPERATION, Timing())
_lease = setting("Several replicas", LeaseTimes())

RAIL_OPTIONS = (
    _rail("--memory-margin", FiniteRange(0), "Margin of memory above the present working set, as a share of it."),
    _rail("--shrink-after", DURATION, "Memory falls only after less was recommended for this long ..."),
    _rail("--shrink-step", SHARE, "... and by at most this share at a time."),
    _rail(
        "--target-violation",
        FiniteRange(0, 0.5),
        "Accepted share of samples with use above request x 1.05, for CPU and for memory. Above it, margins are "
        "widened; above twice this share, the default recommender's values are published.",
        default=_RAIL.target_violation[0],
    ),
    _rail(
        "--target-kills",
        FiniteRange(0, 0.5),
        "Accepted share of OOM-killed runs, estimated from earlier runs of the class. A tenth of it for pods that "
        "request devices such as GPUs or cannot resume.",
    ),
    _rail("--widen", FiniteRange(1), "Factor by which margins are widened."),
    _rail(
        "--resizes-per-hour",
        click.IntRange(0),
        "Maximum changes per hour, up to 64, of a container's CPU, and of its memory; raises count, but are always "
        "allowed.",
    ),
    _rail(
        "--wait-for-room",
        DURATION,
        "Withdraw a raise that a full node has deferred for this long, before the updater evicts the pod.",
    ),
)

BAND_OPTIONS = (
    _band("--hold-cpu", SHARE, "Lower CPU only by more than this share."),
    _band("--hold-memory", SHARE, "Lower memory only by more than this share."),
    _band("--rise-cpu", SHARE, "Raise CPU only by more than this share."),
    _band("--rise-memory", SHARE, "Raise memory only by more than this share."),
    _band(
        "--band half_width",
        SHARE,
        "Distance of lowerBound and upperBound from the target; the updater acts outside them.",
    ),
    _band(
        "--hold-guess",
        SHARE,
        "Update bounds that come from the histogram alone only if one changes by more than this share.",
    ),
)

LIMIT_OPTIONS = (
    _limit(
        "--container-recommendation-max-allowed-cpu most_cpu_cores",
        QUANTITY,
        "Maximum CPU of containers without maxAllowed in their VPA.",
    ),
    _limit(
        "--container-recommendation-max-allowed-memory most_memory_bytes",
        QUANTITY,
        "Maximum memory of containers without maxAllowed in their VPA.",
    ),
    _limit(
        "--namespace-max-allowed of_namespaces",
        str,
        "The same for one namespace; the smaller limit applies. Repeatable.",
        multiple=True,
        metavar="NAMESPACE=cpu:4,memory:8Gi",
    ),
    _limit(
        "--pod-recommendation-min-cpu-millicores least_millicores",
        FiniteRange(0),
        "Minimum CPU of a pod, divided among its containers.",
        default=round(_LIMIT.pod_minimum[0] * 1000),
    ),
    _limit(
        "--pod-recommendation-min-memory-mb least_mib",
        FiniteRange(0),
        "Minimum memory of a pod in MiB, divided among its containers.",
        default=round(_LIMIT.pod_minimum[1] / BYTES_PER_MIB),
    ),
    _limit("--round-cpu-millicores", click.IntRange(1), "Round CPU up to a multiple of this."),
    _limit("--round-memory-bytes", click.IntRange(1), "Round memory up to a multiple of this."),
    _limit(
        "--cpu-integer-post-processor-enabled/--cpu-integer-post-processor-disabled integer_cpu",
        bool,
        "Round to whole cores for containers with the VPA annotation "
        "vpa-post-processor.kubernetes.io/<container>_integerCPU.",
    ),
    _limit(
        "--oom-bump-up-ratio",
        FiniteRange(1),
        "After an OOM kill, memory is at least this multiple of what the container had ...",
        default=BUMP_UP_RATIO,
    ),
    _limit(
        "--oom-min-bump-up-bytes",
        FiniteRange(0),
        "... and at least this many bytes more; a VPA may override both.",
        default=MIN_BUMP_UP_BYTES,
    ),
)

TIMING_OPTIONS = (
    _times(
        "--checkpoint-interval",
        DURATION,
        "Minimum time between checkpoints of a VPA, in the default recommender's format. It grows to a tenth of the "
        "observed time, at most ten minutes.",
    ),
    _times(
        "--checkpoints-timeout checkpoints_within_s",
        DURATION,
        "Time limit per round for writing checkpoints, the oldest first.",
    ),
    _times(
        "--checkpoints-gc-interval clear_away_s",
        DURATION,
        "Interval for deleting checkpoints of VPAs and containers that no longer exist.",
    ),
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Leader election and sharding of several replicas."""

    leader_elect: bool = _lease("--leader-elect", bool, "Act only while holding a Lease; other replicas stand by.")
    lease_namespace: str = _lease(
        "--leader-elect-resource-namespace --lease-namespace", str, "Namespace of the Lease.", default="kube-system"
    )
    lease_name: str = _lease(
        "--leader-elect-resource-name",
        str,
        "Name of the Lease; a shard appends its number: phasewise-recommender-0-of-3.",
        default="phasewise-recommender",
    )
    duration_s: float = _lease(
        "--leader-elect-lease-duration",
        DURATION,
        "Other replicas may take the Lease if it was not renewed for this long.",
    )
    renew_deadline_s: float = _lease(
        "--leader-elect-renew-deadline", DURATION, "A leader that cannot renew the Lease for this long stops acting."
    )
    retry_s: float = _lease(
        "--leader-elect-retry-period", DURATION, "Interval between attempts to renew or acquire the Lease."
    )
    shard: Shard = _lease(
        "--shard",
        Parsed("I/N", parse_shard),
        "Handle only the I-th of N groups of namespaces, from 0; each shard elects its own leader.",
        default="0/1",
    )

    def __post_init__(self) -> None:
        if not self.duration_s > self.renew_deadline_s > 2 * self.retry_s:
            raise Misuse(
                f"the lease duration {self.duration_s:g}s must be above the renew deadline "
                f"{self.renew_deadline_s:g}s, and that above twice the retry period {self.retry_s:g}s; otherwise two "
                "replicas may lead at once."
            )

    def election(self, api: Api) -> LeaderElection | None:
        """Start to take part in the election; None without leader election."""
        if not self.leader_elect:
            return None
        times = LeaseTimes(self.duration_s, self.renew_deadline_s, self.retry_s)
        return LeaderElection.join(api, self.lease_namespace, self.shard.lease(self.lease_name), times).start()


def make_rails(target_violation: float, **given: Any) -> RailOptions:
    return RailOptions(target_violation=(target_violation, target_violation), **given)


def make_limits(
    most_cpu_cores: float | None,
    most_memory_bytes: float | None,
    of_namespaces: tuple[str, ...],
    least_millicores: float,
    least_mib: float,
    **given: Any,
) -> SharedLimits:
    return SharedLimits(
        pod_minimum=(least_millicores / 1000, least_mib * BYTES_PER_MIB),
        maximum=(most_cpu_cores, most_memory_bytes),
        namespace_maximum=dict(map(_namespace_maximum, of_namespaces)),
        **given,
    )


def _namespace_maximum(text: str) -> tuple[str, Limits]:
    namespace, _, amounts = text.partition("=")
    found: dict[str, float] = {}
    try:
        for part in amounts.split(","):
            resource, _, quantity = part.partition(":")
            found[resource.strip()] = parse_quantity(quantity.strip())
    except BadQuantity:
        found.clear()
    if not namespace or not found or not found.keys() <= {"cpu", "memory"}:
        raise Misuse(f"--namespace-max-allowed {text!r}: write NAMESPACE=cpu:4,memory:8Gi, or one of the two.")
    return namespace.strip(), (found.get("cpu"), found.get("memory"))
