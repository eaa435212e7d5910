"""Peak use of earlier runs after the moment that is nearest to the present one of another run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.kernels.runs import peak_after_nearest
from tests.reference.class_runs import EarlierRun, naive_peak_after

N_FEATURES = 2


def nearest_peaks(
    runs: list[EarlierRun], here: list[float], passed_s: float, ahead_s: list[float]
) -> list[list[tuple[float, float]]]:
    """For each run and time ahead: the squared distance of the nearest moment and the peak use after it."""
    points = np.array([point for run in runs for point in run.points], np.float32).reshape(-1, N_FEATURES)
    cpu_cores = np.array([cores for run in runs for cores in run.cpu_cores], np.float32)
    starts = np.cumsum([0, *(len(run.points) for run in runs)])
    squares, largest = np.empty(len(runs)), np.empty((len(runs), len(ahead_s)))
    peak_after_nearest(
        np.array(here, np.float32), points, cpu_cores, starts, np.array([run.step_s for run in runs]), passed_s,
        np.array(ahead_s), squares, largest,
    )  # fmt: skip
    return [[(square, cores) for cores in row] for square, row in zip(squares.tolist(), largest.tolist(), strict=True)]


def test_the_peak_use_within_the_time_after_the_nearest_moment_is_found() -> None:
    """Nearest is the end of the second sample; within ten seconds comes the third, within twenty the fourth."""
    run = EarlierRun([(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (3.0, 0.0)], [0.25, 0.25, 0.5, 2.0], 10.0)
    assert nearest_peaks([run], [1.25, 0.0], 0.0, [10.0, 20.0]) == [[(0.0625, 0.5), (0.0625, 2.0)]]
    assert nearest_peaks([run], [1.25, 0.0], 10.0, [10.0]) == [[(0.0625, 2.0)]], "ten seconds have passed since"
    assert nearest_peaks([run], [], 0.0, [10.0, 40.0]) == [[(0.0, 0.25), (0.0, 2.0)]], "no sample: found by age"
    assert nearest_peaks([run], [9.0, 0.0], 60.0, [10.0]) == [[(36.0, 2.0)]], "the run has ended: its last use"


QUARTERS = st.integers(0, 8).map(lambda number: number / 4)
SAMPLE = st.tuples(st.tuples(QUARTERS, QUARTERS), QUARTERS)
RUN = st.tuples(st.lists(SAMPLE, min_size=1, max_size=8), st.sampled_from([5.0, 10.0]))
HERE = st.one_of(st.just([]), st.lists(QUARTERS, min_size=N_FEATURES, max_size=N_FEATURES))


@given(st.lists(RUN, min_size=1, max_size=4), HERE, st.integers(0, 60), st.lists(st.integers(1, 60), max_size=3))
def test_the_kernel_agrees_with_the_reference(
    runs: list[tuple[list[tuple[tuple[float, float], float]], float]],
    here: list[float],
    passed_s: int,
    ahead: list[int],
) -> None:
    earlier = [EarlierRun([p for p, _ in samples], [cores for _, cores in samples], step_s) for samples, step_s in runs]
    found = nearest_peaks(earlier, here, float(passed_s), [float(one) for one in ahead])
    for run, row in zip(earlier, found, strict=True):
        assert row == [pytest.approx(naive_peak_after(run, here, float(passed_s), float(one))) for one in ahead]
