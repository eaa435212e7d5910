"""The picture of what bounds of memory promise and what came."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from benchmarks.quality.memory import Promise
from benchmarks.quality.picture import COLOURS, draw_promises


def columns_with(picture: Path, colour: str) -> set[int]:
    """The columns of pixels that show a colour."""
    pixels = imread(picture)[:, :, :3]
    return set(np.flatnonzero((np.abs(pixels - to_rgb(colour)) < 0.01).all(axis=2).any(axis=0)).tolist())


def test_each_data_set_has_a_panel_and_each_share_a_line_also_after_a_single_run(tmp_path: Path) -> None:
    few = {f"{target}% promised, 1 earlier": Promise(target / 100, 2.0, 3) for target in (1, 5, 10)}
    many = {**few, **{f"{target}% promised, 20 earlier": Promise(0.0, 1.1, 3) for target in (1, 5, 10)}}
    draw_promises({"few": few, "many": many}, tmp_path / "both.png")
    draw_promises({"few": few}, tmp_path / "one.png")
    middle = imread(tmp_path / "both.png").shape[1] * 2 // 5
    for colour in COLOURS:
        shown = columns_with(tmp_path / "both.png", colour)
        assert min(shown) < middle < max(shown)
        assert columns_with(tmp_path / "one.png", colour)
