"""SpeCon's categories, written plainly: every value is kept, and the whole past is judged again each time."""

from __future__ import annotations

from collections.abc import Sequence

SLOWER = {"Progressing": "Watching", "Watching": "Converged", "Converged": "Converged"}


def naive_growths(
    times_s: Sequence[float], values: Sequence[float], interval_s: float, now_s: float
) -> list[float | None]:
    """G at the end of each interval since the first value; None for an interval without a value."""
    growths: list[float | None] = []
    before, last = values[0], 0
    for number in range(1, 1 + int((now_s - times_s[0]) // interval_s)):
        end_s = times_s[0] + number * interval_s
        by_then = [place for place, time_s in enumerate(times_s) if time_s <= end_s]
        if by_then[-1] == last:
            growths.append(None)
            continue
        scale = next((abs(values[place]) for place in by_then if values[place] != 0), 1.0)
        silent = next((n for n, growth in enumerate(reversed(growths)) if growth is not None), len(growths))
        last = by_then[-1]
        growths.append(abs(values[last] - before) / scale / (silent + 1))
        before = values[last]
    return growths


def naive_category(growths: Sequence[float | None], alpha: float) -> str:
    """Algorithm 3 over all growths."""
    category, judged = "Progressing", [growth for growth in growths if growth is not None]
    for place, growth in enumerate(judged):
        if growth > alpha:
            category = "Progressing"
        elif growth < alpha and place > 0 and (growth < judged[place - 1] or growth == 0):
            category = SLOWER[category]
    return category
