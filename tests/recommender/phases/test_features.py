"""Features: how busy a container is, absolutely and relative to its own past."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.errors import BadInput
from recommender.base.records import FloatArray, UsageSeries
from recommender.kernels.track import MAX_HISTORY_SAMPLES, USAGE_FLOORS
from recommender.phases.features import USAGE_FEATURES, feature_matrix, source_columns

MIB = float(1 << 20)


def series_of(usage: FloatArray, **columns: FloatArray) -> UsageSeries:
    timestamps = np.arange(len(usage), dtype=np.int64) * 15
    return UsageSeries("c", timestamps, 15.0, np.asarray(usage, dtype=np.float64), features=columns)


def test_features_match_a_calculation_by_hand() -> None:
    """Cores 4, 1, 2 with memory at 3 MiB throughout."""
    matrix = feature_matrix(series_of(np.array([[4, 3 * MIB], [1, 3 * MIB], [2, 3 * MIB]])), USAGE_FEATURES)
    cpu_level, memory_level, cpu_relative, memory_relative = matrix[2]
    levels = [math.log2(cores + USAGE_FLOORS[0]) for cores in (4, 1, 2)]
    assert cpu_level == pytest.approx(levels[2])
    assert memory_level == pytest.approx(math.log2(4 * MIB))
    assert cpu_relative == pytest.approx(levels[2] - sum(levels) / 3)
    assert memory_relative == 0.0


usages = st.lists(
    st.tuples(st.floats(0, 64), st.floats(0, 2.0**36)) | st.just((math.nan, math.nan)), min_size=1, max_size=40
).map(lambda rows: np.array(rows, dtype=np.float64))


def reference_features(usage: FloatArray) -> FloatArray:
    """The same four features, one sample at a time from the whole past."""
    out = np.full((len(usage), 4), np.nan)
    for resource, floor in enumerate((0.01, MIB)):
        for t in range(len(usage)):
            past = [math.log2(u + floor) for u in usage[: t + 1, resource] if not math.isnan(u)]
            if not math.isnan(usage[t, resource]):
                out[t, resource] = past[-1]
                out[t, 2 + resource] = past[-1] - sum(past) / len(past)
    return out


@given(usages)
@settings(deadline=None)
def test_the_kernel_agrees_with_the_definition(usage: FloatArray) -> None:
    np.testing.assert_allclose(feature_matrix(series_of(usage), USAGE_FEATURES), reference_features(usage), atol=1e-9)


@given(usages, st.integers(0, 39))
@settings(deadline=None)
def test_features_do_not_depend_on_later_samples(usage: FloatArray, at: int) -> None:
    full = feature_matrix(series_of(usage), USAGE_FEATURES)
    prefix = feature_matrix(series_of(usage[: at + 1]), USAGE_FEATURES)
    np.testing.assert_array_equal(full[: at + 1], prefix)


def test_relative_features_do_not_depend_on_the_size_of_a_container() -> None:
    usage = np.array([[1, 300 * MIB], [2, 500 * MIB], [0.5, 900 * MIB]])
    small = feature_matrix(series_of(usage), USAGE_FEATURES)
    large = feature_matrix(series_of(100 * usage), USAGE_FEATURES)
    np.testing.assert_allclose(large[:, 2:], small[:, 2:], atol=0.03)
    assert (large[:, :2] > small[:, :2] + 6).all()


def test_the_influence_of_the_past_fades() -> None:
    """A service that doubled its level long ago is at its usual level again."""
    cores = np.repeat([1.0, 2.0], [MAX_HISTORY_SAMPLES, 8 * MAX_HISTORY_SAMPLES])
    matrix = feature_matrix(series_of(np.column_stack([cores, cores * MIB])), USAGE_FEATURES)
    assert matrix[MAX_HISTORY_SAMPLES, 2] > 0.9
    assert matrix[-1, 2] < 0.01


def test_named_columns_are_used_as_they_are_and_missing_in_gaps() -> None:
    usage = np.array([[1, MIB], [math.nan, math.nan], [2, MIB]])
    gpu = np.array([0.5, 0.6, 0.7])
    matrix = feature_matrix(series_of(usage, gpu_util=gpu), ("gpu_util", "cpu_cores", "memory_bytes"))
    np.testing.assert_array_equal(matrix, [[0.5, 1, MIB], [math.nan] * 3, [0.7, 2, MIB]])


def test_only_columns_of_the_data_are_requested_from_the_source() -> None:
    assert source_columns(("cpu.level", "cpu_cores", "gpu_util")) == ("gpu_util",)


def test_an_unknown_feature_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r"gpu_utill.*known: .*gpu_util") as caught:
        feature_matrix(series_of(np.ones((1, 2)), gpu_util=np.ones(1)), ("gpu_utill",))
    assert "--map" in str(caught.value)
