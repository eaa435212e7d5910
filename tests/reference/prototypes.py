"""Prototypes the slow way."""

from __future__ import annotations

from collections.abc import Sequence


def covering(paths: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], int]]:
    """Paths and the executions they cover: again and again the one that covers most of what is left."""
    leaves = {path for path in paths if not any(other != path and other[: len(path)] == path for other in paths)}
    left, found = list(paths), []
    while leaves:
        covered = {leaf: [path for path in left if leaf[: len(path)] == path] for leaf in leaves}
        best = min(leaves, key=lambda leaf: (-len(covered[leaf]), len(leaf), leaf))
        found.append((best, len(covered[best])))
        left = [path for path in left if path not in covered[best]]
        leaves.remove(best)
    return found
