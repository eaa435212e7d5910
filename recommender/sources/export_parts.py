"""An export in progress: a folder beside the file to come, with the plan and one part for each stretch of time done.

A part that is there is whole, since it was renamed into place; so the folder itself is the record of what is done.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from recommender.errors import BadInput, Misuse
from recommender.files import atomic_write_bytes
from recommender.sources import parquet
from recommender.sources.paths import UNFINISHED

_SCHEMA = 2
_PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What is exported, fixed when an export begins and kept when it goes on.

    Attributes
    ----------
    asked
        The options that decide what will be in the file, by their names on the command line, as given.
    start_s, end_s, step_s
        Unix seconds of the first and the last moment, and whole seconds between two.
    part_points
        Moments in a part.
    rate_window_s, staleness_s
        As the first attempt measured them.
    """

    asked: Mapping[str, str]
    start_s: int
    end_s: int
    step_s: int
    part_points: int
    rate_window_s: float
    staleness_s: float

    @property
    def windows(self) -> list[tuple[int, int]]:
        """First and last moment of each part."""
        span_s = self.part_points * self.step_s
        return [
            (begin_s, min(begin_s + span_s - self.step_s, self.end_s))
            for begin_s in range(self.start_s, self.end_s + 1, span_s)
        ]


def part_file(output: Path, number: int) -> Path:
    """Where part `number` of a file is, or will be."""
    return parts_folder(output) / f"{number:06d}.parquet"


def is_done(part: Path) -> bool:
    """Whether a part is there; one that cannot be read is removed, to be made again."""
    if not part.exists():
        return False
    try:
        parquet.schema_of(part)
    except BadInput:
        part.unlink()
        return False
    return True


def parts_folder(output: Path) -> Path:
    """Where the parts of a file are kept until it is whole."""
    return output.with_name(output.name + UNFINISHED)


def kept_plan(output: Path, asked: Mapping[str, str]) -> ExportPlan | None:
    """The plan of an export that was interrupted; None where there is none.

    Raises
    ------
    Misuse
        It was asked for by other options, or its folder was not made by us.
    """
    folder = parts_folder(output)
    if not folder.exists():
        return None
    try:
        told = orjson.loads((folder / _PLAN).read_bytes())
        schema = told.pop("schema")
        plan = ExportPlan(**told) if schema == _SCHEMA else None
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        plan = None
    if plan is None:
        if folder.is_dir() and not any(folder.iterdir()):
            return None
        raise Misuse(f"{folder} holds no export that this version can continue. Remove it, or start with --restart.")
    differing = sorted(name for name in {*asked, *plan.asked} if asked.get(name) != plan.asked.get(name))
    if differing:
        raise Misuse(
            f"{folder} holds an unfinished export with other options: {_differences(differing, plan.asked, asked)}. "
            "Give the same to continue it, or --restart to begin anew."
        )
    return plan


@contextmanager
def held_parts(output: Path, plan: ExportPlan) -> Iterator[None]:
    """The folder of an export, made if need be, for as long as no other process may have it.

    Raises
    ------
    Misuse
        Another process has it.
    """
    folder = parts_folder(output)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Misuse(
            f"{output}: cannot write here ({reason}). Name a file in a folder that you may write to."
        ) from error
    with _locked(folder):
        for stray in folder.glob(".*"):
            stray.unlink()
        atomic_write_bytes(
            folder / _PLAN, orjson.dumps({"schema": _SCHEMA, **asdict(plan)}, option=orjson.OPT_INDENT_2)
        )
        yield


def discard(output: Path) -> None:
    """Give up what was kept of an earlier export; Misuse where one is going on."""
    folder = parts_folder(output)
    if folder.exists():
        with _locked(folder):
            shutil.rmtree(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Misuse(f"{folder}: another export is writing here. Let it end, or name another file.") from error
        yield
    finally:
        os.close(handle)


def _differences(names: Sequence[str], before: Mapping[str, str], now: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} was {before.get(name) or 'not given'}, is {now.get(name) or 'not given'}" for name in names
    )
