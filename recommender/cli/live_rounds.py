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
from recommender.live.past import PriorHistory
from recommender.live.view.scope import Scope
from recommender.live.view.usage import Usage
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
    hidden = frozenset(part.strip() for text in ignored for part in text.split(",") if part.strip())
    return Scope(name, only_namespace or None, hidden)


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
        "Forget what was learned of a workload class after this long without a run.",
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
    workers: int = _round("--update-worker-count", click.IntRange(1), "Statuses written in parallel.", default=10)

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
        click.IntRange(1),
        "Maximum number of these files; when all are full, recording stops and each round logs it.",
        default=8,
    )

    def recorder(self) -> Recorder | None:
        if self.file is None:
            return None
        return Recorder(Journal(self.file, round(self.file_size_mib * BYTES_PER_MIB), self.max_files))
