"""What the encoder sees of a container: four features made from its usage, or columns the caller names.

Why these four. AI4DL standardises absolute readings, so its model knows the sizes it was trained on and no others. Here
two features keep the level, on a logarithmic scale since the next size up is a factor and not a step, and two say how
far the container is above or below its own usual level. A model trained on small containers then still tells the phases
of one four times as large, while the level tells apart what only the level can, such as idle and busy starts. Shares
of the peak and differences from one sample to the next were tried instead: they tell sizes apart as well, but the
encoder then turns a meter's noise into phases (they lasted half as long for the same forecast).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recommender.errors import BadInput
from recommender.kernels.track import usage_features
from recommender.records import CPU, MEMORY, FloatArray, UsageSeries

USAGE_FEATURES = ("cpu.level", "memory.level", "cpu.relative", "memory.relative")
"""Log2 of cores and bytes, and the same minus the container's own mean so far."""

FEATURE_UNITS = {
    "cpu.level": "log2 cores",
    "memory.level": "log2 bytes",
    "cpu.relative": "log2 of the ratio to its own usual level",
    "memory.relative": "log2 of the ratio to its own usual level",
    "cpu_cores": "cores",
    "memory_bytes": "bytes",
}

CPU_FLOOR_CORES = 0.01
MEMORY_FLOOR_BYTES = float(1 << 20)
"""Ten millicores and one MiB: below them a container is idle, and differences are the meter's, not the program's."""

LONGEST_PAST = 2000
"""Samples the usual level is taken over: all of a training job, the last days of a service."""


def feature_matrix(series: UsageSeries, names: Sequence[str]) -> FloatArray:
    """The named features of every sample.

    Parameters
    ----------
    series
        One container.
    names
        Members of `USAGE_FEATURES`, `cpu_cores`, `memory_bytes`, or numeric columns of the input.

    Returns
    -------
    float64 (n, len(names))
        NaN wherever the sample or the column's value is missing.

    Raises
    ------
    BadInput
        A named column is not in the data.
    """
    made: FloatArray | None = None
    columns: list[FloatArray] = []
    for name in names:
        if name in USAGE_FEATURES:
            if made is None:
                made = np.empty((len(series), len(USAGE_FEATURES)))
                usage_features(series.usage, CPU_FLOOR_CORES, MEMORY_FLOOR_BYTES, LONGEST_PAST, made)
            columns.append(made[:, USAGE_FEATURES.index(name)])
        elif name in series.features:
            columns.append(np.where(series.present, series.features[name], np.nan))
        elif name == "cpu_cores":
            columns.append(series.usage[:, CPU])
        elif name == "memory_bytes":
            columns.append(series.usage[:, MEMORY])
        else:
            known = ", ".join([*USAGE_FEATURES, "cpu_cores", "memory_bytes", *sorted(series.features)])
            raise BadInput(
                f"container {series.container!r} has no feature of this name (known: {known})",
                column=name,
                remedy="Name a numeric column of the data, or add one with --map.",
            )
    if made is not None and tuple(names) == USAGE_FEATURES:
        return made
    return np.column_stack(columns)


def source_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The columns that must be read from the input for these features, beyond cpu and memory themselves."""
    return tuple(n for n in names if n not in USAGE_FEATURES and n not in ("cpu_cores", "memory_bytes"))
