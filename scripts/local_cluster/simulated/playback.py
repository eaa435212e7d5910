"""Series as functions of time in CEL, the language of kwok's usage objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml

_FILE = Path(__file__).parent / "usage-from-annotations.yaml"
RULES: dict[str, Any] = yaml.safe_load(_FILE.read_text())["spec"]["usages"][0]["usage"]
"""Usage by demand, and demand by annotations of the pod."""

MAX_EXPRESSION_LENGTH = 90_000
"""Characters of an expression; the parser accepts 100,000, about ten thousand samples."""

ANNOTATION = 'pod.metadata.annotations["phasewise.dev/{what}." + container.name]'
HAS_ANNOTATION = '"phasewise.dev/{what}." + container.name in pod.metadata.annotations'


def rules_playing(cpu: str, memory: str) -> dict[str, Any]:
    """Usage of a container whose demand is given by two expressions; its annotations take precedence."""
    own = {}
    for what, played in (("cpu", cpu), ("memory", memory)):
        has = HAS_ANNOTATION.format(what=what)
        demand = f"{has} ? dyn(Quantity({ANNOTATION.format(what=what)})) : dyn({played})"
        own[f"{what}_demand"] = {"expression": demand}
    return RULES | own


def cores_of(
    series: np.ndarray,
    *,
    step_s: float,
    time_factor: float,
    start_s: float | None,
    repeat: bool,
    averaged_over_s: float,
) -> str:
    """Expression for cores: mean of the series over the last `averaged_over_s`, by its running sums.

    `sums` are core-samples until each sample, `p` positions in samples, `c` the sums at both ends of the window.
    """
    length, window = f"{len(series)}.0", f"{averaged_over_s * time_factor / step_s:.6f}"
    sums = _list(np.concatenate([[0.0], np.cumsum(series)]), digits=4)
    until = "sums[int(q)] + (q - double(int(q))) * (sums[int(q) + 1] - sums[int(q)])"
    if repeat:
        rounds = f"double(int(p / {length}))"
        total = f"[p - {length} * {rounds}].map(q, {until} + {rounds} * sums[{len(series)}])[0]"
    else:
        held = f"sums[{len(series)}] + (q - {length}) * {series[-1]:.6f}"
        total = f"[p].map(q, q < {length} ? {until} : {held})[0]"
    ends = (
        f"[{_position(step_s, time_factor, start_s)}].map(here, [{sums}].map(sums, "
        f"[here, here - {window}].map(p, p <= 0.0 ? 0.0 : {total})))[0][0]"
    )
    return _checked(f"[{ends}].map(c, (c[0] - c[1]) / {window})[0]")


def bytes_of(series: np.ndarray, *, step_s: float, time_factor: float, start_s: float | None, repeat: bool) -> str:
    """Expression for bytes: the present sample; 1 MiB before the first."""
    length = len(series)
    at = f"int(p) % {length}" if repeat else f"p < {length}.0 ? int(p) : {length - 1}"
    here = _position(step_s, time_factor, start_s)
    return _checked(f"[{here}].map(p, p < 0.0 ? 1048576.0 : {_list(series, digits=0)}[{at}])[0]")


def _position(step_s: float, time_factor: float, start_s: float | None) -> str:
    """Expression for the time since the first sample, in samples; without `start_s`, since the container's start."""
    start = 'pod.Usage("start_time", container.name)' if start_s is None else f"{start_s:.3f}"
    return f"(UnixSecond(Now()) - {start}) * {time_factor / step_s:.9f}"


def _list(values: np.ndarray, digits: int) -> str:
    """List of CEL doubles, which need a decimal point."""
    return "[" + ",".join(f"{value:.{digits}f}" if digits else f"{value:.0f}.0" for value in values) + "]"


def _checked(expression: str) -> str:
    if len(expression) > MAX_EXPRESSION_LENGTH:
        raise ValueError(f"{len(expression)} characters of a series are more than kwok accepts; use a coarser one")
    return expression
