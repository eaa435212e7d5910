"""A parallel map over processes that keeps the order."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from recommender.learning.training import ordered_map


def squared_slowly(number: int) -> tuple[int, int]:
    """The first takes longest."""
    time.sleep(0.02 * (5 - number))
    return number**2, os.getpid()


def test_one_job_runs_in_this_process_and_only_as_far_as_needed() -> None:
    results = ordered_map(squared_slowly, iter(range(5)), jobs=1)
    assert next(results) == (0, os.getpid())
    results.close()


def test_results_of_several_processes_come_in_order_with_one_item_per_process_in_progress() -> None:
    started: list[int] = []

    def items() -> Iterator[int]:
        for number in range(5):
            started.append(number)
            yield number

    with closing(ordered_map(squared_slowly, items(), jobs=2)) as results:
        first = next(results)
        assert started == [0, 1]
        found = [first, *results]
    assert [square for square, _ in found] == [0, 1, 4, 9, 16]
    assert os.getpid() not in {pid for _, pid in found}


def test_an_error_in_a_process_is_raised_here() -> None:
    with pytest.raises(ValueError, match="not-a-number"):
        list(ordered_map(int, ["1", "not-a-number"], jobs=2))


def test_closing_the_map_does_not_wait_for_items_in_progress() -> None:
    with closing(ordered_map(time.sleep, [0.0, 60.0], jobs=2)) as results:
        next(results)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 30.0


WORK_BELOW_THE_COMMAND_LINE = """
import contextlib
from recommender.cli.main import main
from recommender.learning.training import ordered_map

if __name__ == "__main__":
    with contextlib.suppress(SystemExit):
        main(["--version"])
    assert list(ordered_map(abs, [1, -2], jobs=2)) == [1, 2]
"""


@pytest.mark.long
def test_the_processes_of_a_command_import_nothing_from_the_folder_with_the_data(tmp_path: Path) -> None:
    program, data = tmp_path / "bin" / "phasewise", tmp_path / "data"
    for folder in (program.parent, data):
        folder.mkdir()
    program.write_text(WORK_BELOW_THE_COMMAND_LINE)
    (data / "joblib.py").write_text("raise SystemExit(97)\n")
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, program], cwd=data, env=environ, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr.decode()
