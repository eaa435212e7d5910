"""Options of training progress: where jobs report it, and how it is classified."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from recommender.base.errors import Misuse
from recommender.cli.common import DURATION, FILE, FiniteRange
from recommender.cli.grouped import grouped, setting
from recommender.cli.prometheus import parse_labels
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.progress.patterns import search
from recommender.cluster.progress.sources import AnnotationProgress, LogProgress
from recommender.live.progress.progress import Progress, ProgressSource
from recommender.live.progress.push import PushedProgress
from recommender.progress.growth import GrowthOptions
from recommender.progress.readings import METRICS
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_progress import PrometheusProgress
from recommender.sources.prometheus_queries import Labels

LOG_QPS, LOG_BURST = 50.0, 100
"""Rate limit of reading logs, separate so that they do not delay statuses."""

LOG_READ_SHARE = 0.4
"""Time between two reads of a log, as a share of --progress-interval: reports arrive before they are needed."""

QUERY_TIMEOUT_S = 5.0

_GROUP = "Training progress of pods"
_growth, _progress = grouped(_GROUP, GrowthOptions()), setting(_GROUP)

GROWTH_OPTIONS = (
    _growth(
        "--progress-interval interval_s",
        DURATION,
        "Interval at which growth, the change of a pod's loss or score, is computed.",
    ),
    _growth(
        "--progress-alpha alpha",
        FiniteRange(0, min_open=True),
        "Above this growth a pod is Progressing. Each interval of lower and falling growth makes it Watching, then "
        "Converged.",
    ),
    _growth(
        "--progress-normalise normalise",
        click.Choice(["first", "none"]),
        "`first`: divide growth by the first magnitude of the metric; `none`: metrics are normalised already.",
    ),
)


@dataclass(frozen=True, slots=True)
class ProgressSettings:
    """Where jobs report their progress."""

    query: str | None = _progress(
        "--progress-query", str, "PromQL with one series per pod: max by (namespace, pod) (loss)."
    )
    metric: str = _progress(
        "--progress-metric", click.Choice(METRICS), "Metric that the query returns.", default="loss"
    )
    labels: tuple[str, ...] = _progress(
        "--progress-label",
        str,
        "Name of a label in the query's result: pod=pod_name. OURS: namespace, pod. Repeatable.",
        multiple=True,
        metavar="OURS=THEIRS",
    )
    logs: bool = _progress(
        "--progress-logs/--no-progress-logs",
        bool,
        "Read the logs of pods with the annotation phasewise.dev/progress-log.",
        default=True,
    )
    pattern: str | None = _progress(
        "--progress-log-pattern",
        str,
        "Pattern for pods whose annotation is `true`: a regular expression (RE2) with groups named loss, score or "
        "accuracy, and step, epoch, stage, checkpoint.",
        show_default="loss=0.4 step=12, Epoch 3 - loss: 0.4, and the like",
    )
    token_file: Path | None = _progress(
        "--progress-token-file", FILE, "Accept POST /progress with the bearer token in this file."
    )

    def __post_init__(self) -> None:
        try:
            search(self.pattern, ())
        except ValueError as error:
            example = "Write a regular expression such as 'loss=(?P<loss>\\S+)'."
            raise Misuse(f"--progress-log-pattern: {error}. {example}") from error
        if self.query is not None and not self.query.strip():
            raise Misuse("the query for progress is empty. Write PromQL such as training_loss.")
        self.prometheus_labels()

    def prometheus_labels(self) -> Labels:
        return parse_labels("--progress-label", self.labels, ("namespace", "pod"))


def make_sources(
    settings: ProgressSettings,
    growth: GrowthOptions,
    api: Api,
    prometheus: tuple[str | None, Access],
    leads: Callable[[], bool],
) -> tuple[Progress, PushedProgress | None]:
    """The sources of progress, and the receiver of pushed progress if there is one."""
    sources: list[ProgressSource] = []
    pushed = PushedProgress(settings.token_file, leads) if settings.token_file is not None else None
    if pushed is not None:
        sources.append(pushed)
    sources.append(AnnotationProgress())
    if settings.logs:
        log_api = api.with_rate_limit(TokenBucket(LOG_QPS, LOG_BURST))
        read_every_s = LOG_READ_SHARE * growth.interval_s
        sources.append(LogProgress(log_api, settings.pattern, read_every_s, time.monotonic))
    if settings.query is not None:
        url, access = prometheus
        if not url:
            raise Misuse("--progress-query needs a Prometheus: add --prometheus URL.")
        client = PrometheusClient(url, access, timeout_s=QUERY_TIMEOUT_S, retries=0)
        sources.append(PrometheusProgress(client, settings.query, settings.metric, settings.prometheus_labels()))
    return Progress(sources, growth), pushed
