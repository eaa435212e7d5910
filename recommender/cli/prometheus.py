"""Options of all commands that query Prometheus: credentials, metrics and labels."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from recommender.base.errors import Misuse
from recommender.base.units import parse_duration_s, parse_time_s
from recommender.cli.common import DURATION, FILE
from recommender.cli.grouped import Decorate, grouped
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_queries import CPU_METRIC, MEMORY_METRIC, REQUESTS_METRIC, Labels, UsageSettings

_ENVIRONMENT = "PHASEWISE_PROMETHEUS"
_option = grouped()

SINCE = "Start: a duration before --until, or a time (RFC 3339 or unix)."
UNTIL = "End: a duration before now, or a time."

_LABELS = ("namespace", "pod", "container", "node", "workload")


def _access(name: str, kind: Any, text: str) -> Decorate:
    """An option that is also read from the environment."""
    variable = f"{_ENVIRONMENT}_{name.removeprefix('--').replace('-', '_').upper()}"
    return _option(name, kind, text, envvar=variable, show_envvar=True)


ACCESS_OPTIONS = (
    _access("--bearer-token-file", FILE, "File with the bearer token, read again for each request."),
    _access("--user", str, "User for HTTP basic authentication."),
    _access("--password-file", FILE, "File with the password of --user."),
    _access("--ca-file", FILE, "CA certificates (PEM) to verify the server with. Default: those of the system."),
    _access("--certificate-file", FILE, "Client certificate (PEM)."),
    _access("--key-file", FILE, "Key of --certificate-file, if not in the same file."),
    _option(
        "--header headers",
        str,
        "A further header of all queries, such as the tenant of Mimir, Cortex or Thanos. Repeatable.",
        multiple=True,
        metavar="'NAME: VALUE'",
    ),
    _access("--insecure", bool, "Do not verify the server's certificate. Attackers may read the credentials."),
)

NAMESPACE_OPTION = _option("-n --namespace namespaces", str, "Only this namespace. Repeatable.", multiple=True)
SELECTOR_OPTION = _option(
    "--selector", str, "Additional label matchers for all queries: 'cluster=\"x\"'.", default="", show_default=False
)

USAGE_OPTIONS = (
    NAMESPACE_OPTION,
    SELECTOR_OPTION,
    _option("--usage-selector", str, "Additional label matchers for usage only: 'job=\"kubelet\"'.", default=""),
    _option(
        "--label labels",
        str,
        f"Label name in Prometheus: pod=pod_name. OURS: {', '.join(_LABELS)}. Repeatable.",
        multiple=True,
        metavar="OURS=THEIRS",
    ),
    _option(
        "--request-label request_labels",
        str,
        "The same for the metric of requests: pod=exported_pod. Repeatable.",
        multiple=True,
        metavar="OURS=THEIRS",
    ),
    _option(
        "--cpu-metric",
        str,
        "Counter of CPU seconds (..._total), or a recording rule of cores.",
        default=CPU_METRIC,
        show_default=True,
    ),
    _option("--memory-metric", str, "Metric of memory use in bytes.", default=MEMORY_METRIC, show_default=True),
    _option(
        "--rate-window rate_window_s",
        DURATION,
        "Averaging window of CPU, at least two scrape intervals; shorter windows blur less.",
        show_default="4 x the scrape interval",
    ),
    _option("--staleness staleness_s", DURATION, "Ignore samples older than this.", show_default="the rate window"),
)

REQUESTS_OPTION = _option(
    "--requests-metric", str, "Metric of requests in cores and bytes.", default=REQUESTS_METRIC, show_default=True
)
"""Only for commands that cannot get requests from the API server."""


def make_access(insecure: bool, **given: Any) -> Access:
    return Access(**given, verify=not insecure)


def make_usage(
    namespaces: tuple[str, ...], labels: tuple[str, ...], request_labels: tuple[str, ...], **given: Any
) -> UsageSettings:
    named, requests_named = parse_labels("--label", labels), parse_labels("--request-label", request_labels)
    return UsageSettings(tuple(sorted(set(namespaces))), labels=named, request_labels=requests_named, **given)


def time_range(since: str, until: str | None, now_s: float) -> tuple[float, float]:
    """Start and end in unix seconds, the end not after now."""
    end_s = now_s if until is None else min(_moment("--until", until, now_s), now_s)
    start_s = _moment("--since", since, end_s)
    if start_s >= end_s:
        raise Misuse(f"--since {since} is not before --until {until or 'now'}: the range is empty.")
    return start_s, end_s


def _moment(option: str, text: str, before_s: float) -> float:
    """Unix seconds of a time, or of a duration before `before_s`."""
    with suppress(Misuse):
        moment_s = parse_time_s(text)
        if moment_s >= 1e9:  # as a duration 31 years
            return moment_s
    try:
        return before_s - parse_duration_s(text)
    except Misuse as error:
        raise Misuse(f"{option} {text!r}: write a duration such as 7d, or a time such as 2026-05-01T12:00Z.") from error


def parse_labels(option: str, given: tuple[str, ...], allowed: tuple[str, ...] = _LABELS) -> Labels:
    """Parse label names from texts OURS=THEIRS; `Misuse` for another form, or if OURS is not in `allowed`."""
    named = {}
    for text in given:
        ours, equals, theirs = (part.strip() for part in text.partition("="))
        if not equals or ours not in allowed:
            raise Misuse(f"{option} {text!r}: write OURS=THEIRS, where OURS is one of {', '.join(allowed)}.")
        named[ours] = theirs
    return Labels(**named)
