"""Usage for commands that replay it: files, or a Prometheus, from which it is fetched into a temporary file."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from recommender.base.errors import Misuse
from recommender.base.units import counted, format_duration
from recommender.cli.common import FILE, progress_bar, say
from recommender.cli.connection import CONTEXT_HELP, KUBECONFIG_HELP
from recommender.cli.finding import reached_prometheus
from recommender.cli.grouped import grouped
from recommender.cli.prometheus import ACCESS_OPTIONS, NAMESPACE_OPTION, SELECTOR_OPTION, SINCE, make_access, time_range
from recommender.cluster.workloads.workload_class import class_by_owners
from recommender.sources.export import export, plan_export
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_queries import UsageSettings

MOST_SAMPLES, FINEST_STEP_S = 5000, 15.0
"""A container has at most so many samples, so far apart or a multiple of it: a week has one in two minutes."""

_option = grouped()

FETCH_OPTIONS = (
    _option(
        "--prometheus url",
        str,
        "Fetch usage from this Prometheus instead of reading SOURCE.",
        envvar="PHASEWISE_PROMETHEUS_URL",
        show_envvar=True,
        metavar="URL",
    ),
    _option("--since", str, SINCE, default="7d"),
    NAMESPACE_OPTION,
    SELECTOR_OPTION,
    *ACCESS_OPTIONS,
)
FIND_OPTIONS = (_option("--kubeconfig", FILE, KUBECONFIG_HELP), _option("--context", str, CONTEXT_HELP))


@dataclass(frozen=True, slots=True)
class Fetch:
    """Which Prometheus, which time, and which containers."""

    url: str | None
    since: str
    settings: UsageSettings
    access: Access
    kubeconfig: Path | None = None
    context: str | None = None


def make_fetch(
    url: str | None,
    since: str,
    namespaces: tuple[str, ...],
    selector: str,
    kubeconfig: Path | None = None,
    context: str | None = None,
    **access: Any,
) -> Fetch:
    settings = UsageSettings(tuple(sorted(set(namespaces))), selector)
    return Fetch(url, since, settings, make_access(**access), kubeconfig, context)


@contextmanager
def usage_files(source: Sequence[Path], fetch: Fetch, *, finds: bool = False) -> Iterator[Sequence[Path]]:
    """The files to replay: SOURCE, or what is fetched for the time of the block.

    With `finds` and neither SOURCE nor --prometheus it is the cluster's own Prometheus.
    """
    given = click.get_current_context().get_parameter_source("fetch.url")
    if source and given is click.core.ParameterSource.COMMANDLINE:
        raise Misuse("SOURCE and --prometheus exclude each other. Give one of them.")
    if source or not (fetch.url or finds):
        yield source
        return
    with ExitStack() as stack:
        url = fetch.url
        if url is None:
            url, found = stack.enter_context(reached_prometheus(fetch.kubeconfig, fetch.context))
            others = f" (not {', '.join(found.others)}: name one by --prometheus URL)" if found.others else ""
            say(f"note: Prometheus is the Service {found.title}{others}")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phasewise-")))
        yield (_fetched(url, fetch, folder / "usage.parquet"),)


def _fetched(url: str, fetch: Fetch, file: Path) -> Path:
    settings = fetch.settings
    start_s, end_s = time_range(fetch.since, None, time.time())
    step_s = FINEST_STEP_S * max(1, math.ceil((end_s - start_s) / MOST_SAMPLES / FINEST_STEP_S))
    with PrometheusClient(url, fetch.access, warn=lambda text: say(f"note: Prometheus warns: {text}")) as client:
        plan = plan_export(client, settings, {}, start_s, end_s, int(step_s), note=lambda text: say(f"note: {text}"))
        with progress_bar() as progress:
            exported = export(client, settings, plan, file, progress, class_by_owners)
    span = format_duration(max(1, exported.last_s - exported.first_s))
    say(f"note: {counted(exported.containers, 'container')}, {span}, a sample every {format_duration(step_s)}")
    if not exported.has_requests:
        say(f"note: no requests: {settings.requests_metric} (kube-state-metrics) has none of these containers")
    return file
