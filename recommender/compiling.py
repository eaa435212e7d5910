"""Compiled loops are compiled by a process of its own: a compiler leaves 60 MB behind that nobody needs again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"


def compile_apart(rehearsal: Callable[[], None], program: str) -> None:
    """Run a rehearsal, so that all loops it uses are loaded.

    Parameters
    ----------
    rehearsal
        Uses them; may be broken off and begun anew.
    program
        The module that does the same as a program. It is run first where something is not compiled yet. What it leaves
        uncompiled, or cannot keep on the disk, is compiled here.
    """
    with _without("scipy.linalg"):  # of which Numba would import all, to see whether there is a BLAS: 16 MiB
        from recommender.kernels.loading import NotCompiled, run_without_compiling  # noqa: PLC0415  Numba is slow to import
    try:
        run_without_compiling(rehearsal)
    except NotCompiled:
        subprocess.run((sys.executable, "-m", program), stdout=subprocess.DEVNULL, check=False)  # noqa: S603 - ourselves
        rehearsal()


@contextmanager
def _without(library: str) -> Iterator[None]:
    """Nobody finds a library that has not been imported yet, as if it were not installed."""
    if library in sys.modules:
        yield
        return
    sys.modules[library] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[library]


def drop_outdated(folder: Path = KERNELS) -> None:
    """Remove what was compiled in a folder before one of its modules was replaced, so that it is compiled anew.

    Numba would do so itself for the module alone, but reads its index first, and fails where that names a class that is
    not there any more. Of what others compiled into theirs it knows nothing, and goes on with a function as it was.
    """
    replaced_s = max((source.stat().st_ctime for source in folder.glob("*.py")), default=0.0)
    for index in (folder / "__pycache__").glob("*.nbi"):
        try:
            if replaced_s > index.stat().st_ctime:
                index.unlink()
        except OSError:
            continue  # another process was quicker, or nothing can be changed here, and Numba keeps it elsewhere
