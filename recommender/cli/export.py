"""`phasewise export`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from recommender.base.errors import Misuse, PhasewiseError
from recommender.base.units import counted, format_duration, format_time
from recommender.cli.common import DURATION, FILE, WholeRange, progress_bar, say
from recommender.cli.grouped import grouped, settings_of
from recommender.cli.prometheus import (
    ACCESS_OPTIONS,
    REQUESTS_OPTION,
    SINCE,
    UNTIL,
    USAGE_OPTIONS,
    make_access,
    make_usage,
    time_range,
)
from recommender.cluster.workloads.workload_class import class_by_owners
from recommender.sources.export import (
    ENDINGS,
    Exported,
    ExportPlan,
    discard,
    export,
    parts_folder,
    plan_export,
    unfinished_plan,
)
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import RETRIES, PrometheusClient
from recommender.sources.prometheus_queries import UsageSettings

_option = grouped()


@click.command("export")
@_option(
    "--prometheus url",
    str,
    "Base URL of Prometheus, including a path prefix before /api/v1: https://host/prometheus.",
    required=True,
    envvar="PHASEWISE_PROMETHEUS_URL",
    show_envvar=True,
    metavar="URL",
)
@_option("-o --output", FILE, "File to write; its suffix sets the format: .parquet, .csv or .csv.gz.", required=True)
@_option("--since", str, SINCE, default="7d", show_default=True)
@_option("--until", str, UNTIL, show_default="now")
@_option("--step step_s", DURATION, "Sampling interval in whole seconds.", default="15s", show_default=True)
@settings_of("settings", (*USAGE_OPTIONS, REQUESTS_OPTION), make_usage)
@settings_of("access", ACCESS_OPTIONS, make_access)
@_option("--timeout timeout_s", DURATION, "Timeout of a query.", default="2m", show_default=True)
@_option("--retries", WholeRange(0), "Retries of a failed query.", default=RETRIES, show_default=True)
@_option("--restart", bool, "Discard the parts of an interrupted export.")
def command(
    url: str,
    output: Path,
    since: str,
    until: str | None,
    step_s: float,
    settings: UsageSettings,
    access: Access,
    timeout_s: float,
    retries: int,
    restart: bool,
) -> None:
    """Export use and requests of containers from Prometheus to a file for the other commands.

    \b
      kubectl -n monitoring port-forward svc/prometheus 9090 &
      phasewise export --prometheus http://localhost:9090 --since 7d -o week.parquet
      phasewise dry-run week.parquet
    \b
      phasewise export --prometheus https://host/prom --user me --password-file pw --namespace ml -o ml.csv.gz
      phasewise export --prometheus http://thanos:9090 --selector 'cluster="a"' --since 30d --step 30s -o a.parquet

    It fetches a few hours at a time and keeps them in OUTPUT.parts. After an interruption (Ctrl-C, a lost connection, a
    kill), the same command continues from there. Columns: timestamp, namespace, pod, container, cpu_cores,
    memory_bytes, and if known cpu_request_cores, memory_request_bytes, workload, node. Rows are sorted by time, then by
    name; times at which CPU or memory is missing have no row.

    With kube-state-metrics there are also facts of runs for the dry run: cpu_limit_cores, memory_limit_bytes,
    node_cpu_cores, node_memory_bytes (allocatable), started_at, finished_at and oom_killed_at (unix seconds),
    exit_code, devices (such as GPUs), input_size (from the annotation phasewise.dev/input-size, if exposed), and
    workload from the pod's owners, unless --label names one. Init containers and native sidecars, which the VPA does
    not size, are then left out. With dcgm-exporter there is gpu_util (0 to 1).

    CPU is a counter's rate over four scrape intervals (--rate-window), so shorter stages of a job blur. If labels have
    other names: --label pod=pod_name. If two jobs scrape the same containers, the larger value is taken;
    --usage-selector 'job="kubelet"' selects one.
    """
    if not output.name.endswith(ENDINGS):
        raise Misuse(f"{output}: the suffix sets the format; use one of {', '.join(ENDINGS)}.")
    if output.is_dir():
        raise Misuse(f"{output}: this is a folder. Name a file in it.")
    if step_s % 1 or step_s < 1:
        raise Misuse(f"--step {format_duration(step_s)}: give whole seconds; the files hold no finer times.")
    if not access.verify:
        say("note: --insecure: the certificate is not verified")
    content = _content_options(url, since, until, step_s, settings)
    with PrometheusClient(
        url, access, timeout_s=timeout_s, retries=retries, warn=lambda text: say(f"note: Prometheus warns: {text}")
    ) as client:
        plan = None if restart else unfinished_plan(output, content)
        if plan is None:
            start_s, end_s = time_range(since, until, time.time())
            plan = plan_export(
                client, settings, content, start_s, end_s, int(step_s), note=lambda text: say(f"note: {text}")
            )
            if restart:
                discard(output)
        else:
            span = f"{format_time(plan.start_s)} to {format_time(plan.end_s)}"
            say(f"{output}: continuing the export of {span} (or --restart)")
        exported = _run_export(client, settings, plan, output)
    span = format_duration(max(1, exported.last_s - exported.first_s))
    rows = f"{counted(exported.rows, 'row')} of {counted(exported.containers, 'container')}"
    say(
        f"{output}: {rows}, {span} from {format_time(exported.first_s)}, "
        f"one sample every {format_duration(step_s)}, CPU over {format_duration(plan.rate_window_s)}"
    )
    if not exported.has_requests:
        say(f"note: no requests: {settings.requests_metric} (kube-state-metrics) has none of these containers")


def _run_export(client: PrometheusClient, settings: UsageSettings, plan: ExportPlan, output: Path) -> Exported:
    """Export; after a failure, say that the export can be continued."""
    try:
        with progress_bar() as progress:
            return export(client, settings, plan, output, progress, class_by_owners)
    except (KeyboardInterrupt, PhasewiseError, OSError):
        folder = parts_folder(output)
        if done := len(list(folder.glob("[0-9]*.parquet"))):
            say(f"{done} of {len(plan.windows)} parts are kept in {folder}; the same command continues from there")
        raise


def _content_options(url: str, since: str, until: str | None, step_s: float, settings: UsageSettings) -> dict[str, str]:
    """The options that determine the contents of the file, by name; empty ones are left out."""
    options: dict[str, object] = {
        "--prometheus": url,
        "--since": since,
        "--until": until,
        "--step": format_duration(step_s),
        "--namespace": settings.namespaces,
        "--selector": settings.selector,
        "--usage-selector": settings.usage_selector,
        "--label": asdict(settings.labels),
        "--request-label": asdict(settings.request_labels),
        "--cpu-metric": settings.cpu_metric,
        "--memory-metric": settings.memory_metric,
        "--requests-metric": settings.requests_metric,
        "--rate-window": settings.rate_window_s,
        "--staleness": settings.staleness_s,
    }
    return {name: text for name, value in options.items() if (text := _text(value))}


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{ours}={theirs}" for ours, theirs in value.items() if theirs)
    return ",".join(value) if isinstance(value, tuple) else str(value or "")
