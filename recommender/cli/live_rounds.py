"""Options of the live recommender: scope, rounds and forecasts, API server, Prometheus, and the record."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from recommender import __version__
from recommender.cli.common import DURATION, FILE, STEP, FiniteRange
from recommender.cli.connection import CONTEXT_HELP, KUBECONFIG_HELP
from recommender.cli.grouped import grouped, setting
from recommender.cluster.access.connection import Api, Observer, connect
from recommender.cluster.usage.metrics_api import ContainerKey, UsageReport, read_usage
from recommender.engine.journal import Journal
from recommender.engine.recording import Recorder
from recommender.errors import Misuse
from recommender.judging import cycle_samples_on
from recommender.live.outside.cluster_view import Usage
from recommender.live.past import PriorHistory
from recommender.live.view.scope import Scope
from recommender.records import Sample
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_past import PrometheusPast
from recommender.sources.prometheus_queries import UsageSettings
from recommender.sources.prometheus_usage import UsageQuery
from recommender.units import BYTES_PER_MIB

ROUND_RETRIES, ROUND_TIMEOUT_S = 2, 15.0
"""For queries in a round: the next round asks again, and VPAs must not wait."""

START_RETRIES = 7
"""At the start: more than half a minute in all, for a Prometheus that starts at the same time."""

log = logging.getLogger(__name__)

_scope, _round, _source = grouped("Which VPAs"), setting("Rounds and forecasts"), setting("Cluster and model")


SCOPE_OPTIONS = (
    _scope(
        "--name", "--recommender-name", "name", default="phasewise", help="Recommender name in the spec of our VPAs."
    ),
    _scope(
        "--only-namespace",
        "--vpa-object-namespace",
        "only_namespace",
        help="Watch only this namespace.  [default: all]",
    ),
    _scope(
        "--ignore-namespace",
        "--ignored-vpa-object-namespaces",
        "ignored",
        multiple=True,
        help="Ignore the VPAs of this namespace, or comma-separated ones. Repeatable.",
    ),
)

AUTO_OPTION = _scope(
    "--auto/--no-auto", default=True, help="Create VPAs for jobs and workloads labelled phasewise.dev/auto=true."
)


def make_scope(name: str, only_namespace: str | None, ignored: tuple[str, ...]) -> Scope:
    if only_namespace and ignored:
        raise Misuse("--only-namespace and --ignore-namespace exclude each other. Write one of them.")
    hidden = frozenset(part.strip() for text in ignored for part in text.split(",") if part.strip())
    return Scope(name, only_namespace or None, hidden)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Timing of rounds and forecasts, and what is published."""

    interval_s: float = _round(
        "--interval", "--recommender-interval", type=DURATION, default="15s", help="Time between rounds."
    )
    step_s: float = _round(
        "--step", type=DURATION, default="15s", help="Sampling interval, not below that of the source."
    )
    cycle_s: float = _round("--cycle", type=DURATION, default="10m", help="Time that a forecast covers.")
    lead_time_s: float | None = _round(
        "--lead-time",
        type=DURATION,
        show_default="measured from past resizes",
        help="How long before a phase to publish its target.",
    )
    class_ttl_s: float = _round(
        "--profile-ttl",
        type=DURATION,
        default="30d",
        help="Forget what was learned of a workload class after this long without a run.",
    )
    publish: str = _round(
        "--publish",
        type=click.Choice(["vpa", "observe"]),
        default="vpa",
        help="`observe` computes everything, but writes only PhaseProfiles.",
    )
    resizes_waiting: bool = _round(
        "--resize-waiting",
        is_flag=True,
        help="Resize pods without a node to the recommendation, but not above what their owner declares; needs the "
        "right to patch pods/resize.",
    )
    workers: int = _round(
        "--update-worker-count", default=10, type=click.IntRange(1), help="Statuses written in parallel."
    )

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

    kubeconfig: Path | None = _source("--kubeconfig", type=FILE, help=KUBECONFIG_HELP)
    context: str | None = _source("--context", help=CONTEXT_HELP)
    qps: float = _source(
        "--kube-api-qps", default=50.0, type=FiniteRange(1), help="Requests per second to the API server."
    )
    burst: float = _source("--kube-api-burst", default=100.0, type=FiniteRange(1), help="Burst of such requests.")

    def connect(self, observe: Observer) -> Api:
        agent = f"phasewise-recommender/{__version__}"
        return connect(
            self.kubeconfig, self.context, qps=self.qps, burst=int(self.burst), user_agent=agent, observe=observe
        )


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """Address of Prometheus, if any, and how much history to load."""

    url: str | None = _source("--prometheus", help="Take usage from this Prometheus.  [default: metrics.k8s.io]")
    history_s: float = _source(
        "--history",
        "--history-length",
        type=STEP,
        default="8d",
        metavar="DURATION|none",
        help="History to load from Prometheus at the start; `none`: use checkpoints only.",
    )
    resolution_s: float = _source(
        "--history-resolution", type=DURATION, default="1h", help="Resolution of that history."
    )

    def sources(
        self, api: Api, only_namespace: str | None, access: Access, settings: UsageSettings, step_s: float
    ) -> tuple[Usage, PriorHistory | None, threading.Event]:
        """The source of usage, the loader of history if there is one, and the event that stops its retries."""
        stopped = threading.Event()
        if not self.url:
            return lambda _: read_usage(api, only_namespace), None, stopped
        if only_namespace and not settings.namespaces:
            settings = replace(settings, namespaces=(only_namespace,))
        client = partial(PrometheusClient, self.url, access, warn=_warn)
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
        for place, sample in query.current_usage(now_s).items():
            yield ContainerKey(*place), sample

    return lambda now_s: UsageReport(samples(now_s))


def _warn(text: str) -> None:
    log.warning("Prometheus warns: %s", text)


@dataclass(frozen=True, slots=True)
class Recording:
    """Where rounds are recorded, if at all."""

    file: Path | None = _round(
        "--record",
        type=FILE,
        help="Append inputs and targets of each round to this file, for `phasewise replay` and `explain --record`.",
    )
    file_size_mib: float = _round(
        "--record-size",
        default=256.0,
        type=FiniteRange(0, min_open=True),
        metavar="MIB",
        help="Size in MiB at which the next file of the record begins: FILE.1, FILE.2, ...",
    )
    max_files: int = _round(
        "--record-files",
        default=8,
        type=click.IntRange(1),
        help="Maximum number of these files; when all are full, recording stops and each round logs it.",
    )

    def recorder(self) -> Recorder | None:
        if self.file is None:
            return None
        return Recorder(Journal(self.file, round(self.file_size_mib * BYTES_PER_MIB), self.max_files))
