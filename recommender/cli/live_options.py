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
from recommender.engine.options import BandOptions, RailOptions
from recommender.errors import Misuse
from recommender.kernels.histogram import BUMP_UP_RATIO, MIN_BUMP_UP_BYTES
from recommender.live.service import Timing
from recommender.live.view.scope import Shard, parse_shard
from recommender.policies.constraints import Limits, SharedLimits
from recommender.units import BYTES_PER_MIB, format_duration

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
_LEASE = LeaseTimes()
_lease = setting("Several replicas")

RAIL_OPTIONS = (
    _rail(
        "--memory-margin",
        type=FiniteRange(0),
        help="Margin of memory above the present working set, as a share of it.",
    ),
    _rail(
        "--shrink-after",
        "shrink_after_s",
        type=DURATION,
        help="Memory falls only after less was recommended for this long ...",
    ),
    _rail("--shrink-step", type=SHARE, help="... and by at most this share at a time."),
    _rail(
        "--target-violation",
        default=_RAIL.target_violation[0],
        type=FiniteRange(0, 0.5),
        help="Accepted share of samples with use above request x 1.05, for CPU and for memory. Above it, margins are "
        "widened; above twice this share, the default recommender's values are published.",
    ),
    _rail(
        "--target-kills",
        type=FiniteRange(0, 0.5),
        help="Accepted share of OOM-killed runs, estimated from earlier runs of the class. A tenth of it for pods that "
        "request devices such as GPUs or cannot resume.",
    ),
    _rail("--widen", type=FiniteRange(1), help="Factor by which margins are widened."),
    _rail(
        "--resizes-per-hour",
        type=click.IntRange(0),
        help="Maximum changes per hour, up to 64, of a container's CPU, and of its memory; raises count, but are "
        "always allowed.",
    ),
    _rail(
        "--wait-for-room",
        "wait_for_room_s",
        type=DURATION,
        help="Withdraw a raise that a full node has deferred for this long, before the updater evicts the pod.",
    ),
)

BAND_OPTIONS = (
    _band("--hold-cpu", type=SHARE, help="Lower CPU only by more than this share."),
    _band("--hold-memory", type=SHARE, help="Lower memory only by more than this share."),
    _band("--rise-cpu", type=SHARE, help="Raise CPU only by more than this share."),
    _band("--rise-memory", type=SHARE, help="Raise memory only by more than this share."),
    _band(
        "--band",
        "half_width",
        type=SHARE,
        help="Distance of lowerBound and upperBound from the target; the updater acts outside them.",
    ),
    _band(
        "--hold-guess",
        type=SHARE,
        help="Update bounds that come from the histogram alone only if one changes by more than this share.",
    ),
)

LIMIT_OPTIONS = (
    _limit(
        "--container-recommendation-max-allowed-cpu",
        "most_cpu_cores",
        type=QUANTITY,
        help="Maximum CPU of containers without maxAllowed in their VPA.",
    ),
    _limit(
        "--container-recommendation-max-allowed-memory",
        "most_memory_bytes",
        type=QUANTITY,
        help="Maximum memory of containers without maxAllowed in their VPA.",
    ),
    _limit(
        "--namespace-max-allowed",
        "of_namespaces",
        multiple=True,
        metavar="NAMESPACE=cpu:4,memory:8Gi",
        help="The same for one namespace; the smaller limit applies. Repeatable.",
    ),
    _limit(
        "--pod-recommendation-min-cpu-millicores",
        "least_millicores",
        default=round(_LIMIT.pod_minimum[0] * 1000),
        type=FiniteRange(0),
        help="Minimum CPU of a pod, divided among its containers.",
    ),
    _limit(
        "--pod-recommendation-min-memory-mb",
        "least_mib",
        default=round(_LIMIT.pod_minimum[1] / BYTES_PER_MIB),
        type=FiniteRange(0),
        help="Minimum memory of a pod in MiB, divided among its containers.",
    ),
    _limit("--round-cpu-millicores", default=1, type=click.IntRange(1), help="Round CPU up to a multiple of this."),
    _limit("--round-memory-bytes", default=1, type=click.IntRange(1), help="Round memory up to a multiple of this."),
    _limit(
        "--cpu-integer-post-processor-enabled/--cpu-integer-post-processor-disabled",
        "integer_cpu",
        help="Round to whole cores for containers with the VPA annotation "
        "vpa-post-processor.kubernetes.io/<container>_integerCPU.",
    ),
    _limit(
        "--oom-bump-up-ratio",
        default=BUMP_UP_RATIO,
        type=FiniteRange(1),
        help="After an OOM kill, memory is at least this multiple of what the container had ...",
    ),
    _limit(
        "--oom-min-bump-up-bytes",
        default=MIN_BUMP_UP_BYTES,
        type=FiniteRange(0),
        help="... and at least this many bytes more; a VPA may override both.",
    ),
)

TIMING_OPTIONS = (
    _times(
        "--checkpoint-interval",
        "checkpoint_interval_s",
        type=DURATION,
        help="Minimum time between checkpoints of a VPA, in the default recommender's format. It grows to a tenth of "
        "the observed time, at most ten minutes.",
    ),
    _times(
        "--checkpoints-timeout",
        "checkpoints_within_s",
        type=DURATION,
        help="Time limit per round for writing checkpoints, the oldest first.",
    ),
    _times(
        "--checkpoints-gc-interval",
        "clear_away_s",
        type=DURATION,
        help="Interval for deleting checkpoints of VPAs and containers that no longer exist.",
    ),
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Leader election and sharding of several replicas."""

    leader_elect: bool = _lease(
        "--leader-elect", is_flag=True, help="Act only while holding a Lease; other replicas stand by."
    )
    lease_namespace: str = _lease(
        "--leader-elect-resource-namespace",
        "--lease-namespace",
        default="kube-system",
        help="Namespace of the Lease.",
    )
    lease_name: str = _lease(
        "--leader-elect-resource-name",
        default="phasewise-recommender",
        help="Name of the Lease; a shard appends its number: phasewise-recommender-0-of-3.",
    )
    lease_duration_s: float = _lease(
        "--leader-elect-lease-duration",
        default=format_duration(_LEASE.duration_s),
        type=DURATION,
        help="Other replicas may take the Lease if it was not renewed for this long.",
    )
    renew_deadline_s: float = _lease(
        "--leader-elect-renew-deadline",
        default=format_duration(_LEASE.renew_deadline_s),
        type=DURATION,
        help="A leader that cannot renew the Lease for this long stops acting.",
    )
    retry_s: float = _lease(
        "--leader-elect-retry-period",
        default=format_duration(_LEASE.retry_s),
        type=DURATION,
        help="Interval between attempts to renew or acquire the Lease.",
    )
    shard: Shard = _lease(
        "--shard",
        type=Parsed("I/N", parse_shard),
        default="0/1",
        help="Handle only the I-th of N groups of namespaces, from 0; each shard elects its own leader.",
    )

    def __post_init__(self) -> None:
        if not self.lease_duration_s > self.renew_deadline_s > 2 * self.retry_s:
            raise Misuse(
                f"the lease duration {self.lease_duration_s:g}s must be above the renew deadline "
                f"{self.renew_deadline_s:g}s, and that above twice the retry period {self.retry_s:g}s; otherwise two "
                "replicas may lead at once."
            )

    def election(self, api: Api) -> LeaderElection | None:
        """Start to take part in the election; None without leader election."""
        if not self.leader_elect:
            return None
        times = LeaseTimes(self.lease_duration_s, self.renew_deadline_s, self.retry_s)
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
