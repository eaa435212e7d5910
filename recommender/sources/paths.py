"""Find the files that paths, folders and globs on the command line refer to, and detect the kind of each."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa

from recommender.base.errors import BadInput
from recommender.sources.base import listed

Kind = Literal["csv", "parquet", "prometheus"]

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq", ".json", ".json.gz")
"""Suffixes of files that are read from a folder; a file that is named directly may have any name."""

UNFINISHED_SUFFIX = ".parts"
"""Suffix of the folder of an export in progress, which is read only if named directly."""


def find_files(paths: Sequence[str | Path]) -> tuple[dict[Path, Kind], list[str]]:
    """The files that paths refer to, each once, with their kinds, and notes on skipped files; BadInput without any."""
    files: dict[Path, tuple[Path, Kind]] = {}
    notes: list[str] = []
    for path in paths:
        for file, in_folder in _expand(Path(path)):
            if file.is_dir():
                notes.append(f"{file} was skipped: an unfinished export")
                continue
            with os_errors_as_bad_input(file):
                kind = kind_of(file)
            if kind is None and in_folder:
                notes.append(f"{file} was skipped: not an answer of the Prometheus API")
            elif kind is None:
                raise BadInput(
                    "neither CSV nor Parquet nor a saved answer of the Prometheus API",
                    remedy="Export the metrics in one of these formats.",
                    file=file,
                )
            else:
                files.setdefault(file.resolve(), (file, kind))
    if not files:
        place = paths[0] if paths else None
        raise BadInput("no metrics here", remedy="Name CSV, Parquet or query_range JSON files.", file=place)
    return dict(files.values()), notes


def _expand(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield files, and whether each was found in a folder; folders of unfinished exports are yielded themselves."""
    with os_errors_as_bad_input(path):
        is_pattern = glob.has_magic(str(path)) and not path.exists()
        matches = sorted(map(Path, glob.glob(str(path), recursive=True))) if is_pattern else [path]  # noqa: PTH207
        if not matches or not (is_pattern or path.exists()):
            problem = "no file matches this pattern" if is_pattern else "there is no such file"
            raise BadInput(problem, remedy=_nearby_files(path), file=path)
        for match in matches:
            if match.is_dir() and not (is_pattern and match.suffix == UNFINISHED_SUFFIX):
                yield from ((file, True) for file in _files_in(match))
            else:
                yield match, False


def _nearby_files(path: Path) -> str:
    """A remedy that lists the files in the folder of a missing file."""
    folder = path.parent
    if not folder.is_dir():
        return f"There is no folder {str(folder)!r} either: check the path."
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(SUFFIXES))
    return f"That folder has: {listed(names)}." if names else "Check the path; quote a glob to keep it from the shell."


def _files_in(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise error

    found: list[Path] = []
    seen: set[str] = set()  # symlinks may lead back to a folder above
    for root, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        if (target := os.path.realpath(root)) in seen:
            folders.clear()
            continue
        seen.add(target)
        unfinished = [name for name in folders if name.endswith(UNFINISHED_SUFFIX)]
        folders[:] = sorted(name for name in folders if name not in unfinished)
        wanted = [name for name in names if name.endswith(SUFFIXES) and not name.startswith((".", "_"))]
        found += [Path(root) / name for name in (*unfinished, *wanted)]
    if not found:
        raise BadInput(
            f"the folder has no file that ends in {', '.join(SUFFIXES)}",
            remedy="Name the folder that holds the export.",
            file=folder,
        )
    return sorted(found)


def kind_of(file: Path) -> Kind | None:
    """The kind of a file by content, or by name if that is unreadable; None if unknown."""
    try:
        str(file).encode()
    except UnicodeEncodeError as error:
        raise BadInput("its name is not UTF-8", remedy="Rename the file.", file=repr(str(file))) from error
    with file.open("rb") as stream:
        if stream.read(4) == b"PAR1" or file.suffix in (".parquet", ".pq"):
            return "parquet"
    try:
        with open_decompressed(file) as unpacked:
            head = unpacked.read(4096)
    except OSError:
        head = b""  # damaged: its reader reports it
    if head.lstrip()[:1] in (b"{", b"["):
        return "prometheus" if b'"status"' in head or b'"resultType"' in head else None
    if file.name.endswith((".json", ".json.gz")):
        return "prometheus"
    return None if b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff") else "csv"


def is_gzip(file: Path) -> bool:
    """Whether a file begins like a gzip file."""
    with file.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def open_decompressed(file: Path) -> pa.NativeFile:
    """Open a file, decompressing gzip; reading a damaged one raises OSError."""
    return pa.input_stream(str(file), compression="gzip" if is_gzip(file) else None)


def damaged_gzip(file: Path) -> BadInput:
    """The error for a gzip file that cannot be decompressed."""
    return BadInput("the compressed file is truncated or damaged", remedy="Write or copy it again.", file=file)


@contextmanager
def os_errors_as_bad_input(file: Path) -> Iterator[None]:
    """Translate errors of the operating system about a file to BadInput."""
    try:
        yield
    except PermissionError as error:
        raise BadInput(
            "no permission to read it", remedy=f"Allow it: chmod +r {file}", file=error.filename or file
        ) from error
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise BadInput("there is no such file", remedy="Check the path.", file=error.filename or file) from error
