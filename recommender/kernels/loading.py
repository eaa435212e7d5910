"""Whether compiled loops are loaded, or would have to be compiled first."""

from __future__ import annotations

from collections.abc import Callable

import numba.np.arraymath  # noqa: F401  it looks for a BLAS once, when it is imported: see `compiling`
from numba.core import event


class NotCompiled(Exception):
    """Something has no compiled form on the disk, for these types."""


class _Refuses(event.Listener):
    def on_start(self, compiles: event.Event) -> None:
        raise NotCompiled(compiles.data["dispatcher"].__qualname__)

    def on_end(self, compiles: event.Event) -> None:
        pass


def run_without_compiling(run: Callable[[], None]) -> None:
    """Run what uses compiled loops.

    Raises
    ------
    NotCompiled
        Before anything is compiled; what was loaded until then stays loaded.
    """
    with event.install_listener("numba:compile", _Refuses()):
        run()
