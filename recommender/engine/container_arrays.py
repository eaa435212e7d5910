"""What is known of live containers, side by side: a step then counts for all of them in a few calls."""

from __future__ import annotations

import numpy as np

from recommender.records import UNKNOWN_PHASE, BoolArray, FloatArray, IntArray
from recommender.slots import SlotArrays

UNDECIDED, BY_FORECAST, BY_CLASS, BY_PAST = range(4)
"""Who decided for a container: nobody yet, the forecast from its phases, earlier runs of its class, or its own past."""

SEEN_BEFORE = (BY_CLASS, BY_PAST)
"""Those who know what is wanted from having seen it; the forecast rests meanwhile."""

POLICIES = ("none", "phase.proactive", "class.runs", "own.past")
"""Their names, as policies of the dry run are called."""

NOBODY = -1
"""The group of a container that no VPA speaks for."""

_NOTHING = np.full(2, np.nan)


class ContainerArrays(SlotArrays):
    """By slot.

    Attributes
    ----------
    alive
        A container lives there.
    group
        Its group's slot, `NOBODY` while no VPA speaks for it.
    first_cell, start_cell, last_cell
        Grid cells of its first sample, of its present run's start (that of the first sample when nobody says), and of
        its latest row.
    undecided, unremembered
        How many of its latest rows no decision, and the history, have seen yet.
    samples
        Samples so far, gaps left out.
    sampled_s, every_s
        When its latest sample was taken (unix seconds), and how long it takes from one to the next.
    used
        (n, 2): what that sample says, cores and bytes.
    cycle, cycle_cpu_cores
        Which cycle of the clock the latest sample is of; (n, 2): the largest use in that one, and in the one before.
    had, limits
        (n, 2): its requests and limits, NaN where absent.
    input_size
        Of what its run works on; NaN where nobody says.
    costly
        A kill costs it more than others.
    given
        It has had, at some time, what we published: what it has is ours to answer for.
    pinned
        How many more of its latest samples used just the CPU that it had than did not: it may want more.
    free_cpu_cores
        The most that it used lately in samples in which it did not use all that it had; NaN before there was one.
    throttled
        Samples in a row in which it used all of its CPU limit and may have wanted more.
    phase, since_cell
        Its phase now, the one before, and the grid cell in which it began.
    class_asked_s
        When its class was asked last, unix seconds.
    table
        Where the forecast keeps what its class showed.
    decided_by
        `UNDECIDED`, `BY_FORECAST`, `BY_CLASS` or `BY_PAST`.
    wanted
        (n, 2): what was decided, cores and bytes.
    promised
        Its class promises what memory the rest of its run needs.
    """

    alive: BoolArray
    group: IntArray
    first_cell: IntArray
    start_cell: IntArray
    last_cell: IntArray
    undecided: IntArray
    unremembered: IntArray
    samples: IntArray
    sampled_s: FloatArray
    every_s: FloatArray
    used: FloatArray
    cycle: IntArray
    cycle_cpu_cores: FloatArray
    had: FloatArray
    limits: FloatArray
    input_size: FloatArray
    costly: BoolArray
    given: BoolArray
    pinned: IntArray
    free_cpu_cores: FloatArray
    throttled: IntArray
    phase: IntArray
    since_cell: IntArray
    class_asked_s: FloatArray
    table: IntArray
    decided_by: IntArray
    wanted: FloatArray
    promised: BoolArray

    def __init__(self) -> None:
        cells = dict.fromkeys(("first_cell", "start_cell", "last_cell", "since_cell"), 0)
        numbers = dict.fromkeys(("undecided", "unremembered", "samples", "pinned", "throttled", "cycle", "table"), 0)
        marks = dict.fromkeys(("alive", "given", "promised", "costly"), False)
        amounts = dict.fromkeys(("used", "had", "limits", "wanted", "cycle_cpu_cores"), _NOTHING)
        phases = {"phase": UNKNOWN_PHASE}
        times = {
            "sampled_s": -np.inf,
            "class_asked_s": -np.inf,
            "every_s": 0.0,
            "free_cpu_cores": np.nan,
            "input_size": np.nan,
        }
        super().__init__(
            {**cells, **numbers, **marks, **amounts, **phases, **times, "group": NOBODY, "decided_by": UNDECIDED}
        )
