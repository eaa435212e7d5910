"""Files are written completely or not at all."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from recommender.base.errors import Misuse
from recommender.base.files import atomic_write, atomic_write_bytes, check_target


def test_the_bytes_are_written_and_no_temporary_file_is_left(tmp_path: Path) -> None:
    atomic_write_bytes(tmp_path / "a.json", b"{}")
    assert (tmp_path / "a.json").read_bytes() == b"{}"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_the_temporary_file_is_in_the_same_folder_with_the_same_suffix(tmp_path: Path) -> None:
    with atomic_write(str(tmp_path / "plot.png")) as temporary:
        assert temporary.parent == tmp_path and temporary.suffix == ".png" and temporary.name != "plot.png"
        temporary.write_bytes(b"x")


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failure_or_ctrl_c_keeps_the_old_content_and_leaves_no_temporary_file(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    target = tmp_path / "a.csv"
    target.write_text("old")
    with pytest.raises(failure), atomic_write(target) as temporary:
        temporary.write_text("half")
        raise failure
    assert target.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_the_error_of_a_full_disk_names_the_file(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(OSError, match=str(tmp_path / "a.csv")), atomic_write(tmp_path / "a.csv"):
        raise full


@pytest.mark.parametrize(("fault", "kept"), [(errno.ENOSPC, "old"), (errno.EIO, "old"), (errno.EINVAL, "new")])
def test_a_disk_that_is_full_when_synced_keeps_the_old_content_and_one_that_cannot_sync_takes_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int, kept: str
) -> None:
    def fails(_: int) -> None:
        raise OSError(fault, os.strerror(fault))

    target = tmp_path / "out"
    target.write_text("old")
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match=str(target)) if kept == "old" else nullcontext():
        atomic_write_bytes(target, b"new")
    assert target.read_text() == kept
    assert list(tmp_path.iterdir()) == [target]


def test_a_new_file_has_default_permissions_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    usual = stat.S_IMODE(plain.stat().st_mode)
    atomic_write_bytes(tmp_path / "new", b"")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == usual
    (tmp_path / "new").chmod(0o640)
    atomic_write_bytes(tmp_path / "new", b"again")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_symbolic_link_is_kept_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    atomic_write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_bytes() == b"new"


def test_a_named_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    atomic_write_bytes(pipe, b"through")
    reader.join(timeout=10)
    assert received == [b"through"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output_can_be_written_to_as_a_pipe() -> None:
    program = "from recommender.base.files import atomic_write_bytes; atomic_write_bytes('/dev/stdout', b'through')"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (completed.stdout, completed.returncode) == (b"through", 0), completed.stderr


def test_checking_a_target_leaves_no_file_and_refuses_a_missing_folder(tmp_path: Path) -> None:
    check_target(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(Misuse, match="there is no folder"):
        check_target(tmp_path / "absent" / "a.json")


def test_a_missing_folder_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"there is no folder .*absent.*Create it"):
        atomic_write_bytes(tmp_path / "absent" / "a.json", b"")


def test_a_folder_is_refused_as_the_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="this is a folder"):
        atomic_write_bytes(tmp_path, b"")


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misuse, match="cannot write here"):
        atomic_write_bytes(tmp_path / "file" / "a.json", b"")
