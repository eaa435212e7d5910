"""The options that say where jobs tell how their training comes along, and how that is judged."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from recommender.cli.common import DURATION
from recommender.cli.grouped import grouped
from recommender.cli.prometheus import labels_of
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.progress.annotations import AnnotationProgress
from recommender.cluster.progress.logs import LogProgress
from recommender.cluster.progress.patterns import Search, search
from recommender.errors import Misuse
from recommender.growth import GrowthOptions
from recommender.live.progress.progress import Progress, ProgressSource
from recommender.live.progress.push import PushedProgress
from recommender.readings import METRICS
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_progress import ProgressQuery, PrometheusProgress

LOG_QPS, LOG_BURST = 50.0, 100
"""For logs: statuses must not wait behind them."""

READ_EVERY = 0.4
"""Of an interval: what a log says is known before the interval is judged."""

QUERY_WITHIN_S = 5.0

_progress = grouped("Progress: how the training of each pod comes along", GrowthOptions())
_OURS = ("namespace", "pod"), "namespace or pod"

PROGRESS_OPTIONS = (
    _progress(
        "--progress-interval",
        "interval_s",
        type=DURATION,
        help="Each pod's growth is judged so often: how far its loss or score moved.",
    ),
    _progress(
        "--progress-alpha",
        "alpha",
        type=click.FloatRange(0, min_open=True),
        help="Above this growth a pod is Progressing; twice below and falling, it is Converged.",
    ),
    _progress(
        "--progress-normalise",
        "normalise",
        type=click.Choice(["first", "none"]),
        help="`first`: growth is a share of the first magnitude; `none`: metrics are shares already.",
    ),
    _progress("--progress-query", "query", help="PromQL with one series a pod: max by (namespace, pod) (loss)."),
    _progress(
        "--progress-metric",
        "metric",
        default="loss",
        type=click.Choice(METRICS),
        help="What that query is of.",
    ),
    _progress(
        "--progress-label",
        "labels",
        multiple=True,
        metavar="OURS=THEIRS",
        help="What its labels are called: pod=pod_name. Ours: namespace, pod. Repeatable.",
    ),
    _progress(
        "--progress-logs/--no-progress-logs",
        "logs",
        default=True,
        help="Read the logs of pods with the annotation phasewise.dev/progress-log.",
    ),
    _progress(
        "--progress-log-pattern",
        "pattern",
        show_default="loss=0.4 step=12, Epoch 3 - loss: 0.4, and the like",
        help="What to look for where that says `true`: a regular expression with groups named loss, score or "
        "accuracy, and step, epoch, stage, checkpoint.",
    ),
    _progress(
        "--progress-token-file",
        "token_file",
        type=click.Path(path_type=Path),
        help="Take POST /progress from whoever shows the token in this file.",
    ),
)


@dataclass(frozen=True, slots=True)
class ProgressSettings:
    """What these options say."""

    growth: GrowthOptions
    query: ProgressQuery | None
    logs: bool
    pattern: str | None
    token_file: Path | None


def make_progress(
    query: str | None, metric: str, labels: tuple[str, ...], pattern: str | None, logs: bool, token_file: Path | None,
    **growth: Any,
) -> ProgressSettings:  # fmt: skip
    if pattern is not None and (problem := search([Search(pattern, [""])])[0].problem):
        raise Misuse(f"--progress-log-pattern: {problem}. Write a regular expression such as 'loss=(?P<loss>\\S+)'.")
    labelled = labels_of("--progress-label", labels, *_OURS)
    asked = None if query is None else ProgressQuery(query, metric, labelled)
    return ProgressSettings(GrowthOptions(**growth), asked, logs, pattern, token_file)


def sources_of(
    settings: ProgressSettings, api: Api, prometheus: tuple[str | None, Access], leads: Callable[[], bool]
) -> tuple[Progress, PushedProgress | None]:
    """Where progress is taken from, and the inbox for what is pushed.

    Raises
    ------
    Misuse
        A query without a Prometheus, a token file that cannot be used.
    """
    sources: list[ProgressSource] = []
    pushed = PushedProgress(settings.token_file, leads) if settings.token_file is not None else None
    if pushed is not None:
        sources.append(pushed)
    sources.append(AnnotationProgress())
    if settings.logs:
        apart = api.with_rate_limit(TokenBucket(LOG_QPS, LOG_BURST))
        sources.append(LogProgress(apart, settings.pattern, READ_EVERY * settings.growth.interval_s, time.monotonic))
    if settings.query is not None:
        url, access = prometheus
        if not url:
            raise Misuse("--progress-query asks a Prometheus: say which by --prometheus.")
        client = PrometheusClient(url, access, timeout_s=QUERY_WITHIN_S, retries=0)
        sources.append(PrometheusProgress(client, settings.query))
    return Progress(sources, settings.growth), pushed
