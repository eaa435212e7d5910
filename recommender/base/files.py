"""Atomic writes: to a temporary file in the same folder, synced to disk, then renamed; and files with a secret."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from recommender.base.errors import Misuse

CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` that replaces `path` on success and is removed on failure.

    The temporary name has the same extension, for writers that choose their format by it. Links are followed, the
    permissions of a replaced file are kept, and special files (`/dev/stdout`, a named pipe) are written to instead of
    being replaced.

    Raises Misuse: the folder does not exist or is not writable, or `path` is a folder.
    """
    if _is_special(Path(path)):  # it cannot be replaced
        with tempfile.TemporaryDirectory(prefix="phasewise-") as folder:
            temporary = Path(folder) / Path(path).name
            yield temporary
            with temporary.open("rb") as source, Path(path).open("wb") as sink:
                shutil.copyfileobj(source, sink)
        return
    target = Path(path).resolve()
    temporary = _new_file_beside(target)
    try:
        yield temporary
        _fsync(temporary)
        if target.exists():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
        _fsync(target.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and not error.filename:
            error.filename = str(target)  # a full disk is reported without one
        raise


def read_mapping(file: Path, option: str, example: str) -> dict[str, object]:
    """Names and values in a YAML or JSON file, given by `option`; `example` is a line of one.

    Raises Misuse: not readable, not a mapping, or a name that is there twice, of which a parser would take the last.
    """
    remedy = f"Write lines such as `{example}`."
    try:
        text = file.read_text(encoding="utf-8")
        read, tree = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
    except OSError as error:
        raise Misuse(f"{option} {file}: {(error.strerror or 'cannot be read').lower()}. Check the path.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise Misuse(f"{file}{where}: not YAML: {problem or error}. {remedy}") from error
    if read is None:
        return {}
    if not isinstance(read, dict) or not all(isinstance(key, str) for key in read):
        raise Misuse(f"{file}: not a mapping of names. {remedy}")
    keys = [key.value for key, _ in tree.value]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise Misuse(f"{file}: {twice!r} is given twice. Leave one of them out.")
    return read


def check_target(path: str | Path) -> None:
    """Raise Misuse early if `atomic_write` could not write to `path`."""
    if not _is_special(Path(path)):
        _new_file_beside(Path(path).resolve()).unlink()


def atomic_write_bytes(path: str | Path, data: bytes) -> None:
    """Write `data` to `path`; concurrent readers see the old content or the new, never a part."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)


def write_or_print(path: str | Path, data: bytes) -> None:
    """Write `data` to `path` atomically, or to standard output if `path` is `-`."""
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        atomic_write_bytes(path, data)


def read_secret(file: Path, option: str) -> str:
    """Read the single line of the file that an option names."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or "unreadable").lower() if isinstance(error, OSError) else "not UTF-8 text"
        raise Misuse(f"{option} {file}: {reason}. Check the path and its permissions.") from error
    if not text or len(text.splitlines()) > 1:
        raise Misuse(f"{option} {file}: it must hold one line, the secret. Correct it.")
    return text


def _is_special(path: Path) -> bool:
    """Whether `path` exists and is not a regular file. Takes the unresolved name: that of a pipe cannot be resolved."""
    if path.is_dir():
        raise Misuse(f"{path}: this is a folder. Name a file in it.")
    return path.exists() and not path.is_file()


def _new_file_beside(target: Path) -> Path:
    """Create an empty file beside `target`, with the default permissions."""
    temporary = target.with_name(f".{secrets.token_hex(4)}.{target.name[-200:]}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    except FileNotFoundError as error:
        raise Misuse(f"{target}: there is no folder {target.parent}. Create it, or name another file.") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Misuse(
            f"{target}: cannot write here ({reason}). Name a file in a folder that you may write to."
        ) from error
    return temporary


def _fsync(path: Path) -> None:
    """Sync a file or folder to disk where the file system supports it; some report a full disk only now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)
