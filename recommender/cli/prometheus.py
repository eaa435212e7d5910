"""Options of all commands that query Prometheus: credentials, metrics and labels."""

from __future__ import annotations

from typing import Any

import click

from recommender.cli.common import DURATION, FILE
from recommender.cli.grouped import Decorate
from recommender.errors import Misuse
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_queries import CPU_METRIC, MEMORY_METRIC, REQUESTS_METRIC, Labels, UsageSettings

_ENVIRONMENT = "PHASEWISE_PROMETHEUS"
_LABELS = ("namespace", "pod", "container", "node", "workload")


def _option(name: str, help_text: str, **more: Any) -> Decorate:
    """An option that is also read from the environment."""
    variable = f"{_ENVIRONMENT}_{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, help=help_text, envvar=variable, show_envvar=True, **more)


ACCESS_OPTIONS = (
    _option("--bearer-token-file", "File with the bearer token, read again for each request.", type=FILE),
    _option("--user", "User for HTTP basic authentication."),
    _option("--password-file", "File with the password of --user.", type=FILE),
    _option("--ca-file", "CA certificates (PEM) to verify the server with. Default: those of the system.", type=FILE),
    _option("--certificate-file", "Client certificate (PEM).", type=FILE),
    _option("--key-file", "Key of --certificate-file, if not in the same file.", type=FILE),
    _option("--insecure", "Do not verify the server's certificate. Attackers may read the credentials.", is_flag=True),
)

USAGE_OPTIONS = (
    click.option("--namespace", "namespaces", multiple=True, help="Only this namespace. Repeatable."),
    click.option("--selector", default="", help="Additional label matchers for all queries: 'cluster=\"x\"'."),
    click.option("--usage-selector", default="", help="Additional label matchers for usage only: 'job=\"kubelet\"'."),
    click.option(
        "--label",
        "labels",
        multiple=True,
        metavar="OURS=THEIRS",
        help="Label name in Prometheus: pod=pod_name. OURS: namespace, pod, container, node, workload. Repeatable.",
    ),
    click.option(
        "--request-label",
        "request_labels",
        multiple=True,
        metavar="OURS=THEIRS",
        help="The same for the metric of requests: pod=exported_pod. Repeatable.",
    ),
    click.option(
        "--cpu-metric",
        default=CPU_METRIC,
        show_default=True,
        help="Counter of CPU seconds (..._total), or a recording rule of cores.",
    ),
    click.option("--memory-metric", default=MEMORY_METRIC, show_default=True, help="Metric of memory use in bytes."),
    click.option(
        "--rate-window",
        "rate_window_s",
        type=DURATION,
        show_default="4 x the scrape interval",
        help="Averaging window of CPU, at least two scrape intervals; shorter windows blur less.",
    ),
    click.option(
        "--staleness",
        "staleness_s",
        type=DURATION,
        show_default="the rate window",
        help="Ignore samples older than this.",
    ),
)

REQUESTS_OPTION = click.option(
    "--requests-metric", default=REQUESTS_METRIC, show_default=True, help="Metric of requests in cores and bytes."
)
"""Only for commands that cannot get requests from the API server."""


def make_access(insecure: bool, **given: Any) -> Access:
    return Access(**given, verify=not insecure)


def make_usage(
    namespaces: tuple[str, ...], labels: tuple[str, ...], request_labels: tuple[str, ...], **given: Any
) -> UsageSettings:
    named, requests_named = parse_labels("--label", labels), parse_labels("--request-label", request_labels)
    return UsageSettings(tuple(sorted(set(namespaces))), labels=named, request_labels=requests_named, **given)


def parse_labels(
    option: str,
    given: tuple[str, ...],
    allowed: tuple[str, ...] = _LABELS,
) -> Labels:
    """Parse label names from texts OURS=THEIRS; `Misuse` for another form, or if OURS is not in `allowed`."""
    named = {}
    for text in given:
        ours, equals, theirs = (part.strip() for part in text.partition("="))
        if not equals or ours not in allowed:
            raise Misuse(f"{option} {text!r}: write OURS=THEIRS, where OURS is one of {', '.join(allowed)}.")
        named[ours] = theirs
    return Labels(**named)
