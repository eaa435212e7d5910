"""The input of the encoder: four features computed from usage, or columns that the caller names.

Why these four: AI4DL standardises absolute values, so that its model only fits containers of the sizes it was trained
on. Here two features are the level, logarithmic since sizes differ by factors, and two are relative to the container's
own mean level. So a model trained on small containers still detects the phases of one four times as large,
while the level separates what only it can, such as idle and busy starts. Shares of the peak and differences between
samples were tried instead: they generalise over sizes as well, but turn noise into phases (which lasted half as long at
the same forecast loss).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recommender.base.errors import BadInput
from recommender.base.records import CPU, MEMORY, FloatArray, UsageSeries
from recommender.kernels.track import usage_features

USAGE_FEATURES = ("cpu.level", "memory.level", "cpu.relative", "memory.relative")
"""Log2 of cores and bytes, and the same minus the container's own mean so far."""

FEATURE_UNITS = {
    "cpu.level": "log2 cores",
    "memory.level": "log2 bytes",
    "cpu.relative": "log2 of the ratio to its own mean level",
    "memory.relative": "log2 of the ratio to its own mean level",
    "cpu_cores": "cores",
    "memory_bytes": "bytes",
}


def feature_matrix(series: UsageSeries, names: Sequence[str]) -> FloatArray:
    """The named features of every sample, float64 (n, len(names)), NaN where one is missing.

    Names are of `USAGE_FEATURES`, `cpu_cores`, `memory_bytes`, or of columns of the input; others are a BadInput.
    """
    computed: FloatArray | None = None
    columns: list[FloatArray] = []
    for name in names:
        if name in USAGE_FEATURES:
            if computed is None:
                computed = np.empty((len(series), len(USAGE_FEATURES)))
                usage_features(series.usage, computed)
            columns.append(computed[:, USAGE_FEATURES.index(name)])
        elif name in series.features:
            columns.append(np.where(series.present, series.features[name], np.nan))
        elif name == "cpu_cores":
            columns.append(series.usage[:, CPU])
        elif name == "memory_bytes":
            columns.append(series.usage[:, MEMORY])
        else:
            known = ", ".join([*FEATURE_UNITS, *sorted(series.features)])
            raise BadInput(
                f"container {series.container!r} has no feature of this name (known: {known})",
                column=name,
                remedy="Name a numeric column of the data, or add one with --map.",
            )
    if computed is not None and tuple(names) == USAGE_FEATURES:
        return computed
    return np.column_stack(columns)


def source_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The input columns that these features need besides cpu and memory."""
    return tuple(name for name in names if name not in FEATURE_UNITS)
