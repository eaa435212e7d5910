"""The transition graph of phases: what follows what, after how long, learned by counting.

`Counts` holds them, and gives a `networkx.DiGraph` to whoever draws or exports it. Its nodes are contexts of growing
order: `0` (a phase), `3 0` (a phase and the one before it, up to four), and the full context `1:4 3:5 0:8 ~2` (with
dwell buckets, and after `~` what followed the present phase earlier in the same container); besides them `start`, `end`
(the container is over, absorbing) and `open` (the recording was cut). An edge leads from a context to the next
different phase and carries `count`. Counts add, so graphs of many containers merge in any order; probabilities come
from shrinking long contexts towards shorter ones (`shrinkage`), dwell times from hazards (`dwell`). Source: AI4DL (a
graph whose nodes carry up to m preceding phases); back-off, dwell and the container's own past are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from recommender.errors import BadInput
from recommender.phases.contexts import (
    DWELL_STARTS,
    NONE,
    Context,
    Run,
    checked_runs,
    history_name,
)
from recommender.phases.counts import Counts
from recommender.phases.dwell import DwellTable
from recommender.phases.outlook import Outlook
from recommender.phases.shrinkage import PAIR_CHAIN, ContextArrays, ContextModel, Learned, Questions
from recommender.records import FloatArray

if TYPE_CHECKING:
    import networkx as nx

START, END, OPEN = "start", "end", "open"

_AT_ONCE = 4096
"""Histories laid out in one go; each brings up to a hundred earlier runs along."""


class PhaseGraph:
    """Counts of phase transitions in context, and the forecasts they give.

    Parameters
    ----------
    n_phases
        Phases known beforehand (those of a model); the graph grows beyond it when it meets a higher number.

    Examples
    --------
    >>> graph = PhaseGraph.fit([[(1, 4), (3, 5), (0, 9)], [(1, 4), (3, 6), (0, 7), (2, 1)]])
    >>> max(graph.next_phase([(1, 4), (3, 5)]).items(), key=lambda item: item[1])[0]
    0
    """

    def __init__(self, n_phases: int = 0) -> None:
        self.n_phases = 0
        self.containers = 0
        self._counts = Counts()
        for name in (START, END, OPEN):
            self._counts.add_node(name, kind=name)
        self._contexts: dict[str, Context] = {}
        self._model: ContextModel | None = None
        self._learned: Learned | None = None
        self._dwell: DwellTable | None = None
        self._outlook: Outlook | None = None
        self.reserve(n_phases)

    @classmethod
    def fit(cls, sequences: Iterable[Sequence[Run]], n_phases: int = 0) -> PhaseGraph:
        """A graph of the given containers, each a sequence of runs (phase, length in samples), oldest first."""
        graph = cls(n_phases)
        for sequence in sequences:
            graph.update(sequence)
        return graph

    def update(self, sequence: Sequence[Run], *, ended: bool = True) -> PhaseGraph:
        """Count one more container.

        Parameters
        ----------
        sequence
            All its runs, oldest first. An empty sequence changes nothing.
        ended
            False when the recording stops while the container goes on: its last run was then cut, not over.

        Raises
        ------
        BadInput
            A negative phase, a length below one, two neighbouring runs of one phase.
        """
        runs = checked_runs(sequence)
        if not runs:
            return self
        self.count_starts({runs[0][0]: 1})
        targets = [*(str(phase) for phase, _ in runs[1:]), END if ended else OPEN]
        for at, target in enumerate(targets):
            self.count(Context.of(runs[: at + 1]), {target: 1}, samples=runs[at][1])
        return self

    def count(self, context: Context, following: Mapping[str, int], samples: int) -> None:
        """Add to the edges out of a context, and out of every shorter one.

        Parameters
        ----------
        context
            Where from.
        following
            How often each target came: a phase number as text, `end` or `open`.
        samples
            Length in samples of all the runs this stands for.
        """
        for target in following:
            if target not in (END, OPEN):
                self.reserve(int(target) + 1)
        self.reserve(max(*context.phases, context.follower) + 1)
        full = context.name
        self._contexts.setdefault(full, context)
        names = [history_name(context.phases[:order]) for order in range(1, len(context.phases) + 1)]
        for order, (shorter, name) in enumerate(pairwise(names), start=2):
            if name not in self._counts:
                self._counts.add_node(name, kind="phases", order=order, shorter=shorter)
        if full not in self._counts:
            self._counts.add_node(full, kind="context", order=len(names), shorter=names[-1], samples=0)
        for name in (*names, full):
            for target, times in following.items():
                self._counts.add(name, target, times)
        self._counts.nodes[full]["samples"] += samples
        self._counts.nodes[names[0]]["samples"] += samples
        self._forget()

    def count_starts(self, starts: Mapping[int, int]) -> None:
        """Add containers that began with each phase."""
        for phase, times in starts.items():
            self.reserve(phase + 1)
            self._counts.add(START, str(phase), times)
            self.containers += times
        self._forget()

    def starts(self) -> dict[str, int]:
        """How many containers began with each phase (as text)."""
        return dict(self._counts.following(START))

    def reserve(self, n_phases: int) -> None:
        """Know at least the phases 0..n_phases - 1."""
        for phase in range(self.n_phases, n_phases):
            self._counts.add_node(str(phase), kind="phase", order=1, samples=0)
        if n_phases > self.n_phases:
            self.n_phases = n_phases
            self._forget()

    def counted(self) -> Iterator[tuple[Context, dict[str, int], int]]:
        """Every full context in a fixed order, with the count of each target and the samples spent in its last run."""
        for context in sorted(self._contexts.values()):
            yield context, dict(self._counts.following(context.name)), self._counts.nodes[context.name]["samples"]

    @property
    def digraph(self) -> nx.DiGraph:
        """A copy of nodes and counts for networkx."""
        return self._counts.digraph()

    @property
    def learned(self) -> Learned:
        """Shrinkage strength, bandwidth and chain weights, chosen from the counts when first asked for."""
        if self._learned is None:
            self._learned = self.context_model().learn()
        return self._learned

    @learned.setter
    def learned(self, learned: Learned) -> None:
        self._learned = learned

    def next_phase(self, history: Sequence[Run]) -> dict[int, float]:
        """Which different phase comes next, given that one comes.

        Parameters
        ----------
        history
            The container's runs so far with their lengths, oldest first, the present one last (taken as over with the
            length it has). Empty: the distribution of the first phase.

        Returns
        -------
        Probability of every known phase but the present one; sums to one, or is empty when no other phase is known.
        A present phase never seen gives what follows any phase.
        """
        runs = checked_runs(history)
        if not runs:
            return {int(phase): times / self.containers for phase, times in self.starts().items()}
        row = self.next_phases([runs])[0]
        return {int(p): float(row[p]) for p in np.flatnonzero(self.context_model().known) if p != runs[-1][0]}

    def next_phases(self, histories: Sequence[Sequence[Run]]) -> FloatArray:
        """`next_phase` for many non-empty histories at once: float64 (n, n_phases)."""
        model, learned = self.context_model(), self.learned
        parts = [histories[at : at + _AT_ONCE] for at in range(0, len(histories), _AT_ONCE)]
        shares = [model.predict(Questions.of(part), learned)[0] for part in parts]
        return np.concatenate(shares) if shares else np.zeros((0, self.n_phases))

    def expected_remaining(self, history: Sequence[Run]) -> float:
        """Expected further samples of the present run, given how long it has lasted."""
        previous, phase, length = self._state(history)
        return self._dwell_table().expected_remaining_at(previous, phase, length)

    def compile(self) -> Outlook:
        """The forecast as tables by (previous phase, phase, dwell bucket), kept until the counts change."""
        if self._outlook is None:
            self._outlook = Outlook(self._dwell_table().expected_remaining(), self._pair_table())
        return self._outlook

    def first_order(self) -> dict[int, dict[str, float]]:
        """For each phase seen, the share of each phase (as text) and of `end` among what followed it."""
        shares = {}
        for phase in range(self.n_phases):
            following = self._counts.following(str(phase))
            known = {target: times for target, times in following.items() if target != OPEN}
            if known:
                shares[phase] = {target: times / sum(known.values()) for target, times in known.items()}
        return shares

    def samples_in_phase(self) -> dict[int, int]:
        """Samples spent in each known phase."""
        return {phase: self._counts.nodes[str(phase)]["samples"] for phase in range(self.n_phases)}

    def _forget(self) -> None:
        """Drop what was worked out from the counts, because they changed."""
        self._model = None
        self._learned = None
        self._dwell = None
        self._outlook = None

    def context_model(self) -> ContextModel:
        """The counts as arrays, kept until they change."""
        if self._model is None:
            if not self._contexts:
                raise BadInput("the graph holds no container", remedy="Fit it on sequences first.")
            contexts, counts = [], np.zeros((len(self._contexts), self.n_phases + 1))
            for row, (context, following, _) in enumerate(self.counted()):
                contexts.append(context)
                for target, times in following.items():
                    if target != OPEN:
                        counts[row, self.n_phases if target == END else int(target)] = times
            self._model = ContextModel(ContextArrays.of(contexts), counts)
        return self._model

    def _dwell_table(self) -> DwellTable:
        if self._dwell is None:
            exits = np.zeros((self.n_phases + 1, self.n_phases, len(DWELL_STARTS)))
            unfinished = np.zeros_like(exits)
            for context, following, _ in self.counted():
                previous = context.phases[1] if len(context.phases) > 1 else self.n_phases
                cell = (previous, context.phases[0], context.dwell[0])
                unfinished[cell] += following.get(OPEN, 0)
                exits[cell] += sum(following.values()) - following.get(OPEN, 0)
            self._dwell = DwellTable.of(exits, unfinished)
        return self._dwell

    def _pair_table(self) -> FloatArray:
        """The next phase at every (previous phase, phase, bucket)."""
        shape = (self.n_phases + 1, self.n_phases, len(DWELL_STARTS))
        contexts = [
            Context((phase,) if previous == self.n_phases else (phase, previous), (bucket,))
            for previous, phase, bucket in np.ndindex(shape)
        ]
        questions = Questions.without_past(ContextArrays.of(contexts))
        following, _ = self.context_model().predict(questions, self.learned, chains=[PAIR_CHAIN])
        return following.reshape(*shape, self.n_phases)

    def _state(self, history: Sequence[Run]) -> tuple[int, int, int]:
        runs = checked_runs(history)
        if not runs or runs[-1][0] >= self.n_phases:
            what = "an empty history" if not runs else f"phase {runs[-1][0]}"
            raise BadInput(f"{what} has no place in the graph", remedy="Give a present run of a phase it knows.")
        previous = runs[-2][0] if len(runs) > 1 else NONE
        return (previous if 0 <= previous < self.n_phases else self.n_phases), *runs[-1]
