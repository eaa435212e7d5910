"""A slow version of prototypes."""

from __future__ import annotations

from collections.abc import Sequence


def covering(paths: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], int]]:
    """Paths and the number of executions they cover; each time the path that covers most of the rest."""
    leaves = {path for path in paths if not any(other != path and other[: len(path)] == path for other in paths)}
    left, found = list(paths), []
    while leaves:
        covered = {leaf: [path for path in left if leaf[: len(path)] == path] for leaf in leaves}
        best = min(leaves, key=lambda leaf: (-len(covered[leaf]), len(leaf), leaf))
        found.append((best, len(covered[best])))
        left = [path for path in left if path not in covered[best]]
        leaves.remove(best)
    return found
