"""Files appear whole or not at all: written aside in the same folder, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recommender.errors import Misuse


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the place of `path`, on any failure it is removed.

    The temporary name ends like the real one, so that writers which choose their format by the ending still do. A
    link is followed, the permissions of a file that is replaced are kept, and what is no plain file (`/dev/stdout`, a
    named pipe) is written into instead of being replaced.

    Raises
    ------
    Misuse
        The folder does not exist or may not be written to, or `path` is a folder.
    """
    if _is_special(Path(path)):
        with _written_into(Path(path)) as aside:
            yield aside
        return
    target = Path(path).resolve()
    aside = _created(target)
    try:
        yield aside
        _flush(aside)
        if target.exists():
            aside.chmod(stat.S_IMODE(target.stat().st_mode))
        aside.replace(target)
        _flush(target.parent)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def check_target(path: str | Path) -> None:
    """Raise now what `atomic_write` would after the work: Misuse, where nothing can be written to `path`."""
    if not _is_special(Path(path)):
        _created(Path(path).resolve()).unlink()


def atomic_write_bytes(path: str | Path, data: bytes) -> None:
    """Make `path` hold exactly `data`; whoever reads it meanwhile sees the old content or the new, never a part."""
    with atomic_write(path) as aside:
        aside.write_bytes(data)


def write_or_print(path: str | Path, data: bytes) -> None:
    """The same; `-` is standard output."""
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        atomic_write_bytes(path, data)


def _is_special(path: Path) -> bool:
    """Whether it is there and no plain file. Asked of a name as it is given: that of a pipe leads to no other."""
    if path.is_dir():
        raise Misuse(f"{path}: this is a folder. Name a file in it.")
    return path.exists() and not path.is_file()


def _created(target: Path) -> Path:
    """An empty file with the permissions any new file gets, beside `target`."""
    aside = target.with_name(f".{secrets.token_hex(4)}.{target.name[-200:]}")
    try:
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileNotFoundError as error:
        raise Misuse(f"{target}: there is no folder {target.parent}. Create it, or name another file.") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Misuse(
            f"{target}: cannot write here ({reason}). Name a file in a folder that you may write to."
        ) from error
    return aside


@contextmanager
def _written_into(target: Path) -> Iterator[Path]:
    """What is no plain file cannot be renamed over: its bytes are copied in once they are all there."""
    with tempfile.TemporaryDirectory(prefix="phasewise-") as folder:
        aside = Path(folder) / target.name
        yield aside
        with aside.open("rb") as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)


def _flush(path: Path) -> None:
    """Ask for the bytes (or a folder's entries) to be on disk; some file systems cannot promise it and say so."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
