"""State of the live containers as arrays by slot, so that one step updates all of them in a few NumPy calls."""

from __future__ import annotations

import numpy as np

from recommender.base.records import UNKNOWN_PHASE, BoolArray, FloatArray, IntArray
from recommender.base.slots import SlotArrays, fresh

UNDECIDED, BY_USE, BY_GRAPH, BY_CLASS, BY_PAST = range(5)
"""What decided the CPU of a container: nothing yet, the peak of its latest samples, the phase graph, earlier runs of
its class, or its own past."""

BY_EXPERIENCE = BY_CLASS
"""This and those after it rest on usage seen before."""

POLICIES = ("none", "recent.use", "phase.graph", "class.runs", "own.past")
"""Name of each, as in the dry run."""

NO_GROUP = -1
"""Group of a container that no VPA covers."""

MAX_CLOCK_SKEW_S = 60.0
"""Clocks of nodes differ by seconds. A sample from further ahead is wrong, and would make all later ones look late."""

UNKNOWN = np.full(2, np.nan)


class ContainerArrays(SlotArrays):
    """By slot; arrays of shape (n, 2) hold cores and bytes."""

    alive: BoolArray = fresh(False)
    """The slot is taken."""
    group: IntArray = fresh(NO_GROUP)
    """Slot of its group, `NO_GROUP` while no VPA covers it."""
    first_cell: IntArray = fresh(0)
    start_cell: IntArray = fresh(0)
    last_cell: IntArray = fresh(0)
    """Grid cells of its first sample, its present start (of the first sample if unknown) and its latest row."""
    started_s: FloatArray = fresh(-np.inf)
    """Unix seconds of the latest known start of its container: earlier samples are of another run."""
    rows_since_decision: IntArray = fresh(0)
    rows_since_history: IntArray = fresh(0)
    """Latest rows that no decision, and the histogram history, has taken in yet."""
    samples: IntArray = fresh(0)
    """Samples so far, gaps excluded."""
    sampled_s: FloatArray = fresh(-np.inf)
    sample_interval_s: FloatArray = fresh(0.0)
    """Time of its latest sample (unix seconds), and the smoothed interval between samples."""
    used: FloatArray = fresh(UNKNOWN)
    """(n, 2): usage of that sample."""
    cycle: IntArray = fresh(0)
    cycle_cpu_cores: FloatArray = fresh(UNKNOWN)
    """Number of the clock cycle of the latest sample; (n, 2): peak CPU in that cycle and in the previous one."""
    requests: FloatArray = fresh(UNKNOWN)
    limits: FloatArray = fresh(UNKNOWN)
    """(n, 2): NaN where absent."""
    previous_bounds: FloatArray = fresh(UNKNOWN)
    """(n, 2): cores requested, where requests are ours, and limit, at the latest sample."""
    input_size: FloatArray = fresh(np.nan)
    """Size of the input of its run; NaN if unknown."""
    costly: BoolArray = fresh(False)
    """A kill costs more than usual."""
    had_target: BoolArray = fresh(False)
    """Its requests have matched our target at least once, so its violations are ours."""
    censored_samples: IntArray = fresh(0)
    """Consecutive samples that used all the CPU there was, those at a limit twice: the demand was at least that."""
    censored_cpu_cores: FloatArray = fresh(np.nan)
    """Use in those samples, until there is one with room; NaN if there is none."""
    free_cpu_cores: FloatArray = fresh(np.nan)
    """Decaying peak of the CPU use in samples with room; NaN before the first."""
    tested: BoolArray = fresh(False)
    """Demand was censored once: headroom shows whether it is again."""
    withheld: BoolArray = fresh(False)
    """It used more once there was more: what it has, it may need."""
    foreseen: BoolArray = fresh(False)
    """Its own past, or enough runs of its class, tell what CPU it needs next."""
    phase: IntArray = fresh(UNKNOWN_PHASE)
    since_cell: IntArray = fresh(0)
    """Its present phase, and the grid cell in which it began."""
    has_class: BoolArray = fresh(False)
    class_queried_s: FloatArray = fresh(-np.inf)
    class_cores: FloatArray = fresh(UNKNOWN)
    class_foresees: BoolArray = fresh(False)
    """It has a workload class, and when that was last queried (unix seconds); (n, 2): the CPU that it needs soon and
    for longer, NaN where unknown; and whether enough runs say so."""
    table: IntArray = fresh(0)
    """Index of the forecast tables of its class."""
    decided_by: IntArray = fresh(UNDECIDED)
    """`UNDECIDED`, `BY_USE`, `BY_GRAPH`, `BY_CLASS` or `BY_PAST`."""
    wanted: FloatArray = fresh(UNKNOWN)
    """(n, 2): the decision."""
    least_bytes: FloatArray = fresh(0.0)
    """What killed runs of its class are known to need, while the class gives no bound; 0 without any."""
    promised: BoolArray = fresh(False)
    """Its class bounds the memory that the rest of its run needs."""

    def follow_clock(self, latest_s: float, step_s: float) -> None:
        """After a clock was set back, shift what was seen by the old clock, or every new sample would look late.

        No valid sample is later than `latest_s`.
        """
        ahead = self.last_cell - int(latest_s // step_s)
        late = np.flatnonzero(self.alive & (ahead > 0))
        if not len(late):
            return
        for cells in (self.first_cell, self.start_cell, self.last_cell, self.since_cell):
            cells[late] -= ahead[late] + int(MAX_CLOCK_SKEW_S // step_s) + 2
        self.sampled_s[late] = self.last_cell[late] * step_s
        self.started_s[late] = -np.inf
