"""Accept the flags of the default recommender, so that its arguments can stay.

Many flags have the same name here. Each of the others is renamed to an option of ours, or ignored with a log message,
or has no counterpart: then only its default is accepted, and the error for other values says what to write instead.
Flags may be written as in Go: `-v=4`, `--leader-elect=true`, `--log_dir` for `--log-dir`.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/config`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import click

from recommender.base.errors import Misuse
from recommender.base.units import parse_duration_s
from recommender.cli.grouped import GroupedCommand

LOG_SWITCHES = frozenset(
    {
        "logtostderr", "alsologtostderr", "legacy-stderr-threshold-behavior", "add-dir-header", "skip-headers",
        "skip-log-headers", "one-output",
    }
)  # fmt: skip
LOG_FLAGS = LOG_SWITCHES | {
    "v", "vmodule", "stderrthreshold", "alsologtostderrthreshold", "log-dir", "log-file", "log-file-max-size",
    "log-backtrace-at",
}  # fmt: skip
"""All flags of klog; `LOG_SWITCHES` are those that need no value."""

BOOLEAN_FLAGS = LOG_SWITCHES | {
    "memory-saver", "humanize-memory", "profiling", "use-external-metrics", "prometheus-insecure",
}  # fmt: skip
"""Flags that need no value."""

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
"""Flag -> (our option, format of its value)."""

_LOGS = "use --log-level and --log-format"
_OWNERS = "owners of containers come from kube-state-metrics and the API server"

IGNORED: Mapping[str, str] = {
    "memory-saver": "usage of containers without a VPA of ours is never kept",
    "min-checkpoints": "it has none in the default recommender either",
    "feature-gates": "there are no feature gates here",
    "profiling": "profile the process with py-spy",
    "prometheus-query-timeout": "a query times out after 15 s, and the next round repeats it",
    **dict.fromkeys(("pod-label-prefix", "metric-for-pod-labels", "pod-namespace-label", "pod-name-label"), _OWNERS),
    **dict.fromkeys(LOG_FLAGS, _LOGS),
}

_HISTOGRAM = "The histogram is only a fallback here, with the defaults of the default recommender. Leave the flag out; "
_MARGIN = _HISTOGRAM + "set the margin by --target-violation."
_MEMORY = _HISTOGRAM + "set how long phases are remembered by --profile-ttl."
_EXTERNAL = "Usage comes from metrics.k8s.io or Prometheus. Set --prometheus URL."

DEFAULT_ONLY: Mapping[str, tuple[str, str]] = {
    "recommendation-margin-fraction": ("0.15", _MARGIN),
    "target-cpu-percentile": ("0.9", _MARGIN),
    "target-memory-percentile": ("0.9", _MARGIN),
    "recommendation-lower-bound-cpu-percentile": ("0.5", _MARGIN),
    "recommendation-lower-bound-memory-percentile": ("0.5", _MARGIN),
    "recommendation-upper-bound-cpu-percentile": ("0.95", _MARGIN),
    "recommendation-upper-bound-memory-percentile": ("0.95", _MARGIN),
    "confidence-interval-cpu": ("24h", _MARGIN),
    "confidence-interval-memory": ("24h", _MARGIN),
    "memory-aggregation-interval": ("24h", _MEMORY),
    "memory-aggregation-interval-count": ("8", _MEMORY),
    "memory-histogram-decay-half-life": ("24h", _MEMORY),
    "cpu-histogram-decay-half-life": ("24h", _MEMORY),
    "humanize-memory": ("false", "Amounts are whole bytes. Leave the flag out; round them by --round-memory-bytes."),
    "use-external-metrics": ("false", _EXTERNAL),
    "external-metrics-cpu-metric": ("", _EXTERNAL),
    "external-metrics-memory-metric": ("", _EXTERNAL),
    "leader-elect-resource-lock": ("leases", "Leader election always uses a Lease. Leave the flag out."),
    "prometheus-bearer-token": ("", "Secrets do not belong on command lines. Use a file: --bearer-token-file FILE."),
    "password": ("", "Secrets do not belong on command lines. Use a file: --password-file FILE."),
}
"""Flag -> (the only accepted value, advice for other values)."""

STORAGE = ("storage", "prometheus-address", "prometheus-insecure")

TRUE, FALSE = ("1", "t", "true"), ("0", "f", "false")


class UpstreamCommand(GroupedCommand):
    """A command that also accepts the default recommender's flags; its object is what the log has to say about them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        switches = {
            name: option.secondary_opts
            for option in self.params
            if isinstance(option, click.Option) and option.is_flag
            for name in option.opts
        }
        notes: list[str] = []
        ctx.obj = notes  # logged by the command: the options of the log have yet to be parsed
        return super().parse_args(ctx, list(translated(args, switches, notes)))


def translated(arguments: Sequence[str], switches: Mapping[str, Sequence[str]], notes: list[str]) -> Iterator[str]:
    """Translate the default recommender's flags in a command line to our options.

    `switches` are our boolean options, each with its negative names; `notes` is filled with flags that do nothing or
    more than they say. `Misuse`, which says what to write instead, for a flag without a counterpart.
    """
    storage: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        dashed, equals, value = argument.partition("=")
        name = dashed.lstrip("-").replace("_", "-") if argument.startswith("-") else ""
        if dashed in switches and equals:
            if value.lower() not in (*TRUE, *FALSE):
                raise Misuse(f"{dashed}={value}: it is neither true nor false. Write one of them.")
            yield from [dashed] if value.lower() in TRUE else switches[dashed][:1]
            continue
        if name not in (*RENAMED, *IGNORED, *DEFAULT_ONLY, *STORAGE):
            yield argument
            continue
        if not equals:
            value = "true" if name in BOOLEAN_FLAGS or not rest else rest.pop(0)
        if name in STORAGE:
            storage[name] = value
        elif name in IGNORED:
            notes.append(f"--{name}={value} has no effect: {IGNORED[name]}")
        elif name in DEFAULT_ONLY:
            _require_default(name, value)
        elif value:
            ours, form = RENAMED[name]
            yield f"--{ours}={form.format(value)}"
    yield from _prometheus(storage, notes)


def _require_default(name: str, value: str) -> None:
    default, advice = DEFAULT_ONLY[name]
    if not _same(value, default):
        # A value that may be a secret is not repeated.
        flag = f"--{name}" if name in ("prometheus-bearer-token", "password") else f"--{name}={value}"
        raise Misuse(f"{flag} is a flag of the default recommender that has no counterpart here. {advice}")


def _prometheus(storage: Mapping[str, str], notes: list[str]) -> Iterator[str]:
    """Options for --storage; as upstream, the address has an effect only with `--storage=prometheus`."""
    kind = storage.get("storage", "")
    if kind not in ("", "checkpoint", "prometheus"):
        raise Misuse(f"--storage={kind}: write checkpoint, or --prometheus URL.")
    if kind == "prometheus":
        notes.append("--storage=prometheus: history and present usage both come from Prometheus")
        yield f"--prometheus={storage.get('prometheus-address', 'http://prometheus.monitoring.svc')}"
    if storage.get("prometheus-insecure", "false").lower() in TRUE:
        yield "--insecure"


def _same(value: str, default: str) -> bool:
    """Whether two values have the same meaning: `0.90` and `0.9`, `1440m0s` and `24h`."""
    if value.lower() == default or (default == "false" and value.lower() in FALSE):
        return True
    for parse in (float, parse_duration_s):
        with suppress(ValueError, Misuse):
            return bool(parse(value) == parse(default))
    return False
