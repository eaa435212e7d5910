"""Compiled loops are compiled by a process of its own: a compiler leaves 60 MB behind that nobody needs again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from recommender.kernels.loading import NotCompiled, loaded_alone


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
    try:
        loaded_alone(rehearsal)
    except NotCompiled:
        subprocess.run((sys.executable, "-m", program), stdout=subprocess.DEVNULL, check=False)  # noqa: S603 - ourselves
        rehearsal()
