"""What is known of live containers, side by side: a step then counts for all of them in a few calls."""

from __future__ import annotations

import numpy as np

from recommender.records import CPU, UNKNOWN_PHASE, BoolArray, FloatArray, IntArray
from recommender.slots import SlotArrays, fresh

UNDECIDED, BY_FORECAST, BY_CLASS, BY_PAST = range(4)
"""Who decided for a container: nobody yet, the forecast from its phases, earlier runs of its class, or its own past."""

SEEN_BEFORE = (BY_CLASS, BY_PAST)
"""Those who know what is wanted from having seen it; the forecast rests meanwhile."""

POLICIES = ("none", "phase.proactive", "class.runs", "own.past")
"""Their names, as policies of the dry run are called."""

NOBODY = -1
"""The group of a container that no VPA speaks for."""

AHEAD_S = 60.0
"""Clocks of nodes differ by seconds. What comes from farther in the future is told by a clock that is wrong, and would
make all that comes after it look late."""

ALIKE = 0.01
"""Of a container at its limit, which cannot use more than that, only what is as near tells that it wants no more."""

NOISE_SAMPLES = 2
"""So many in a row are no noise that came up to the limit by chance."""

WANTED = 1.5
"""What is wanted is taken to be so many times what is used, then: a limit that is far too low is left in a few runs."""

_NOTHING = np.full(2, np.nan)


class ContainerArrays(SlotArrays):
    """By slot; in twos: cores and bytes."""

    alive: BoolArray = fresh(False)
    """A container lives there."""
    group: IntArray = fresh(NOBODY)
    """Its group's slot, `NOBODY` while no VPA speaks for it."""
    first_cell: IntArray = fresh(0)
    start_cell: IntArray = fresh(0)
    last_cell: IntArray = fresh(0)
    """Grid cells of its first sample, of its present run's start (that of the first sample when nobody says), and of
    its latest row."""
    undecided: IntArray = fresh(0)
    unremembered: IntArray = fresh(0)
    """How many of its latest rows no decision, and the history, have seen yet."""
    samples: IntArray = fresh(0)
    """Samples so far, gaps left out."""
    sampled_s: FloatArray = fresh(-np.inf)
    every_s: FloatArray = fresh(0.0)
    """When its latest sample was taken (unix seconds), and how long it takes from one to the next."""
    used: FloatArray = fresh(_NOTHING)
    """(n, 2): what that sample says."""
    cycle: IntArray = fresh(0)
    cycle_cpu_cores: FloatArray = fresh(_NOTHING)
    """Which cycle of the clock the latest sample is of; (n, 2): the largest use in that one, and in the one before."""
    had: FloatArray = fresh(_NOTHING)
    limits: FloatArray = fresh(_NOTHING)
    """(n, 2): its requests and limits, NaN where absent."""
    input_size: FloatArray = fresh(np.nan)
    """Of what its run works on; NaN where nobody says."""
    costly: BoolArray = fresh(False)
    """A kill costs it more than others."""
    given: BoolArray = fresh(False)
    """It has had, at some time, what we published: what it has is ours to answer for."""
    pinned: IntArray = fresh(0)
    """How many more of its latest samples used just the CPU that it had than did not: it may want more."""
    free_cpu_cores: FloatArray = fresh(np.nan)
    """The most that it used lately in samples in which it did not use all that it had; NaN before there was one."""
    throttled: IntArray = fresh(0)
    """Samples in a row in which it used all of its CPU limit and may have wanted more."""
    phase: IntArray = fresh(UNKNOWN_PHASE)
    since_cell: IntArray = fresh(0)
    """Its phase now, and the grid cell in which it began."""
    class_asked_s: FloatArray = fresh(-np.inf)
    """When its class was asked last, unix seconds."""
    table: IntArray = fresh(0)
    """Where the forecast keeps what its class showed."""
    decided_by: IntArray = fresh(UNDECIDED)
    """`UNDECIDED`, `BY_FORECAST`, `BY_CLASS` or `BY_PAST`."""
    wanted: FloatArray = fresh(_NOTHING)
    """(n, 2): what was decided."""
    promised: BoolArray = fresh(False)
    """Its class promises what memory the rest of its run needs."""

    def follow_clock(self, latest_s: float, step_s: float) -> None:
        """After a clock was set back: what was seen by the old one moves with it, or all that comes would be late.

        Parameters
        ----------
        latest_s
            No sample that is right is of later than this.
        """
        ahead = self.last_cell - int(latest_s // step_s)
        late = np.flatnonzero(self.alive & (ahead > 0))
        if not len(late):
            return
        for cells in (self.first_cell, self.start_cell, self.last_cell, self.since_cell):
            cells[late] -= ahead[late] + int(AHEAD_S // step_s) + 2
        self.sampled_s[late] = self.last_cell[late] * step_s
        self.class_asked_s[late] = -np.inf

    def see_cycle(self, slots: IntArray, cpu_cores: FloatArray, cycle: int) -> None:
        """Note the largest CPU of this cycle of the clock, and of the one before."""
        passed = cycle - self.cycle[slots]
        if len(later := np.flatnonzero(passed > 0)):
            before = np.where(passed[later] == 1, self.cycle_cpu_cores[slots[later], 0], np.nan)
            self.cycle_cpu_cores[slots[later], 1], self.cycle_cpu_cores[slots[later], 0] = before, np.nan
        self.cycle_cpu_cores[slots, 0] = np.fmax(self.cycle_cpu_cores[slots, 0], cpu_cores)
        self.cycle[slots] = cycle

    def cut_off(self, slots: IntArray, cpu_cores: FloatArray) -> BoolArray:
        """Whether these use all of their CPU limit, float64 (m,), and not just what they used with room for more.

        What they use tells nothing then of what they want. A limit that is NaN is none.
        """
        at_limit = cpu_cores >= self.limits[slots, CPU] * (1.0 - ALIKE)
        as_with_room = np.abs(cpu_cores - self.free_cpu_cores[slots]) <= ALIKE * cpu_cores
        cut_off: BoolArray = at_limit & ~as_with_room
        return cut_off

    def demand(self, slots: IntArray, usage: FloatArray) -> FloatArray:
        """What these are taken to want, float64 (m, 2): what they use, unless a limit has cut that off for a while.

        Learned as it is seen, each run of a class would be given what the one before was held to. So the next one that
        comes to the same point has more, and shows whether it wants that.
        """
        demand = usage.copy()
        demand[self.throttled[slots] >= NOISE_SAMPLES, CPU] *= WANTED
        return demand
