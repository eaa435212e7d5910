"""An export in progress: a folder beside the output file with the plan and, written atomically, the finished parts."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from recommender.errors import BadInput, Misuse
from recommender.files import atomic_write_bytes
from recommender.sources import parquet
from recommender.sources.paths import UNFINISHED_SUFFIX

_SCHEMA = 2
_PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What is exported; fixed when an export starts, and reused when it resumes.

    `asked`: the command-line options that determine the content of the file, as given.
    `start_s`, `end_s`, `step_s`: first and last unix second, and the step in whole seconds.
    `rate_window_s`, `staleness_s`: as measured by the first attempt.
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
        """First and last unix second of each part."""
        span_s = self.part_points * self.step_s
        begins_s = range(self.start_s, self.end_s + 1, span_s)
        return [(begin_s, min(begin_s + span_s - self.step_s, self.end_s)) for begin_s in begins_s]


def is_done(part: Path) -> bool:
    """Whether a part exists and is readable; an unreadable one is removed."""
    if not part.exists():
        return False
    try:
        parquet.schema_of(part)
    except BadInput:
        part.unlink()
        return False
    return True


def parts_folder(output: Path) -> Path:
    return output.with_name(output.name + UNFINISHED_SUFFIX)


def unfinished_plan(output: Path, asked: Mapping[str, str]) -> ExportPlan | None:
    """The plan of an interrupted export, None without one; Misuse if it cannot be continued with these options."""
    folder = parts_folder(output)
    if not folder.exists():
        return None
    try:
        document = orjson.loads((folder / _PLAN).read_bytes())
        schema = document.pop("schema")
        plan = ExportPlan(**document) if schema == _SCHEMA else None
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        plan = None
    if plan is None:
        if folder.is_dir() and not any(folder.iterdir()):
            return None
        raise Misuse(f"{folder} holds no export that this version can continue. Remove it, or start with --restart.")
    differing = [
        f"{name} was {plan.asked.get(name) or 'not given'}, is {asked.get(name) or 'not given'}"
        for name in sorted({*asked, *plan.asked})
        if asked.get(name) != plan.asked.get(name)
    ]
    if differing:
        raise Misuse(
            f"{folder} holds an unfinished export with other options: {', '.join(differing)}. "
            "Give the same to continue it, or --restart to start over."
        )
    return plan


@contextmanager
def locked_parts(output: Path, plan: ExportPlan) -> Iterator[None]:
    """Create the folder of an export if needed, and lock it; raises Misuse if another process holds the lock."""
    folder = parts_folder(output)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        problem = f"{output}: cannot write here ({(error.strerror or str(error)).lower()})"
        raise Misuse(f"{problem}. Name a file in a folder that you may write to.") from error
    with _locked(folder):
        for stray in folder.glob(".*"):
            stray.unlink()
        document = {"schema": _SCHEMA, **asdict(plan)}
        atomic_write_bytes(folder / _PLAN, orjson.dumps(document, option=orjson.OPT_INDENT_2))
        yield


def discard(output: Path) -> None:
    """Remove the parts of an earlier export; Misuse if one is running."""
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
            raise Misuse(f"{folder}: another export is writing here. Wait for it, or name another file.") from error
        yield
    finally:
        os.close(handle)
