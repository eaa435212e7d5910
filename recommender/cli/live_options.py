"""Options of the live recommender, by settings object."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from recommender import __version__
from recommender.base.cycle import cycle_samples_on
from recommender.base.errors import Misuse
from recommender.base.records import ContainerKey, Limits, Sample
from recommender.base.units import BYTES_PER_MIB
from recommender.cli.common import DURATION, FILE, STEP, FiniteRange, Parsed, WholeRange, comma_list
from recommender.cli.connection import CONTEXT_HELP, KUBECONFIG_HELP
from recommender.cli.grouped import grouped, setting
from recommender.cluster.access.connection import Api, Observer, connect
from recommender.cluster.errors import BadQuantity
from recommender.cluster.lease import LeaderElection, LeaseTimes
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.usage.metrics_api import UsageReport, read_usage
from recommender.engine.journal import Journal
from recommender.engine.options import BandOptions, RailOptions
from recommender.engine.recording import Recorder
from recommender.kernels.histogram import BUMP_UP_RATIO, MIN_BUMP_UP_BYTES
from recommender.live.outside.cluster_view import Usage
from recommender.live.past import PriorHistory
from recommender.live.service import Timing
from recommender.live.view.scope import Scope, Shard, parse_shard
from recommender.policies.constraints import SharedLimits
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_past import PrometheusPast
from recommender.sources.prometheus_queries import UsageSettings
from recommender.sources.prometheus_usage import UsageQuery

ROUND_RETRIES, ROUND_TIMEOUT_S = 2, 15.0
"""For queries in a round: the next round asks again, and VPAs must not wait."""

START_RETRIES = 7
"""At the start: more than half a minute in all, for a Prometheus that starts at the same time."""

log = logging.getLogger(__name__)

_scope, _round, _source = grouped("Which VPAs"), setting("Rounds and forecasts"), setting("Cluster and model")


SCOPE_OPTIONS = (
    _scope("--name --recommender-name name", str, "Recommender name in the spec of our VPAs.", default="phasewise"),
    _scope("--only-namespace --vpa-object-namespace only_namespace", str, "Watch only this namespace.  [default: all]"),
    _scope(
        "--ignore-namespace --ignored-vpa-object-namespaces ignored",
        str,
        "Ignore the VPAs of this namespace, or comma-separated ones. Repeatable.",
        multiple=True,
    ),
)

AUTO_OPTION = _scope(
    "--auto/--no-auto", bool, "Create VPAs for jobs and workloads labelled phasewise.dev/auto=true.", default=True
)


def make_scope(name: str, only_namespace: str | None, ignored: tuple[str, ...]) -> Scope:
    if only_namespace and ignored:
        raise Misuse("--only-namespace and --ignore-namespace exclude each other. Write one of them.")
    return Scope(name, only_namespace or None, frozenset(comma_list(",".join(ignored))))


@dataclass(frozen=True, slots=True)
class Rounds:
    """Timing of rounds and forecasts, and what is published."""

    interval_s: float = _round("--interval --recommender-interval", DURATION, "Time between rounds.", default="15s")
    step_s: float = _round("--step", DURATION, "Sampling interval, not below that of the source.", default="15s")
    cycle_s: float = _round("--cycle", DURATION, "Time that a forecast covers.", default="10m")
    lead_time_s: float | None = _round(
        "--lead-time",
        DURATION,
        "How long before a phase to publish its target.",
        show_default="measured from past resizes",
    )
    class_ttl_s: float = _round(
        "--profile-ttl",
        DURATION,
        "Forget what was learned of a workload class after this long without a run or a VPA that waits for one.",
        default="30d",
    )
    publish: str = _round(
        "--publish",
        click.Choice(["vpa", "observe"]),
        "`observe` computes everything, but writes only PhaseProfiles.",
        default="vpa",
    )
    resizes_waiting: bool = _round(
        "--resize-waiting",
        bool,
        "Resize pods without a node to the recommendation, but not above what their owner declares; needs the right to "
        "patch pods/resize.",
    )
    workers: int = _round("--update-worker-count", WholeRange(1), "Statuses written in parallel.", default=10)

    def __post_init__(self) -> None:
        if self.cycle_s < self.step_s:
            problem = f"--cycle {self.cycle_s:g}s is shorter than --step {self.step_s:g}s"
            raise Misuse(f"{problem}. A forecast covers several samples.")
        if self.observe_only and self.resizes_waiting:
            raise Misuse("--resize-waiting changes pods, and --publish observe changes nothing. Write one of them.")

    @property
    def cycle_samples(self) -> int:
        return cycle_samples_on(self.step_s, self.cycle_s)

    @property
    def observe_only(self) -> bool:
        return self.publish == "observe"


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Address and rate limits of the API server."""

    kubeconfig: Path | None = _source("--kubeconfig", FILE, KUBECONFIG_HELP)
    context: str | None = _source("--context", str, CONTEXT_HELP)
    qps: float = _source("--kube-api-qps", FiniteRange(1), "Requests per second to the API server.", default=50.0)
    burst: float = _source("--kube-api-burst", FiniteRange(1), "Burst of such requests.", default=100.0)

    def connect(self, observe: Observer) -> Api:
        agent = f"phasewise-recommender/{__version__}"
        return connect(
            self.kubeconfig, self.context, qps=self.qps, burst=int(self.burst), user_agent=agent, observe=observe
        )


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """Address of Prometheus, if any, and how much history to load."""

    url: str | None = _source("--prometheus", str, "Take usage from this Prometheus.  [default: metrics.k8s.io]")
    history_s: float = _source(
        "--history --history-length",
        STEP,
        "History to load from Prometheus at the start; `none`: use checkpoints only.",
        default="8d",
        metavar="DURATION|none",
    )
    resolution_s: float = _source("--history-resolution", DURATION, "Resolution of that history.", default="1h")

    def sources(
        self, api: Api, only_namespace: str | None, access: Access, settings: UsageSettings, step_s: float
    ) -> tuple[Usage, PriorHistory | None, threading.Event]:
        """The source of usage, the loader of history if there is one, and the event that stops its retries."""
        stopped = threading.Event()
        if not self.url:
            return lambda _: read_usage(api, only_namespace), None, stopped
        if only_namespace and not settings.namespaces:
            settings = replace(settings, namespaces=(only_namespace,))
        client = partial(PrometheusClient, self.url, access, warn=partial(log.warning, "Prometheus warns: %s"))
        prior = None
        if self.history_s:
            past = PrometheusPast(client(retries=START_RETRIES, sleep=stopped.wait), settings)
            clocks = {"clock": time.time, "stopwatch": time.monotonic}
            prior = PriorHistory(past, self.history_s, self.resolution_s, step_s, **clocks, stopped=stopped.is_set)
        query = UsageQuery(client(timeout_s=ROUND_TIMEOUT_S, retries=ROUND_RETRIES), settings)
        return prometheus_usage(query, prior), prior, stopped


def prometheus_usage(query: UsageQuery, prior: PriorHistory | None) -> Usage:
    """The latest sample of each container; at the first call also the samples of the history."""

    def samples(now_s: float) -> Iterable[tuple[ContainerKey, Sample]]:
        if prior is not None:
            yield from prior.samples()
        yield from query.current_usage(now_s).items()

    return lambda now_s: UsageReport(samples(now_s))


@dataclass(frozen=True, slots=True)
class Recording:
    """Where rounds are recorded, if at all."""

    file: Path | None = _round(
        "--record",
        FILE,
        "Append inputs and targets of each round to this file, for `phasewise replay` and `explain --record`.",
    )
    file_size_mib: float = _round(
        "--record-size",
        FiniteRange(0, min_open=True),
        "Size in MiB at which the next file of the record begins: FILE.1, FILE.2, ...",
        default=256.0,
        metavar="MIB",
    )
    max_files: int = _round(
        "--record-files",
        WholeRange(1),
        "Maximum number of these files; when all are full, recording stops and each round logs it.",
        default=8,
    )

    def recorder(self) -> Recorder | None:
        if self.file is None:
            return None
        return Recorder(Journal(self.file, round(self.file_size_mib * BYTES_PER_MIB), self.max_files))


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
        "Accepted share of samples with use above request x 1.05: more of them raise the price of the next, fewer "
        "lower it.",
        default=_RAIL.target_violation[0],
    ),
    _rail(
        "--target-kills",
        FiniteRange(0, 0.5),
        "Accepted share of OOM-killed runs, by earlier runs of the class and the spread of other classes. A tenth of "
        "it for pods that request devices such as GPUs or cannot resume.",
    ),
    _rail(
        "--resizes-per-hour",
        WholeRange(0),
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
    _limit("--round-cpu-millicores", WholeRange(1), "Round CPU up to a multiple of this."),
    _limit("--round-memory-bytes", WholeRange(1), "Round memory up to a multiple of this."),
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
