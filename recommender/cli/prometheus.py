"""The options of every command that asks a Prometheus: where it is, who we are, and what it calls things."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from recommender.cli.common import DURATION
from recommender.cli.grouped import Decorate
from recommender.errors import Misuse
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_queries import CPU_METRIC, MEMORY_METRIC, REQUESTS_METRIC, Labels, UsageSettings

_ENVIRONMENT = "PHASEWISE_PROMETHEUS"
_LABELS = ("namespace", "pod", "container", "node", "workload")


def _option(name: str, help_text: str, **more: Any) -> Decorate:
    """An option that may also stand in the environment."""
    variable = f"{_ENVIRONMENT}_{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, help=help_text, envvar=variable, show_envvar=True, **more)


_FILE = click.Path(path_type=Path)

ACCESS_OPTIONS = (
    _option("--bearer-token-file", "File with the token to show; read again at each request.", type=_FILE),
    _option("--user", "User of HTTP basic authentication."),
    _option("--password-file", "File with that user's password.", type=_FILE),
    _option("--ca-file", "Authorities (PEM) to verify its certificate with, instead of the system's.", type=_FILE),
    _option("--certificate-file", "Our own certificate (PEM), where it asks for one.", type=_FILE),
    _option("--key-file", "The key of --certificate-file, when not in the same file.", type=_FILE),
    _option("--insecure", "Believe any certificate. Whoever sits in between can read the credentials.", is_flag=True),
)

USAGE_OPTIONS = (
    click.option("--namespace", "namespaces", multiple=True, help="Only this namespace. Repeatable."),
    click.option("--selector", default="", help="Further label matchers for every query: 'cluster=\"x\"'."),
    click.option("--usage-selector", default="", help="Label matchers for use, not for requests: 'job=\"kubelet\"'."),
    click.option(
        "--label",
        "labels",
        multiple=True,
        metavar="OURS=THEIRS",
        help="What a label is called here: pod=pod_name. Ours: namespace, pod, container, node, workload. Repeatable.",
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
        help="A counter of seconds (..._total), or a recording rule that holds cores.",
    ),
    click.option("--memory-metric", default=MEMORY_METRIC, show_default=True, help="Bytes in use."),
    click.option(
        "--rate-window",
        "rate_window_s",
        type=DURATION,
        show_default="4 x the scrape interval",
        help="Window over which CPU is averaged. Shorter is sharper, below two scrapes there is nothing.",
    ),
    click.option(
        "--staleness",
        "staleness_s",
        type=DURATION,
        show_default="the rate's window",
        help="A sample older than this is no sample.",
    ),
)

REQUESTS_OPTION = click.option(
    "--requests-metric", default=REQUESTS_METRIC, show_default=True, help="Declared cores and bytes."
)
"""Beside these, of a command that is not told by the API server what is requested."""


def make_access(insecure: bool, **given: Any) -> Access:
    return Access(**given, verify=not insecure)


def make_usage(
    namespaces: tuple[str, ...], labels: tuple[str, ...], request_labels: tuple[str, ...], **given: Any
) -> UsageSettings:
    named, requests_named = labels_of("--label", labels), labels_of("--request-label", request_labels)
    return UsageSettings(tuple(sorted(set(namespaces))), labels=named, request_labels=requests_named, **given)


def labels_of(
    option: str,
    given: tuple[str, ...],
    ours_are: tuple[str, ...] = _LABELS,
    words: str = f"one of {', '.join(_LABELS)}",
) -> Labels:
    """What labels are called, from texts OURS=THEIRS.

    Raises
    ------
    Misuse
        A text is none, or OURS is none of those that the option is about.
    """
    named = {}
    for text in given:
        ours, equals, theirs = (part.strip() for part in text.partition("="))
        if not equals or ours not in ours_are:
            raise Misuse(f"{option} {text!r}: write OURS=THEIRS, where OURS is {words}.")
        named[ours] = theirs
    return Labels(**named)
