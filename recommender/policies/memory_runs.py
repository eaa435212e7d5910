"""Memory bounds of a run from the earlier runs of its class.

Two facts of each earlier run are kept: its peak, and its largest rise within the lead time of a decision, relative to
the recent peak, which is that since the run was a quarter to half as old (`kernels.runs`). The next run is
allocated the smaller of the peak of the class and its own recent peak x the largest rise of the class: a peak that is
over is released, unless earlier runs had another. Both are bounds that hold with a chosen probability, from the first
run on (`promise`). A run whose class has none is allocated its own peak x a margin.

Where runs tell the size of their input, peaks are regressed on it (as in Bader et al., "Predicting Dynamic Memory
Requirements for Scientific Workflow Tasks", 2023): the peaks of earlier runs are scaled to the input of the next one,
each by the line fitted to the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from recommender.base.records import BoolArray, FloatArray, IntArray
from recommender.base.slots import SlotArrays, fresh
from recommender.kernels.runs import observe_memory
from recommender.policies.evidence import Turnover, is_light
from recommender.policies.promise import MIN_CLASSES, Spread, fit_spread, upper_bound, variances_of

AGES = 12  # rises are kept from the ages of 1, 2, 4, ... 2048 samples on.
WARM_UP_STEPS = 4  # samples before which a run has the peak of its class: the time of its first sample is chance

MAX_LEAD_STEPS = 39
"""Longer lead times count as this long: recent peaks are kept for so many steps, and for the latest one."""

KINDS = 1 + AGES  # kinds of amounts of a run that are bounded: its peak, and its rises
MAX_LOG = 100.0  # a bound above its exponential is none

NO_CLASSES = np.empty((2, 0, KINDS))
MIN_INPUTS = 3  # runs with a known input that tell how peaks follow it

MAX_DECLARED_RATIO = 2.0
"""Runs whose owners declare memory further apart than this are of different kinds, and tell nothing of each other."""

MAX_RUNS = 256  # latest runs kept of a class, which changes with its code
MAX_CACHED_INPUTS = 4096  # input sizes for which a class caches its bounds

N_BOUNDS = 2
"""A run is killed above the bound of its peak or of its rises: each may be exceeded by its part of the target share."""

MIN_RUNS_ALONE = 6
"""Runs from which a class bounds a memory limit while too few classes of its namespace are known."""

LEAST_TARGET = 1e-4  # lower targets count as this one: without any kill there would be no bound

UNDECLARED_RATIO = 2.0  # to the largest known peak: what is allocated at most where nothing is declared

MAX_SLOWDOWN_DOUBLINGS = 1
"""A run may take 2 ** this times as long as earlier ones to the same point: rises count from that much earlier on."""

MIN_RELATIVE_INPUT, SINGULAR_TOLERANCE = 1e-3, 1e-9
"""Least input, as a share of the mean one; and the relative spread below which inputs are equal."""

MAX_EXTRAPOLATION = 4.0
"""Inputs above this multiple of the largest known one have no bound; small ones are clipped likewise."""

OWN_PEAK_MARGIN = 1.1  # least ratio of the allocation to a run's own peak once that reaches the peak of its class


class Spreads(NamedTuple):
    """How far runs of other classes spread."""

    kinds: tuple[Spread, ...] = (Spread(),) * KINDS  # of peaks and rises
    classes: int = 0  # of the namespace, which may differ from those of the training


class RunMemory(NamedTuple):
    """Memory of one run."""

    peak_bytes: float  # peak use; of a killed run, what it is assumed to have needed
    # float64 (AGES,): largest ratio of a sample to the recent peak when its allocation was decided, among decisions
    # from each age on; 0 for ages not reached.
    rises: FloatArray
    killed: bool = False  # for memory: its true peak is unknown
    input_size: float = math.nan  # size of its input, in a unit shared by the runs of its class; NaN if unknown
    duration_s: float = math.nan  # until it ended or was killed; NaN if unknown
    declared_bytes: float = math.nan  # its request as its owner declared it; NaN if unknown


class NextRun(NamedTuple):
    """What is known of a run that has not ended."""

    target_kills: float
    """Share of such runs that may be killed."""
    input_size: float = math.nan
    declared_bytes: float = math.nan
    """See `RunMemory`."""
    spread: Spreads = Spreads()
    limit_follows: bool = False
    """Whether its memory limit follows its request."""

    @property
    def share(self) -> float:
        """Probability with which it may exceed each of its bounds."""
        return max(self.target_kills, LEAST_TARGET) / N_BOUNDS


class MemoryBounds(NamedTuple):
    """Upper bounds for the next run of a class."""

    runs: int  # number of earlier runs behind them, without killed ones
    peak_bytes: float  # bound of the peak; NaN without one
    # float64 (AGES,): bound of the rise, as a ratio to the recent peak; infinite where too few runs became that old.
    rises: FloatArray
    least_bytes: float = 0.0  # without a bound: what killed runs are known to need; 0 without any
    # Whether the peaks were scaled to the input of the run; without a bound, whether that is too large for one.
    by_input: bool = False


COLUMNS = "peaks_bytes", "rises", "killed", "input_sizes", "durations_s", "declared_bytes"
"""Attributes of `ClassMemory`, in the order of the fields of `RunMemory`."""

NO_BOUNDS = MemoryBounds(0, np.nan, np.full(AGES, np.inf))


class MemoryOfRuns(SlotArrays):
    """Memory of many active runs, see `kernels.runs`."""

    age_steps: IntArray = fresh(0)  # (n,): samples since the first one, including gaps
    rises: FloatArray = fresh(np.zeros(AGES))  # (n, AGES): see `RunMemory`
    lately_before: FloatArray = fresh(np.zeros(MAX_LEAD_STEPS + 1))
    largest_bytes: FloatArray = fresh(0.0)  # (n,): peak so far, 0 before the first sample
    octave_bytes: FloatArray = fresh(np.zeros(2))
    """(n, 2): peaks in the last completed doubling of the age, and since; 0 without samples."""

    def observe(self, slots: IntArray, memory_bytes: FloatArray, lead_steps: int, *, again: bool = False) -> None:
        """Add the next sample of each container, NaN in a gap; with `again` further samples of the latest step.

        `lead_steps`: from the last sample known to a decision to the first one under it, clipped to `MAX_LEAD_STEPS`.
        """
        observe_memory(
            slots, memory_bytes, min(lead_steps, MAX_LEAD_STEPS),
            self.age_steps, self.largest_bytes, self.octave_bytes, self.lately_before, self.rises,
            again,
        )  # fmt: skip

    def recent_peak_bytes(self, slots: IntArray) -> FloatArray:
        """float64 (m,): peak since a run was a quarter to half as old; 0 without samples."""
        recent: FloatArray = self.octave_bytes[slots].max(axis=1)
        return recent

    def run(self, slot: int) -> RunMemory:
        """The memory of a run that ends now."""
        return RunMemory(float(self.largest_bytes[slot]), self.rises[slot].copy())

    def killed_run(self, slot: int, needed_bytes: float) -> RunMemory:
        """The memory of a run that was killed now and is assumed to have needed `needed_bytes`."""
        ended, recent_bytes = self.run(slot), float(self.recent_peak_bytes(np.array([slot]))[0])
        rise = needed_bytes / recent_bytes if recent_bytes > 0.0 else 0.0
        rises = np.where(ended.rises > 0.0, np.fmax(ended.rises, rise), 0.0)
        return RunMemory(max(needed_bytes, ended.peak_bytes), rises, killed=True)


class ClassMemory:
    """Memory of the latest runs of a class, oldest first, the fields of `RunMemory` as arrays.

    Light runs (see `evidence`) bound no peak, except where one was killed: only a kubelet reports that. Their rises
    count, at the few ages that they reached: at most, they leave a run the peak of its class for so long.
    """

    def __init__(self, runs: Iterable[RunMemory] = ()) -> None:
        self.peaks_bytes, self.rises, self.killed = np.zeros(0), np.zeros((0, AGES)), np.zeros(0, bool)
        self.input_sizes, self.durations_s, self.declared_bytes = np.zeros(0), np.zeros(0), np.zeros(0)
        self._turnover = Turnover()
        self._bounds: dict[tuple[float | None, ...], MemoryBounds] = {}
        self._spread = Spreads()  # which these are for: too long a key to be hashed for each container
        for run in runs:
            self.add(run)

    def __len__(self) -> int:
        return len(self.peaks_bytes)

    def __iter__(self) -> Iterator[RunMemory]:
        peaks, *others = (getattr(self, name).tolist() for name in COLUMNS if name != "rises")
        return map(RunMemory, peaks, self.rises, *others)

    def add(self, run: RunMemory) -> None:
        """Add a run that ended or was killed."""
        for name, amount in zip(COLUMNS, run, strict=True):
            setattr(self, name, np.concatenate([getattr(self, name), np.array(amount)[np.newaxis]]))
        if len(self) > MAX_RUNS:
            displaced = self._turnover.displaced(self.durations_s)
            for name in COLUMNS:
                setattr(self, name, np.delete(getattr(self, name), displaced, axis=0))
        self._bounds.clear()

    def bounds(self, run: NextRun) -> MemoryBounds:
        """Bounds that a run exceeds in at most its `target_kills` of cases; peaks are scaled to a known input."""
        if run.spread is not self._spread:
            self._bounds.clear()
            self._spread = run.spread
        key = tuple(
            None if math.isnan(part) else part
            for part in (run.target_kills, run.input_size, run.declared_bytes, run.limit_follows)
        )
        if key not in self._bounds:
            if len(self._bounds) >= MAX_CACHED_INPUTS:
                self._bounds.clear()
            self._bounds[key] = self._bound(run)
        return self._bounds[key]

    def variances(self) -> FloatArray:
        """float64 (2, KINDS): variances of the logarithms of its runs of the latest kind, and their number less one."""
        if not len(self):
            return np.zeros((2, KINDS))
        counts = self._of_kind(float(self.declared_bytes[-1])) & self._counts()
        amounts = np.column_stack([self.peaks_bytes[counts], self.rises[counts]])
        logs = np.log(np.where(amounts > 0.0, np.maximum(amounts, 1.0), np.nan))
        return variances_of(logs)

    def largest_bytes(self, declared_bytes: float) -> float:
        """Largest known peak of runs of this kind; 0 without any."""
        return float(self.peaks_bytes[self._of_kind(declared_bytes) & self._counts()].max(initial=0.0))

    def _counts(self) -> BoolArray:
        """bool (n,): runs that were long enough to tell their peak, or killed; one without samples has none."""
        counts: BoolArray = (~is_light(self.durations_s) | self.killed) & (self.peaks_bytes > 0.0)
        return counts

    def _of_kind(self, declared_bytes: float) -> BoolArray:
        """bool (n,): runs that tell about one with this declared memory."""
        declared, most = self.declared_bytes, MAX_DECLARED_RATIO
        apart: BoolArray = (declared > most * declared_bytes) | (declared_bytes > most * declared)
        return ~apart

    def _bound(self, run: NextRun) -> MemoryBounds:
        input_size, of_kind = run.input_size, self._of_kind(run.declared_bytes)
        counts = of_kind & self._counts()
        known = counts & ~np.isnan(self.input_sizes)
        by_input = not math.isnan(input_size) and int(np.count_nonzero(known & ~self.killed)) >= MIN_INPUTS
        too_large = by_input and input_size > MAX_EXTRAPOLATION * self.input_sizes[known].max()
        used = known if by_input else counts
        sizes, peaks_bytes = self.input_sizes[used], self.peaks_bytes[used]
        ended = int(np.count_nonzero(used & ~self.killed))
        alone = run.limit_follows and run.spread.classes < MIN_CLASSES
        if too_large or ended < (MIN_RUNS_ALONE if alone else 1):
            least_bytes = float(self.peaks_bytes[counts & self.killed].max(initial=0.0))
            return NO_BOUNDS._replace(runs=ended, least_bytes=least_bytes, by_input=too_large)
        if by_input:
            scaled = peaks_at_input(max(input_size, float(sizes.min()) / MAX_EXTRAPOLATION), sizes, peaks_bytes)
            # A nonsensical size such as 1e-300 must not be extrapolated to almost nothing, or to infinity.
            peaks_bytes = np.clip(scaled, peaks_bytes.min() / MAX_EXTRAPOLATION, MAX_EXTRAPOLATION * peaks_bytes.max())
        largest_bytes = float(peaks_bytes.max())
        most = UNDECLARED_RATIO * largest_bytes if math.isnan(run.declared_bytes) else run.declared_bytes
        peak_bytes = min(_bound(peaks_bytes, run, 0), max(most, OWN_PEAK_MARGIN * largest_bytes))
        every, of_longer = (
            np.array([_bound(np.maximum(column[column > 0], 1.0), run, 1 + age) for age, column in enumerate(rises.T)])
            for rises in (self.rises[of_kind], self.rises[counts])
        )
        return MemoryBounds(
            ended, peak_bytes, _no_later_rise_is_larger(np.maximum(every, of_longer)), by_input=by_input
        )


def variances_of_classes(classes: Iterable[ClassMemory]) -> FloatArray:
    """float64 (2, classes, KINDS): see `ClassMemory.variances`, of those with more than one run."""
    found = np.array([memory.variances() for memory in classes]).reshape(-1, 2, KINDS)
    return found[found[:, 1, 0] > 0.0].swapaxes(0, 1)


def spread_of_classes(variances: FloatArray, classes: int = 0) -> Spreads:
    """How far runs of classes like these spread; at ages that too few of them reached as at the age before."""
    spreads = [fit_spread(*variances[:, :, kind]) for kind in range(KINDS)]
    for age in range(2, KINDS):
        spreads[age] = spreads[age] if spreads[age].freedom else spreads[age - 1]
    return Spreads(tuple(spreads), classes)


def peaks_at_input(input_size: float, input_sizes: FloatArray, peaks_bytes: FloatArray) -> FloatArray:
    """Scale the peaks of at least three runs, float64 (n,) bytes, to another input; sizes are positive.

    The ratio of each peak to its leave-one-out prediction is kept (as in the jackknife+ of Barber, Candes, Ramdas and
    Tibshirani, 2021): a line fitted to the run itself would flatter it. Where the least-squares line falls, or all
    others have one input, it is replaced by the mean; where it starts below zero, by the line through the origin.
    """
    scale, n = float(input_sizes.mean()), len(input_sizes) - 1
    x, y = np.maximum(input_sizes / scale, MIN_RELATIVE_INPUT), peaks_bytes
    # Leave-one-out sums: over all, less the run's own.
    sum_x, sum_y, sum_xx, sum_xy = (values.sum() - values for values in (x, y, x * x, x * y))
    spread = n * sum_xx - sum_x**2
    regular = spread > SINGULAR_TOLERANCE * n * (x * x).sum()
    slope = np.where(regular, (n * sum_xy - sum_x * sum_y) / np.where(regular, spread, 1.0), 0.0)
    slope = np.maximum(slope, 0.0)
    intercept = (sum_y - slope * sum_x) / n
    slope, intercept = np.where(intercept < 0.0, sum_xy / sum_xx, slope), np.maximum(intercept, 0.0)
    scaled: FloatArray = (intercept + slope * (input_size / scale)) * y / (intercept + slope * x)
    return scaled


def memory_targets(
    age_steps: IntArray,
    largest_bytes: FloatArray,
    recent_peak_bytes: FloatArray,
    declared_bytes: FloatArray,
    peak_bytes: FloatArray,
    rises: FloatArray,
    margin: float,
) -> FloatArray:
    """Allocation of each run until the next decision, float64 (n,); NaN if nothing is declared, bounded and sampled.

    `age_steps`, `largest_bytes`, `recent_peak_bytes`: (n,): samples so far, their peak, and the recent one, 0 at first.
    `declared_bytes`: float64 (n,): declared requests, or NaN; they count before the first sample.
    `peak_bytes`, `rises`: float64 (n,) and (n, AGES), or (AGES,) for all: `MemoryBounds` of the class of each run.
    `margin`: without bounds, the ratio to the own peak.
    """
    doublings = np.log2(np.maximum(age_steps, 1)).astype(np.int64)
    column = np.minimum(np.maximum(doublings - MAX_SLOWDOWN_DOUBLINGS, 0), AGES - 1)
    # Runs whose memory only fell may not do so again: the recent peak stays allocated.
    rise = np.maximum(rises[np.arange(len(column)), column] if rises.ndim == 2 else rises[column], 1.0)
    known = (age_steps >= WARM_UP_STEPS) & (recent_peak_bytes > 0.0)
    # Without samples this would be 0 x infinity; the peak of the class applies.
    by_rise = np.where(known, np.where(known, recent_peak_bytes, 1.0) * rise, np.inf)
    bounded = np.where(by_rise < peak_bytes, by_rise, np.maximum(peak_bytes, largest_bytes * OWN_PEAK_MARGIN))
    own = np.where(largest_bytes > 0, largest_bytes * margin, declared_bytes)
    targets: FloatArray = np.where(np.isnan(peak_bytes), own, bounded)
    return targets


def _no_later_rise_is_larger(rises: FloatArray) -> FloatArray:
    """Rises from an age on include those from later ages on; fewer runs, or their spread, may bound these higher.

    What is lowered for a bound is then not raised again for the next one. Infinite rises, float64 (AGES,), are unknown.
    """
    later = np.maximum.accumulate(np.where(np.isfinite(rises), rises, 0.0)[::-1])[::-1]
    return np.fmax(rises, later)


def _bound(values: FloatArray, run: NextRun, kind: int) -> float:
    """What the run exceeds with the accepted probability, by these amounts of earlier ones; infinite if unknown."""
    bound = upper_bound(np.log(values), run.spread.kinds[kind], run.share)
    return math.exp(bound) if bound < MAX_LOG else math.inf
