"""Containers as runs of phases: a few examples, random ones, and the recorded ones."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from recommender.phases.graph import Run

SEQUENCES = Path(__file__).parents[1] / "data" / "ai4dl" / "dlaas_phase_sequences.parquet"

EXAMPLES = [
    [(1, 4), (3, 5), (0, 9), (2, 1)],
    [(1, 4), (3, 6), (0, 7), (3, 2)],
    [(1, 4), (2, 30)],
    [(1, 4), (2, 3), (4, 1), (2, 2), (4, 1), (2, 8)],
]


@st.composite
def containers(draw: st.DrawFn, phases: int = 4) -> list[Run]:
    length = draw(st.integers(1, 7))
    runs: list[Run] = []
    for _ in range(length):
        phase = draw(st.integers(0, phases - 1).filter(lambda p: not runs or runs[-1][0] != p))
        runs.append((phase, draw(st.integers(1, 300))))
    return runs


many = st.lists(containers(), min_size=1, max_size=4)
