"""What the words on the command line stand for: files, folders and globs, and what kind each file is of."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa

from recommender.errors import BadInput

Kind = Literal["csv", "parquet", "prometheus"]

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq", ".json", ".json.gz")
"""What is taken from a folder; a file that is named itself may be called anything."""

UNFINISHED = ".parts"
"""How the folder of an export in progress ends; its parts are data only where it is named itself."""

_HEAD_BYTES = 4096


def find(paths: Sequence[str | Path]) -> tuple[dict[Path, Kind], list[str]]:
    """What kind each file is that the paths stand for, once each, and notes on what was left aside.

    Raises
    ------
    BadInput
        Nothing there, nothing usable in a folder, no permission, or a file of no known kind.
    """
    files: dict[Path, tuple[Path, Kind]] = {}
    notes: list[str] = []
    for path in paths:
        for file, in_folder in _expand(Path(path)):
            if file.is_dir():
                notes.append(f"{file} was left aside: an export that has not ended")
                continue
            with access(file):
                kind = _kind(file)
            if kind is None and in_folder:
                notes.append(f"{file} was left aside: it is no answer of the Prometheus API")
            elif kind is None:
                raise BadInput(
                    "neither CSV nor Parquet nor a saved answer of the Prometheus API",
                    remedy="Export the metrics in one of these forms.",
                    file=file,
                )
            else:
                files.setdefault(file.resolve(), (file, kind))
    if not files:
        place = paths[0] if paths else None
        raise BadInput("no metrics here", remedy="Name CSV, Parquet or query_range JSON files.", file=place)
    return dict(files.values()), notes


def _expand(path: Path) -> Iterator[tuple[Path, bool]]:
    """Files, and whether they were only found in a folder; folders of exports in progress as they are."""
    with access(path):
        is_pattern = glob.has_magic(str(path)) and not path.exists()
        matches = sorted(map(Path, glob.glob(str(path), recursive=True))) if is_pattern else [path]  # noqa: PTH207
        if not matches or not (is_pattern or path.exists()):
            problem = "no file matches this pattern" if is_pattern else "there is no such file"
            raise BadInput(problem, remedy=_nearby(path), file=path)
        for match in matches:
            if match.is_dir() and not (is_pattern and match.suffix == UNFINISHED):
                yield from ((file, True) for file in _in_folder(match))
            else:
                yield match, False


def _nearby(path: Path) -> str:
    """What lies where the missing file was looked for."""
    folder = path.parent
    if not folder.is_dir():
        return f"There is no folder {str(folder)!r} either: check the path."
    there = sorted(file.name for file in folder.iterdir() if file.name.endswith(SUFFIXES))
    return (
        f"In that folder are: {', '.join(there[:5])}."
        if there
        else "Check the path; quote a glob to keep it from the shell."
    )


def _in_folder(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise error

    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        unfinished = [name for name in folders if name.endswith(UNFINISHED)]
        folders[:] = [name for name in folders if name not in unfinished]
        wanted = [name for name in names if name.endswith(SUFFIXES) and not name.startswith((".", "_"))]
        found += [Path(root) / name for name in (*unfinished, *wanted)]
    if not found:
        raise BadInput(
            f"the folder has no file that ends in {', '.join(SUFFIXES)}",
            remedy="Name the folder that holds the export.",
            file=folder,
        )
    return sorted(found)


def _kind(file: Path) -> Kind | None:
    """By content, and by name where the content is missing."""
    with file.open("rb") as stream:
        if stream.read(4) == b"PAR1" or file.suffix in (".parquet", ".pq"):
            return "parquet"
    try:
        with opened(file) as unpacked:
            head = unpacked.read(_HEAD_BYTES)
    except OSError:
        head = b""  # damaged from the beginning: whoever reads it says so
    if head.lstrip()[:1] in (b"{", b"["):
        return "prometheus" if b'"status"' in head or b'"resultType"' in head else None
    if file.name.endswith((".json", ".json.gz")):
        return "prometheus"
    return None if b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff") else "csv"


def is_gzip(file: Path) -> bool:
    """By its first bytes."""
    with file.open("rb") as stream:
        return stream.read(2) == b"\x1f\x8b"


def opened(file: Path) -> pa.NativeFile:
    """What a file holds, unpacked where it is gzipped; reading from a damaged one raises an OSError."""
    compression = "gzip" if is_gzip(file) else None
    try:
        return pa.input_stream(str(file), compression=compression)
    except UnicodeEncodeError as error:
        raise BadInput("its name is no UTF-8", remedy="Rename the file.", file=repr(str(file))) from error


def damaged(file: Path) -> BadInput:
    """The error for a gzipped file that cannot be unpacked."""
    return BadInput("the compressed file is cut off or damaged", remedy="Write or copy it again.", file=file)


@contextmanager
def access(file: Path) -> Iterator[None]:
    """Turn what the operating system says of a file into our error."""
    try:
        yield
    except PermissionError as error:
        raise BadInput(
            "no permission to read it", remedy=f"Allow it: chmod +r {file}", file=error.filename or file
        ) from error
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise BadInput("there is no such file", remedy="Check the path.", file=error.filename or file) from error
