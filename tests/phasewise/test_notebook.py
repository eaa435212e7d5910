"""The notebook of the documentation runs from its first cell to its last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorials" / "python.ipynb"


@pytest.mark.long
def test_the_notebook_runs_and_shows_what_it_says() -> None:
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)  # noqa: S102  our own notebook
    assert set(names["runs"]["phase"]) <= set(range(-1, 6))
    assert set(names["ahead"].columns) == {"container", "phase", "next_phase", "probability", "expected_s"}
    assert list(names["replayed"].to_pandas().index) == ["static", "phasewise"]
    assert set(names["replayed"].workloads()["workload"]) == {"cnn-torch", "lstm-torch", "mlp-jax"}
