"""A Python without the libraries that the cluster image leaves out."""

from __future__ import annotations

import os
from pathlib import Path

from tests.contracts.reading import MODULE_OF, ROOT, requirements

LEFT_OUT = [
    *(MODULE_OF.get(name, name) for name in requirements("requirements-offline.txt")),
    "scipy",
    "kubernetes.aio",
]
"""Only scikit-learn needs SciPy; the Dockerfile removes `kubernetes.aio`, and the tests of NumPy and Numba."""

_SITECUSTOMIZE = f"""
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        tests = name.startswith(("numba.", "numpy.")) and ".tests" in name
        if tests or any((name + ".").startswith(one + ".") for one in {LEFT_OUT!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def environment_without_left_out(folder: Path) -> dict[str, str]:
    """The environment of a Python process that cannot import them, by a `sitecustomize.py` in `folder`."""
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    return {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
