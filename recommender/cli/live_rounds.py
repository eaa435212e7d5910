"""The options of the live recommender that say whose pods, how often, how far ahead, and what is asked for it."""

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
from recommender.cli.common import DURATION, STEP
from recommender.cli.grouped import grouped
from recommender.cluster.access.connection import Api, Observer, connect
from recommender.cluster.usage.metrics_api import ContainerKey
from recommender.engine.journal import Journal
from recommender.engine.recording import Recorder
from recommender.errors import Misuse
from recommender.live.past import PriorHistory
from recommender.live.view.scope import Scope
from recommender.live.view.usage import Usage, UsageReport, metrics_api_usage
from recommender.records import Sample
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_past import PrometheusPast
from recommender.sources.prometheus_queries import UsageSettings
from recommender.sources.prometheus_usage import UsageQuery
from recommender.units import BYTES_PER_MIB

ROUND_RETRIES, ROUND_TIMEOUT_S = 2, 15.0
"""In a round: the next one asks again anyway, and the VPAs do not wait for it."""

START_RETRIES = 7
"""At the start: waits of half a minute and more in all, until a Prometheus that starts at the same time answers."""

log = logging.getLogger(__name__)

_whose, _how, _source = (grouped(group) for group in ("Which VPAs", "Rounds and forecasts", "Cluster and model"))


WHOSE_OPTIONS = (
    _whose("--name", "--recommender-name", "name", default="phasewise", help="VPAs that say this name are ours."),
    _whose(
        "--only-namespace", "--vpa-object-namespace", "only_namespace", help="The only one to look at.  [default: all]"
    ),
    _whose(
        "--ignore-namespace",
        "--ignored-vpa-object-namespaces",
        "ignored",
        multiple=True,
        help="Leave the VPAs of this one (or of a comma list) alone. Repeatable.",
    ),
)

AUTO_OPTION = _whose(
    "--auto/--no-auto", default=True, help="Make VPAs for jobs and workloads labelled phasewise.dev/auto=true."
)


def make_scope(name: str, only_namespace: str | None, ignored: tuple[str, ...]) -> Scope:
    if only_namespace and ignored:
        raise Misuse("--only-namespace and --ignore-namespace exclude each other. Write one of them.")
    hidden = frozenset(part.strip() for text in ignored for part in text.split(",") if part.strip())
    return Scope(name, only_namespace or None, hidden)


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often, on which grid, how far ahead, and what comes of it."""

    interval_s: float
    step_s: float
    cycle_s: float
    lead_time_s: float | None
    class_ttl_s: float
    publish: str
    resizes_waiting: bool
    workers: int

    def __post_init__(self) -> None:
        if self.cycle_s < self.step_s:
            given = f"--cycle {self.cycle_s:g}s is shorter than --step {self.step_s:g}s"
            raise Misuse(f"{given}. A forecast holds for several samples.")
        if self.observe_only and self.resizes_waiting:
            raise Misuse("--resize-waiting changes pods, and --publish observe changes nothing. Write one of them.")

    @property
    def cycle_samples(self) -> int:
        return round(self.cycle_s / self.step_s)

    @property
    def observe_only(self) -> bool:
        return self.publish == "observe"


ROUND_OPTIONS = (
    _how(
        "--interval", "--recommender-interval", "interval_s", type=DURATION, default="15s", help="Time between rounds."
    ),
    _how("--step", "step_s", type=DURATION, default="15s", help="Grid of samples; no finer than the source."),
    _how("--cycle", "cycle_s", type=DURATION, default="10m", help="How long a forecast holds."),
    _how(
        "--lead-time",
        "lead_time_s",
        type=DURATION,
        show_default="measured from past resizes",
        help="How long before a phase its target is published.",
    ),
    _how(
        "--profile-ttl",
        "class_ttl_s",
        type=DURATION,
        default="30d",
        help="What was learned of a workload class is forgotten when nothing of it ran for so long.",
    ),
    _how(
        "--publish",
        type=click.Choice(["vpa", "observe"]),
        default="vpa",
        help="`observe` computes and shows everything, and writes PhaseProfiles only.",
    ),
    _how(
        "--resize-waiting",
        "resizes_waiting",
        is_flag=True,
        help="Give pods that have no node yet what is recommended where that is less than they ask for; needs the "
        "right to patch pods/resize.",
    ),
    _how(
        "--update-worker-count",
        "workers",
        default=10,
        type=click.IntRange(1),
        help="So many statuses are written at a time.",
    ),
)


@dataclass(frozen=True, slots=True)
class Reached:
    """Where the API server is, and how fast it may be asked."""

    kubeconfig: Path | None
    context: str | None
    qps: float
    burst: int

    def connect(self, observe: Observer) -> Api:
        agent = f"phasewise-recommender/{__version__}"
        return connect(self.kubeconfig, self.context, qps=self.qps, burst=self.burst, user_agent=agent, observe=observe)


SERVER_OPTIONS = (
    _source("--kubeconfig", type=click.Path(path_type=Path), help="[default: the pod's own account]"),
    _source("--context", help="Context of the kubeconfig.  [default: its current one]"),
    _source(
        "--kube-api-qps", "qps", default=50.0, type=click.FloatRange(1), help="Requests to the API server a second."
    ),
    _source("--kube-api-burst", "burst", default=100, type=click.IntRange(1), help="Requests at once after a pause."),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """The Prometheus that is asked for use and for the past, if one is."""

    url: str | None
    history_s: float
    resolution_s: float

    def sources(
        self, server: Api, only_namespace: str | None, access: Access, settings: UsageSettings, step_s: float
    ) -> tuple[Usage, PriorHistory | None, threading.Event]:
        """Where use comes from, what loads the past if that is wanted, and what ends the wait for either."""
        ended = threading.Event()
        if not self.url:
            return metrics_api_usage(server, only_namespace), None, ended
        if only_namespace and not settings.namespaces:
            settings = replace(settings, namespaces=(only_namespace,))
        client = partial(PrometheusClient, self.url, access, warn=_warn)
        prior = None
        if self.history_s:
            past = PrometheusPast(client(retries=START_RETRIES, sleep=ended.wait), settings)
            clocks = {"clock": time.time, "stopwatch": time.monotonic}
            prior = PriorHistory(past, self.history_s, self.resolution_s, step_s, **clocks, stopped=ended.is_set)
        query = UsageQuery(client(timeout_s=ROUND_TIMEOUT_S, retries=ROUND_RETRIES), settings)
        return prometheus_usage(query, prior), prior, ended


def prometheus_usage(query: UsageQuery, prior: PriorHistory | None) -> Usage:
    """The latest sample of every container; the first time, those before the start too."""

    def samples(now_s: float) -> Iterable[tuple[ContainerKey, Sample]]:
        if prior is not None:
            yield from prior.samples()
        for place, sample in query.current_usage(now_s).items():
            yield ContainerKey(*place), sample

    return lambda now_s: UsageReport(samples(now_s))


def _warn(told: str) -> None:
    log.warning("Prometheus warns: %s", told)


PROMETHEUS_OPTIONS = (
    _source("--prometheus", "url", help="Take usage from this Prometheus.  [default: metrics.k8s.io]"),
    _source(
        "--history",
        "--history-length",
        "history_s",
        type=STEP,
        default="8d",
        metavar="DURATION|none",
        help="So much of the past is asked of the Prometheus at the start; without it, checkpoints are what is known.",
    ),
    _source(
        "--history-resolution",
        "resolution_s",
        type=DURATION,
        default="1h",
        help="What one value of that past stands for.",
    ),
)


@dataclass(frozen=True, slots=True)
class Recording:
    """Where rounds are recorded, if anywhere."""

    file: Path | None
    piece_mib: float
    most_pieces: int

    def recorder(self) -> Recorder | None:
        if self.file is None:
            return None
        return Recorder(Journal(self.file, round(self.piece_mib * BYTES_PER_MIB), self.most_pieces))


RECORD_OPTIONS = (
    _how(
        "--record",
        "file",
        type=click.Path(path_type=Path),
        help="Write down what each round sees and says, for `phasewise replay` and `explain --at`; added to what the "
        "file holds.",
    ),
    _how(
        "--record-size",
        "piece_mib",
        default=256.0,
        type=click.FloatRange(0, min_open=True),
        metavar="MIB",
        help="A file of the record that has grown to so many MiB is followed by the next one: FILE.1, FILE.2, ...",
    ),
    _how(
        "--record-files",
        "most_pieces",
        default=8,
        type=click.IntRange(1),
        help="So many of them at most; when all are full the record ends, and that is said at each round.",
    ),
)
