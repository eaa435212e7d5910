"""Flags of the default recommender, understood as far as they mean something here: its arguments may stay as they are.

Many of its names are ours as well. Of the rest each is another name of an option of ours, or has no effect here (which
is said in the log), or decides what a percentile is: then its default is accepted, and another value is refused with
what to write instead. Flags may be written as Go takes them: `-v=4`, `--leader-elect=true`.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/config`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import click

from recommender.cli.grouped import GroupedCommand
from recommender.errors import Misuse
from recommender.units import parse_duration_s

log = logging.getLogger(__name__)

SWITCHES = frozenset({"memory-saver", "humanize-memory", "profiling", "use-external-metrics", "prometheus-insecure"})
"""Those that may stand without a value."""

RENAMED: Mapping[str, tuple[str, str]] = {
    "prometheus-bearer-token-file": ("bearer-token-file", "{}"),
    "username": ("user", "{}"),
    "history-cpu-metric": ("cpu-metric", "{}"),
    "history-memory-metric": ("memory-metric", "{}"),
    "container-namespace-label": ("label", "namespace={}"),
    "container-pod-name-label": ("label", "pod={}"),
    "container-name-label": ("label", "container={}"),
    "prometheus-cadvisor-job-name": ("usage-selector", 'job="{}"'),
}
"""Ours, and what its value becomes."""

_LOGS = "logs are set by --log-level and --log-format"
_WHOSE = "whose a container is, kube-state-metrics and the API server tell"

WITHOUT_EFFECT: Mapping[str, str] = {
    "memory-saver": "of containers without a VPA of ours no use is kept here in any case",
    "min-checkpoints": "it has none there either",
    "feature-gates": "what is ready is on",
    "profiling": "py-spy shows what a running process does",
    "prometheus-query-timeout": "a round waits 15 s, and its next one asks again",
    "pod-label-prefix": _WHOSE,
    "metric-for-pod-labels": _WHOSE,
    "pod-namespace-label": _WHOSE,
    "pod-name-label": _WHOSE,
    **dict.fromkeys(("v", "vmodule", "stderrthreshold", "logtostderr", "alsologtostderr", "log-dir", "log_dir"), _LOGS),
}

FORMS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "prometheus-query-timeout": (parse_duration_s, "duration"),
    "min-checkpoints": (int, "whole number"),
    "v": (int, "whole number"),
}
"""Of those without effect: what reads a value, and what it must be. A slip of the pen is none the less one."""

_HISTOGRAM = "The histogram is what is published in doubt only, and is the default recommender's. Leave it out; "
_SET = _HISTOGRAM + "how much is allocated is set by --target-violation."
_FORGET = _HISTOGRAM + "what is remembered of phases is set by --profile-ttl."

AT_DEFAULT: Mapping[str, tuple[str, str]] = {
    "recommendation-margin-fraction": ("0.15", _SET),
    "target-cpu-percentile": ("0.9", _SET),
    "target-memory-percentile": ("0.9", _SET),
    "recommendation-lower-bound-cpu-percentile": ("0.5", _SET),
    "recommendation-lower-bound-memory-percentile": ("0.5", _SET),
    "recommendation-upper-bound-cpu-percentile": ("0.95", _SET),
    "recommendation-upper-bound-memory-percentile": ("0.95", _SET),
    "confidence-interval-cpu": ("24h", _SET),
    "confidence-interval-memory": ("24h", _SET),
    "memory-aggregation-interval": ("24h", _FORGET),
    "memory-aggregation-interval-count": ("8", _FORGET),
    "memory-histogram-decay-half-life": ("24h", _FORGET),
    "cpu-histogram-decay-half-life": ("24h", _FORGET),
    "humanize-memory": ("false", "Amounts are whole bytes. Leave it out; round them by --round-memory-bytes."),
    "use-external-metrics": ("false", "Use comes from metrics.k8s.io or a Prometheus. Name one by --prometheus."),
    "external-metrics-cpu-metric": ("", "Use comes from metrics.k8s.io or a Prometheus. Name one by --prometheus."),
    "external-metrics-memory-metric": ("", "Use comes from metrics.k8s.io or a Prometheus. Name one by --prometheus."),
    "leader-elect-resource-lock": ("leases", "Leaders are elected by a Lease only. Leave it out."),
    "prometheus-bearer-token": ("", "Secrets are not for command lines. Write it to a file: --bearer-token-file FILE."),
    "password": ("", "Secrets are not for command lines. Write it to a file: --password-file FILE."),
}
"""The only value that is accepted, and what to do instead of any other."""

STORAGE = ("storage", "prometheus-address", "prometheus-insecure")

PROMETHEUS = "http://prometheus.monitoring.svc"
"""Where the default recommender looks when nobody says."""

TRUE, FALSE = ("1", "t", "true"), ("0", "f", "false")


class UpstreamCommand(GroupedCommand):
    """A command that understands the default recommender's flags too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        switches = {
            name: option.secondary_opts
            for option in self.params
            if isinstance(option, click.Option) and option.is_flag
            for name in option.opts
        }
        return super().parse_args(ctx, list(translated(args, switches)))


def translated(arguments: Sequence[str], switches: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Command-line arguments with the flags of the default recommender in our words.

    Parameters
    ----------
    switches
        Options of ours that take no value, and what switches each off.

    Raises
    ------
    Misuse
        A flag asks for what there is not; what to do instead is named.
    """
    storage: dict[str, str] = {}
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        dashed, equals, value = argument.partition("=")
        name = dashed.lstrip("-") if argument.startswith("-") else ""
        if dashed in switches and equals:
            yield from _switched(dashed, value, switches[dashed])
            continue
        if name not in (*RENAMED, *WITHOUT_EFFECT, *AT_DEFAULT, *STORAGE):
            yield argument
            continue
        if not equals:
            value = "true" if name in SWITCHES or not waiting else waiting.pop(0)
        if name in STORAGE:
            storage[name] = value
        elif name in WITHOUT_EFFECT:
            _require_form(name, value)
            log.info("--%s=%s has no effect: %s", name, value, WITHOUT_EFFECT[name])
        elif name in AT_DEFAULT:
            _require_default(name, value)
        elif value:
            ours, form = RENAMED[name]
            yield f"--{ours}={form.format(value)}"
    yield from _prometheus(storage)


def _switched(dashed: str, value: str, off: Sequence[str]) -> Iterator[str]:
    if value.lower() not in (*TRUE, *FALSE):
        raise Misuse(f"{dashed}={value}: it is neither true nor false. Write one of them.")
    if value.lower() in TRUE:
        yield dashed
    elif off:
        yield off[0]


def _require_form(name: str, value: str) -> None:
    read, form = FORMS.get(name, (str, ""))
    try:
        read(value)
    except (ValueError, Misuse) as error:
        raise Misuse(f"--{name}={value}: that is no {form}. Leave it out; it has no effect here.") from error


def _require_default(name: str, value: str) -> None:
    only, remedy = AT_DEFAULT[name]
    if not _same(value, only):
        # Nothing is quoted of what may be a secret.
        told = f"--{name}" if name in ("prometheus-bearer-token", "password") else f"--{name}={value}"
        raise Misuse(f"{told} is a flag of the default recommender that has no counterpart here. {remedy}")


def _prometheus(storage: Mapping[str, str]) -> Iterator[str]:
    """The address counts with the storage only, as it does upstream."""
    kind = storage.get("storage", "")
    if kind not in ("", "checkpoint", "prometheus"):
        raise Misuse(f"--storage={kind}: write checkpoint, or --prometheus URL.")
    if kind == "prometheus":
        log.info("--storage=prometheus: not only the past, also present use is taken from there")
        yield f"--prometheus={storage.get('prometheus-address', PROMETHEUS)}"
    if storage.get("prometheus-insecure", "false").lower() in TRUE:
        yield "--insecure"


def _same(value: str, only: str) -> bool:
    """By meaning: `0.90` is `0.9`, `1440m0s` is `24h`."""
    if value.lower() == only or (only == "false" and value.lower() in FALSE):
        return True
    for read in (float, parse_duration_s):
        with suppress(ValueError, Misuse):
            return bool(read(value) == read(only))
    return False
