"""Search for untrusted regular expressions, in a worker process that a runaway search can be killed with.

Anyone who may create a pod may set a pattern, and some patterns take Python's engine years.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from recommender.cluster.progress import pattern_worker
from recommender.readings import CHECKPOINT, FIELDS, METRICS

MAX_PATTERN_CHARS = 512
WORKER_TIMEOUT_S = 10.0
"""Wall-clock limit for a busy machine; each pattern is limited by CPU time (`pattern_worker.CPU_LIMIT_S`)."""

ROUND_CPU_LIMIT_S = 1.0
"""Per round for all patterns of pods, and as much for the default one; the rest waits for the next round."""

_NUMBER = r"(?:[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[-+]?\d{1,3})?|[-+]?nan|[-+]?inf)(?![a-z0-9_]|\.\d)"
_BETWEEN = r"['\"]?[ \t]{0,4}[:=]?[ \t]{0,4}(?:tensor\()?\[?"


def _named(group: str, names: str) -> str:
    return rf"(?<![a-z0-9_./-])(?:{names}){_BETWEEN}(?P<{group}>{_NUMBER})"


_SAVING = r"(?:sav(?:e[ds]?|ing)|writ(?:es?|ing|ten)|wrote|stor(?:e[ds]?|ing))"
_SAVED, _WORDS = "(?:saved|written|stored)", r"(?:[ \t][\w:'\"./-]{1,120}){0,4}?"

DEFAULT_PATTERN = "(?i)" + "|".join(
    (
        r"(?<![a-z0-9_./-])stage['\"]?[ \t]{0,4}[:=][ \t]{0,4}['\"]?(?P<stage>[a-z][a-z0-9_-]{0,40})",
        rf"\b(?P<checkpoint>{_SAVING}(?={_WORDS}[ \t][\w'\"./-]{{0,120}}checkpoint)"
        rf"|checkpoint(?={_WORDS}[ \t]{_SAVED}))",
        r"\b(?P<evaluate>evaluating|evaluation (?:begins|starts|started)|validating)\b",
        _named("loss", "(?:train_|train/|training_|running_)?loss"),
        _named("score", "(?:reward|score)"),
        _named("accuracy", "(?:train_|train/|training_)?acc(?:uracy)?"),
        _named("step", "(?:global_)?step|iter(?:ation)?|batch"),
        _named("epoch", "epoch"),
    )
)
"""What most training scripts print: `step=12 loss=0.4`, `Epoch 3/10 - loss: 0.4 - accuracy: 0.9`, `{'loss': 0.4}`,
`stage=load`, `Saving model checkpoint to out/checkpoint-500`, `Evaluating`."""

_DEFAULT = re.compile(DEFAULT_PATTERN)
_HINTS = ("loss", "acc", "score", "reward", "stage", CHECKPOINT, "evaluat", "validating")
"""A line without any of them cannot match; checking is much faster than the pattern, which takes 0.1 ms."""

KNOWN_GROUPS = (*METRICS, "stage", CHECKPOINT)
"""Names of groups of which a pattern needs at least one."""

READ_GROUPS = (*FIELDS, "stage", CHECKPOINT, "evaluate")
"""Names of all groups with a meaning; what others match is dropped."""


@dataclass(frozen=True, slots=True)
class Search:
    """A pattern (None for the default one) and the lines to search."""

    pattern: str | None
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The named groups of each line, None if the search did not finish; or why the pattern cannot be used."""

    groups: Sequence[dict[str, str]] | None
    problem: str = ""
    cpu_s: float = field(default=0.0, compare=False)


def search(searches: Sequence[Search]) -> list[SearchResult]:
    """Search within the CPU limits: for the default pattern here, for others in a worker process."""
    found = [SearchResult(None)] * len(searches)
    custom, remaining_s = [], ROUND_CPU_LIMIT_S
    for index, each in enumerate(searches):
        if each.pattern is not None:
            if problem := _pattern_problem(each.pattern):
                found[index] = SearchResult(None, problem)
            else:
                custom.append(index)
        elif remaining_s > 0:
            found[index] = _search_default(each.lines)
            remaining_s -= found[index].cpu_s
    remaining_s, problem = ROUND_CPU_LIMIT_S, "not searched yet"
    while custom and problem and remaining_s > 0:
        answers, problem = _run_worker([searches[index] for index in custom], remaining_s)
        if problem:
            answers.append(SearchResult(None, problem, pattern_worker.CPU_LIMIT_S))
        for index, result in zip(custom, answers, strict=False):
            found[index] = result
            remaining_s -= result.cpu_s
        custom = custom[len(answers) :]
    return found


def _search_default(lines: Sequence[str]) -> SearchResult:
    start_s = time.thread_time()
    names = tuple(_DEFAULT.groupindex)
    groups = [pattern_worker.named_groups(_DEFAULT, names, line) if _has_hint(line.lower()) else {} for line in lines]
    return SearchResult(groups, cpu_s=time.thread_time() - start_s)


def _has_hint(low: str) -> bool:
    return any(hint in low for hint in _HINTS)


def _pattern_problem(pattern: str) -> str:
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"it is longer than {MAX_PATTERN_CHARS} characters"
    if not any(f"(?P<{name}>" in pattern for name in KNOWN_GROUPS):
        return f"it has none of the groups {', '.join(f'(?P<{name}>...)' for name in KNOWN_GROUPS)}"
    return ""


def _run_worker(searches: Sequence[Search], cpu_limit_s: float) -> tuple[list[SearchResult], str]:
    """The results received, and why the next search ended the worker; empty if none did."""
    contents = ({"pattern": each.pattern, "names": READ_GROUPS, "lines": list(each.lines)} for each in searches)
    requests = b"".join(orjson.dumps(content) + b"\n" for content in contents)
    command = [sys.executable, "-I", "-S", str(Path(pattern_worker.__file__)), str(cpu_limit_s)]
    try:
        done = subprocess.run(command, input=requests, capture_output=True, timeout=WORKER_TIMEOUT_S, check=False)  # noqa: S603 - our own program
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        output, status = error.stdout or b"", 0
    except OSError:  # no memory or processes left: retry next round
        return [], ""
    lines = output[: output.rfind(b"\n") + 1].splitlines()
    results = [_parse_result(line) for line in lines]
    if status >= 0 or len(lines) == len(searches):
        return results, ""
    if status == -signal.SIGPROF:
        return results, f"it takes more than {pattern_worker.CPU_LIMIT_S:g} s for a pod's lines"
    return results, f"it ended the search process with {signal.Signals(-status).name}"


def _parse_result(result: bytes) -> SearchResult:
    content = orjson.loads(result)
    return SearchResult(content.get("groups"), str(content.get("problem", "")), content["cpu_s"])
