"""Tell whether compiled kernels can be loaded from the cache, or would have to be compiled first."""

from __future__ import annotations

from collections.abc import Callable

import numba.np.arraymath  # noqa: F401  looks for a BLAS when it is imported, see `compiling`
from numba.core import event


class NotCompiled(Exception):
    """A kernel is not in the cache for these argument types."""


class _RefuseCompilation(event.Listener):
    def on_start(self, compiles: event.Event) -> None:
        raise NotCompiled(compiles.data["dispatcher"].__qualname__)

    def on_end(self, compiles: event.Event) -> None:
        pass


def run_without_compiling(run: Callable[[], None]) -> None:
    """Run a function that uses kernels; `NotCompiled` if one would have to be compiled. Those loaded before stay."""
    with event.install_listener("numba:compile", _RefuseCompilation()):
        run()
