"""Files appear whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from recommender.errors import Misuse
from recommender.files import atomic_write, atomic_write_bytes, check_target


def test_the_bytes_arrive_and_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    atomic_write_bytes(tmp_path / "a.json", b"{}")
    assert (tmp_path / "a.json").read_bytes() == b"{}"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_the_temporary_name_lies_in_the_same_folder_and_ends_like_the_real_one(tmp_path: Path) -> None:
    with atomic_write(str(tmp_path / "plot.png")) as aside:
        assert aside.parent == tmp_path and aside.suffix == ".png" and aside.name != "plot.png"
        aside.write_bytes(b"x")


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_after_a_failure_or_ctrl_c_the_old_content_stands_and_nothing_half_written_is_left(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    target = tmp_path / "a.csv"
    target.write_text("old")
    with pytest.raises(failure), atomic_write(target) as aside:
        aside.write_text("half")
        raise failure
    assert target.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_new_file_gets_the_usual_permissions_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    usual = stat.S_IMODE(plain.stat().st_mode)
    atomic_write_bytes(tmp_path / "new", b"")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == usual
    (tmp_path / "new").chmod(0o640)
    atomic_write_bytes(tmp_path / "new", b"again")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    atomic_write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


def test_a_named_pipe_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    atomic_write_bytes(pipe, b"through")
    reader.join(timeout=10)
    assert received == [b"through"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_the_standard_output_may_be_a_pipe() -> None:
    program = "from recommender.files import atomic_write_bytes; atomic_write_bytes('/dev/stdout', b'through')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ended.stdout, ended.returncode) == (b"through", 0), ended.stderr


def test_a_target_is_tried_without_a_trace(tmp_path: Path) -> None:
    check_target(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Misuse, match="there is no folder"):
        check_target(tmp_path / "absent" / "a.json")


def test_a_missing_folder_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"there is no folder .*absent.*Create it"):
        atomic_write_bytes(tmp_path / "absent" / "a.json", b"")


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="this is a folder"):
        atomic_write_bytes(tmp_path, b"")


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misuse, match="cannot write here"):
        atomic_write_bytes(tmp_path / "file" / "a.json", b"")
