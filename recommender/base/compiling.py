"""Numba's cache of compiled kernels, which does not notice every change of their sources."""

from __future__ import annotations

from pathlib import Path

KERNELS = Path(__file__).parents[1] / "kernels"


def drop_outdated(folder: Path = KERNELS) -> None:
    """Remove cached kernels of a folder that are older than its newest module, so that they are compiled again.

    Numba invalidates only the cache of the changed module: callers elsewhere keep the old inlined code. And it fails if
    a cache index names a class that no longer exists.
    """
    replaced_s = max((source.stat().st_ctime for source in folder.glob("*.py")), default=0.0)
    for index in (folder / "__pycache__").glob("*.nbi"):
        try:
            if replaced_s > index.stat().st_ctime:
                index.unlink()
        except OSError:
            continue  # another process removed it, or the folder is read-only and Numba caches elsewhere
