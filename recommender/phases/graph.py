"""The transition graph of phases: what follows what, after how long, learned by counting.

A `networkx.DiGraph` holds the counts. Its nodes are contexts of growing order: `0` (a phase), `3 0` (a phase and the one
before it, up to four), and the full context `1:4 3:5 0:8 ~2` (with dwell buckets, and after `~` what followed the
present phase earlier in the same container); besides them `start`, `end` (the container is over, absorbing) and `open`
(the recording was cut). An edge leads from a context to the next different phase and carries `count`. Counts add, so
graphs of many containers merge in any order; probabilities come from shrinking long contexts towards shorter ones
(`shrinkage`), dwell times from hazards (`dwell`). Source: AI4DL, sections 3.3 and 3.4 (graph with up to m preceding
phases); back-off, dwell and the container's own past are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import networkx as nx
import numpy as np

from recommender.errors import BadInput
from recommender.phases.contexts import (
    DWELL_STARTS,
    NONE,
    Context,
    Run,
    checked_runs,
    dwell_bucket,
    history_name,
)
from recommender.phases.dwell import DwellTable
from recommender.phases.outlook import Outlook
from recommender.phases.shrinkage import CHAINS, PAIR_CHAIN, ContextArrays, ContextModel, Learned
from recommender.records import FloatArray

START, END, OPEN = "start", "end", "open"

DEFAULT_STEPS = 40
"""Samples ahead: one cycle of 10 minutes at 15 s."""


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
        self.n_phases = n_phases
        self.containers = 0
        self.digraph = nx.DiGraph()
        for name in (START, END, OPEN):
            self.digraph.add_node(name, kind=name)
        for phase in range(n_phases):
            self._phase_node(phase)
        self._contexts: dict[str, Context] = {}
        self._forget()

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
        self.containers += 1
        self._add_edge(START, str(self._phase_node(runs[0][0])), 1)
        last = END if ended else OPEN
        targets = [str(self._phase_node(phase)) for phase, _ in runs[1:]] + [last]
        for at, target in enumerate(targets):
            self.count(Context.of(runs[: at + 1]), target, 1, samples=runs[at][1])
        return self

    def count(self, context: Context, target: str, times: int, samples: int = 0) -> None:
        """Add `times` to the edge from a context, and from every shorter one, to `target`.

        Parameters
        ----------
        context
            Where from.
        target
            A phase number as text, `end` or `open`.
        times
            How often it was seen.
        samples
            Length in samples of all the runs this stands for.
        """
        self._contexts.setdefault(context.name, context)
        for order in range(1, len(context.phases) + 1):
            phases = context.phases[:order]
            name = history_name(phases)
            self._phase_node(phases[0])
            if order > 1 and name not in self.digraph:
                self.digraph.add_node(name, kind="phases", order=order, shorter=history_name(phases[:-1]))
            self._add_edge(name, target, times)
        if context.name not in self.digraph:
            longest = history_name(context.phases)
            self.digraph.add_node(context.name, kind="context", order=len(context.phases), shorter=longest, samples=0)
        self._add_edge(context.name, target, times)
        self.digraph.nodes[context.name]["samples"] += samples
        self.digraph.nodes[str(context.phases[0])]["samples"] += samples
        self._forget()

    def merge(self, other: PhaseGraph) -> PhaseGraph:
        """Add another graph's counts to this one; the order of merging does not matter."""
        self._reserve(other.n_phases)
        for _, target, edge in list(other.digraph.out_edges(START, data=True)):
            self._add_edge(START, str(self._phase_node(int(target))), edge["count"])
        for context, following, samples in list(other.counted()):
            for target, times in following.items():
                if target not in (END, OPEN):
                    self._phase_node(int(target))
                self.count(context, target, times)
            self.digraph.nodes[context.name]["samples"] += samples
            self.digraph.nodes[str(context.phases[0])]["samples"] += samples
        self.containers += other.containers
        self._forget()
        return self

    def __add__(self, other: PhaseGraph) -> PhaseGraph:
        return PhaseGraph(self.n_phases).merge(self).merge(other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PhaseGraph):
            return NotImplemented
        return self._facts() == other._facts()

    __hash__ = None  # type: ignore[assignment]  # counts change

    def counted(self) -> Iterator[tuple[Context, dict[str, int], int]]:
        """Every full context in a fixed order, with the count of each target and the samples spent in its last run."""
        for context in sorted(self._contexts.values()):
            edges = self.digraph.out_edges(context.name, data="count")
            following = {target: times for _, target, times in sorted(edges)}
            yield context, following, self.digraph.nodes[context.name]["samples"]

    @property
    def learned(self) -> Learned:
        """Shrinkage strength, bandwidth and chain weights, chosen from the counts when first asked for."""
        if self._learned is None:
            self._learned = self._context_model().learn()
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
            started = {int(q): n for _, q, n in self.digraph.out_edges(START, data="count")}
            return {phase: started[phase] / self.containers for phase in sorted(started)}
        row = self.next_phases([runs])[0]
        return {int(p): float(row[p]) for p in np.flatnonzero(self._context_model().known) if p != runs[-1][0]}

    def next_phases(self, histories: Sequence[Sequence[Run]]) -> FloatArray:
        """`next_phase` for many non-empty histories at once: float64 (n, n_phases)."""
        queries = ContextArrays.of([Context.of(history) for history in histories])
        return self._context_model().predict(queries, self.learned)[0]

    def survival(self, history: Sequence[Run], steps: int = DEFAULT_STEPS) -> FloatArray:
        """Probability that the present run goes on for h more samples, h = 0..steps; float64 (steps + 1,)."""
        previous, phase, length = self._state(history)
        return self._dwell_table().survival(previous, phase, length, steps)

    def expected_remaining(self, history: Sequence[Run]) -> float:
        """Expected further samples of the present run, given how long it has lasted."""
        previous, phase, length = self._state(history)
        return float(self._dwell_table().expected_remaining()[previous, phase, dwell_bucket(length)])

    def ahead(self, history: Sequence[Run], steps: int = DEFAULT_STEPS) -> FloatArray:
        """Probability of each phase h samples ahead.

        Parameters
        ----------
        history
            As in `next_phase`, not empty; the present run may go on.
        steps
            How far to look, in samples.

        Returns
        -------
        float64 (steps + 1, n_phases + 1): row h is h samples ahead (row 0 the present), the last column the absorbing
        end. Rows sum to one. The exit from the present run uses the whole history; what comes after it uses pairs of
        phases and dwell.
        """
        previous, phase, length = self._state(history)
        runs = list(history)
        outlook = self.compile(steps)
        staying = self._dwell_table().survival(previous, phase, length, steps)
        exits = [[*runs[:-1], (phase, length + h)] for h in range(steps)]
        forecast = np.zeros((steps + 1, self.n_phases + 1))
        forecast[:, phase] = staying
        if not steps:
            return forecast
        following, end = self._exits(exits)
        leaving = staying[:-1] - staying[1:]
        for h in range(steps):
            after = outlook.ahead[: steps - h, phase, :, 0, :]
            forecast[h + 1 :] += leaving[h] * (1.0 - end[h]) * np.einsum("q,hqk->hk", following[h], after)
            forecast[h + 1 :, -1] += leaving[h] * end[h]
        return forecast

    def compile(self, steps: int = DEFAULT_STEPS) -> Outlook:
        """The forecast as tables by (previous phase, phase, dwell bucket), kept until the counts change."""
        if self._outlook is None or self._outlook.steps != steps:
            following, end = self._pair_tables()
            self._outlook = Outlook.of(self._dwell_table(), following, end, steps)
        return self._outlook

    def explain(self, history: Sequence[Run]) -> dict[str, object]:
        """Which contexts answered `next_phase(history)`, with what counts and weights; ready for JSON."""
        runs = checked_runs(history)
        if not runs:
            raise BadInput("an empty history has no context", remedy="Give at least the present run.")
        query, learned = ContextArrays.of([Context.of(runs)]), self.learned
        chains = []
        for (name, chain), weight in zip(CHAINS.items(), learned.weights, strict=True):
            levels = self._context_model().level_counts(query, chain, learned.bandwidth)
            agrees = ["any phase", f"phase {runs[-1][0]}", *(_agreement_in_words(step, runs) for step in chain)]
            contexts = []
            for words, level in zip(agrees, levels, strict=True):
                seen = float(level[:-1].sum())
                following = {str(q): round(float(level[q]), 3) for q in np.flatnonzero(level[:-1])}
                own = seen / (seen + learned.strength)
                contexts.append({"adds": words, "seen": round(seen, 3), "own_weight": round(own, 3), "next": following})
            answered = max((at for at, context in enumerate(contexts) if context["seen"] >= 1), default=0)
            chains.append({"chain": name, "weight": weight, "answered_by": answered, "contexts": contexts})
        return {
            "context": Context.of(runs).name,
            "strength": learned.strength,
            "bandwidth": learned.bandwidth,
            "chains": chains,
            "next_phase": {str(phase): p for phase, p in self.next_phase(runs).items()},
            "expected_remaining_samples": self.expected_remaining(runs),
        }

    def transitions(self) -> dict[int, dict[str, int]]:
        """First-order counts: for each phase seen, how often each other phase (as text), `end` and `open` followed."""
        return {
            phase: {target: n for _, target, n in sorted(self.digraph.out_edges(str(phase), data="count"))}
            for phase in range(self.n_phases)
            if self.digraph.out_degree(str(phase))
        }

    def samples_in_phase(self) -> dict[int, int]:
        """Samples spent in each known phase."""
        return {phase: self.digraph.nodes[str(phase)]["samples"] for phase in range(self.n_phases)}

    def _facts(self) -> tuple[object, ...]:
        starts = dict(sorted((target, n) for _, target, n in self.digraph.out_edges(START, data="count")))
        return self.n_phases, self.containers, starts, list(self.counted())

    def _phase_node(self, phase: int) -> int:
        self._reserve(phase + 1)
        if str(phase) not in self.digraph:
            self.digraph.add_node(str(phase), kind="phase", order=1, samples=0)
        return phase

    def _reserve(self, n_phases: int) -> None:
        for phase in range(self.n_phases, n_phases):
            self.digraph.add_node(str(phase), kind="phase", order=1, samples=0)
        self.n_phases = max(self.n_phases, n_phases)

    def _add_edge(self, source: str, target: str, times: int) -> None:
        if self.digraph.has_edge(source, target):
            self.digraph.edges[source, target]["count"] += times
        else:
            self.digraph.add_edge(source, target, count=times)

    def _forget(self) -> None:
        """Drop what was worked out from the counts, because they changed."""
        self._model: ContextModel | None = None
        self._learned: Learned | None = None
        self._dwell: DwellTable | None = None
        self._outlook: Outlook | None = None

    def _context_model(self) -> ContextModel:
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

    def _exits(self, histories: Sequence[Sequence[Run]]) -> tuple[FloatArray, FloatArray]:
        queries = ContextArrays.of([Context.of(history) for history in histories])
        return _ending_where_nothing_follows(*self._context_model().predict(queries, self.learned))

    def _pair_tables(self) -> tuple[FloatArray, FloatArray]:
        """Next phase and end probability at every (previous, phase, bucket)."""
        shape = (self.n_phases + 1, self.n_phases, len(DWELL_STARTS))
        contexts = [
            Context((phase,) if previous == self.n_phases else (phase, previous), (bucket,))
            for previous, phase, bucket in np.ndindex(shape)
        ]
        model = self._context_model()
        following, end = _ending_where_nothing_follows(
            *model.predict(ContextArrays.of(contexts), self.learned, chains=[PAIR_CHAIN])
        )
        return following.reshape(*shape, self.n_phases), end.reshape(shape)

    def _state(self, history: Sequence[Run]) -> tuple[int, int, int]:
        runs = checked_runs(history)
        if not runs or runs[-1][0] >= self.n_phases:
            what = "an empty history" if not runs else f"phase {runs[-1][0]}"
            raise BadInput(f"{what} has no place in the graph", remedy="Give a present run of a phase it knows.")
        previous = runs[-2][0] if len(runs) > 1 else NONE
        return (previous if 0 <= previous < self.n_phases else self.n_phases), *runs[-1]


def _ending_where_nothing_follows(following: FloatArray, end: FloatArray) -> tuple[FloatArray, FloatArray]:
    """With a single known phase there is nothing to go on to: a run that is over ends the container."""
    return following, np.where(following.sum(axis=1) > 0, end, 1.0)


def _agreement_in_words(step: object, runs: Sequence[Run]) -> str:
    kind, back = step.kind, step.back  # type: ignore[attr-defined]
    if kind == "follower":
        follower = Context.of(runs).follower
        return "present phase not met before" if follower == NONE else f"followed by {follower} last time"
    if back >= len(runs):
        return f"no run {back} back"
    phase, length = runs[-1 - back]
    return f"phase {phase} {back} back" if kind == "phase" else f"about {length} samples of phase {phase}"


def first_order_probabilities(counts: Mapping[str, int]) -> dict[str, float]:
    """Shares of the known outcomes among first-order counts (`open` is no outcome)."""
    known = {target: n for target, n in counts.items() if target != OPEN}
    return {target: n / sum(known.values()) for target, n in known.items()}
