"""The options of the live recommender that make up one settings object each: rails, band, limits, timing, replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from recommender.cli.common import DURATION, Parsed
from recommender.cli.grouped import grouped
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
from recommender.units import BYTES_PER_MIB, format_duration

SHARE = click.FloatRange(0.0, 1.0)

RAILS, BAND, LIMITS, OPERATION = (
    "Guard rails: what stands between a forecast and what is published",
    "Band: what change is worth a resize",
    "Limits: what may be published at all",
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
_lease = grouped("Several replicas", _LEASE)

RAIL_OPTIONS = (
    _rail(
        "--memory-margin",
        type=click.FloatRange(0),
        help="Memory is kept this share above the present working set.",
    ),
    _rail(
        "--shrink-after",
        "shrink_after_s",
        type=DURATION,
        help="Memory falls only when less was wanted for so long ...",
    ),
    _rail("--shrink-step", type=SHARE, help="... and by at most this share at a time."),
    _rail(
        "--target-violation",
        default=_RAIL.target_violation[0],
        type=click.FloatRange(0, 0.5),
        help="Share of samples that may use more than requested x 1.05, for each of CPU and memory; beyond it the "
        "margin is widened, beyond twice that the default recommender's values are published.",
    ),
    _rail(
        "--target-kills",
        type=click.FloatRange(0, 0.5),
        help="Share of runs that may be killed for memory: earlier runs of a class promise so much to the next. "
        "A tenth of it where a pod asks for devices such as GPUs, or says that it cannot resume.",
    ),
    _rail("--widen", type=click.FloatRange(1), help="By how much it is widened: a factor."),
    _rail(
        "--resizes-per-hour",
        type=click.IntRange(0),
        help="CPU of one container is changed at most so often, and memory too; what must rise always may.",
    ),
    _rail(
        "--wait-for-room",
        "wait_for_room_s",
        type=DURATION,
        help="What a full node has put off for so long is asked for no more: the updater would evict the pod.",
    ),
)

BAND_OPTIONS = (
    _band("--hold-cpu", type=SHARE, help="CPU falls when it differs by more than this."),
    _band("--hold-memory", type=SHARE, help="The same for memory."),
    _band("--rise-cpu", type=SHARE, help="CPU rises when it differs by more than this."),
    _band("--rise-memory", type=SHARE, help="The same for memory."),
    _band(
        "--band",
        "half_width",
        type=SHARE,
        help="How far lowerBound and upperBound lie from the target; the updater acts on what is outside.",
    ),
    _band(
        "--hold-guess",
        type=SHARE,
        help="Bounds of the histogram alone are written anew when one differs by more than this.",
    ),
)

LIMIT_OPTIONS = (
    _limit(
        "--container-recommendation-max-allowed-cpu",
        "most_cpu_cores",
        type=QUANTITY,
        help="Most CPU of a container whose VPA sets no maxAllowed.",
    ),
    _limit(
        "--container-recommendation-max-allowed-memory",
        "most_memory_bytes",
        type=QUANTITY,
        help="Most memory of such a container.",
    ),
    _limit(
        "--namespace-max-allowed",
        "of_namespaces",
        multiple=True,
        metavar="NAMESPACE=cpu:4,memory:8Gi",
        help="The same for the containers of one namespace; the smaller one counts. Repeatable.",
    ),
    _limit(
        "--pod-recommendation-min-cpu-millicores",
        "least_millicores",
        default=round(_LIMIT.pod_minimum[0] * 1000),
        type=click.FloatRange(0),
        help="Least CPU of a pod, shared among its containers.",
    ),
    _limit(
        "--pod-recommendation-min-memory-mb",
        "least_mib",
        default=round(_LIMIT.pod_minimum[1] / BYTES_PER_MIB),
        type=click.FloatRange(0),
        help="Least memory of a pod in MiB, shared the same way.",
    ),
    _limit("--round-cpu-millicores", default=1, type=click.IntRange(1), help="CPU is rounded up to multiples of this."),
    _limit("--round-memory-bytes", default=1, type=click.IntRange(1), help="Memory likewise."),
    _limit(
        "--cpu-integer-post-processor-enabled/--cpu-integer-post-processor-disabled",
        "integer_cpu",
        help="Whole cores for containers whose VPA has the annotation "
        "vpa-post-processor.kubernetes.io/<container>_integerCPU.",
    ),
    _limit(
        "--oom-bump-up-ratio",
        default=BUMP_UP_RATIO,
        type=click.FloatRange(1),
        help="A container killed for memory gets at least so many times what it had ...",
    ),
    _limit(
        "--oom-min-bump-up-bytes",
        default=MIN_BUMP_UP_BYTES,
        type=click.FloatRange(0),
        help="... and at least so many bytes more; its VPA may say otherwise.",
    ),
)

TIMING_OPTIONS = (
    _times(
        "--checkpoint-interval",
        "checkpoint_interval_s",
        type=DURATION,
        help="A VPA's history is written no more often than this, in the default recommender's format, and less often "
        "the more is known: each tenth of the time seen, at last every ten minutes.",
    ),
    _times(
        "--checkpoints-timeout",
        "checkpoints_within_s",
        type=DURATION,
        help="What a round spends on writing them; those that waited longest come first.",
    ),
    _times(
        "--checkpoints-gc-interval",
        "clear_away_s",
        type=DURATION,
        help="How often checkpoints of what is gone are cleared away.",
    ),
)


LEASE_OPTIONS = (
    _lease("--leader-elect", is_flag=True, help="Act only while holding a Lease: the other replicas stand by."),
    _lease(
        "--leader-elect-resource-namespace",
        "--lease-namespace",
        "lease_namespace",
        default="kube-system",
        help="Where that Lease lies.",
    ),
    _lease(
        "--leader-elect-resource-name",
        "lease_name",
        default="phasewise-recommender",
        help="Its name; a shard appends its own: phasewise-recommender-0-of-3.",
    ),
    _lease(
        "--leader-elect-lease-duration",
        "lease_duration_s",
        default=format_duration(_LEASE.duration_s),
        type=DURATION,
        help="A leader that is silent for so long has lost it.",
    ),
    _lease(
        "--leader-elect-renew-deadline",
        "renew_deadline_s",
        type=DURATION,
        help="A leader that cannot renew it for so long stops acting.",
    ),
    _lease(
        "--leader-elect-retry-period",
        "retry_s",
        type=DURATION,
        help="How often it is renewed, and asked for.",
    ),
    _lease(
        "--shard",
        type=Parsed("I/N", parse_shard),
        default="0/1",
        help="Of N groups of namespaces only the I-th, counted from 0; each of 0/3, 1/3, 2/3 elects its own leader.",
    ),
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """How several replicas share the work: whether and where they elect a leader, and which shard this one is of."""

    leader_elect: bool
    lease_namespace: str
    lease_name: str
    lease_duration_s: float
    renew_deadline_s: float
    retry_s: float
    shard: Shard

    def __post_init__(self) -> None:
        if not self.lease_duration_s > self.renew_deadline_s > 2 * self.retry_s:
            raise Misuse(
                f"the Lease holds {self.lease_duration_s:g}s, its holder gives up after {self.renew_deadline_s:g}s and "
                f"tries each {self.retry_s:g}s: the first must be above the second, that above twice the third, or two "
                "may lead at once."
            )

    def election(self, api: Api) -> LeaderElection | None:
        """Takes part in the election from now on; None where everybody acts."""
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
        raise Misuse(f"--namespace-max-allowed {text!r}: write NAMESPACE=cpu:4,memory:8Gi, or only one of the two.")
    return namespace.strip(), (found.get("cpu"), found.get("memory"))
