"""Compile kernels in a subprocess, since the compiler leaves 60 MB behind that are never used again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"


def compile_in_subprocess(warm_up: Callable[[], None], program: str) -> None:
    """Load all kernels that `warm_up` calls; missing ones are compiled by the module `program`, which calls them too.

    `warm_up` may be interrupted and called again. What `program` cannot cache on disk is compiled here.
    """
    with _import_blocked("scipy.linalg"):  # Numba would import it to look for BLAS: 16 MiB
        from recommender.kernels.loading import NotCompiled, run_without_compiling  # noqa: PLC0415  Numba is slow to import
    try:
        run_without_compiling(warm_up)
    except NotCompiled:
        # Importing from where this process does; without -P a Python file in the working folder would come first.
        command, environ = (sys.executable, "-P", "-m", program), os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=False)  # noqa: S603 - ourselves
        warm_up()


@contextmanager
def _import_blocked(library: str) -> Iterator[None]:
    """Make imports of a library that is not loaded yet fail, as if it were not installed."""
    if library in sys.modules:
        yield
        return
    sys.modules[library] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[library]


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
