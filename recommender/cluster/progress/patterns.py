"""Named groups in log lines, by our pattern or by patterns of pods.

Anyone who may create a pod may set a pattern, and some patterns take Python's engine years. RE2 takes a time that is
linear in the text; our own pattern, which needs lookarounds, stays with Python's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from time import thread_time
from typing import Any

import re2

from recommender.progress.readings import CHECKPOINT, COUNTERS, METRICS

MAX_PATTERN_CHARS = 512

MAX_PATTERN_BYTES = 256 << 10
"""Of a compiled pattern, of which RE2 caches 128; it also limits the time that one search takes, to hundredths of a
second."""

CPU_LIMIT_S = 0.2
"""CPU limit for the lines of one pod: a pattern may match at each character, and search the rest of the line each time.
"""

MAX_TEXT_CHARS = 64
"""Of a group: longer than any number, or name of a stage. A pattern could repeat a line a hundred times otherwise."""

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
"""Names of groups of which a pattern needs at least one. Besides them only counters and `evaluate` have a meaning."""


def search(pattern: str | None, lines: Sequence[str]) -> list[dict[str, str]]:
    """The first text of each group with a meaning in each line; None stands for the default pattern.

    `ValueError`, with a clause about it, for a pattern that cannot be used or takes too long.
    """
    compiled = _DEFAULT if pattern is None else _compile(pattern)
    names = [name for name in (*KNOWN_GROUPS, *COUNTERS, "evaluate") if name in compiled.groupindex]
    if pattern is None:
        return [_first_texts(compiled.finditer(line), names) if _has_hint(line.lower()) else {} for line in lines]
    end_s = thread_time() + CPU_LIMIT_S
    return [_first_texts(_until(end_s, compiled.finditer(line)), names) for line in lines]


def _compile(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"it is longer than {MAX_PATTERN_CHARS} characters")
    if not any(f"(?P<{name}>" in pattern for name in KNOWN_GROUPS):
        raise ValueError(f"it has none of the groups {', '.join(f'(?P<{name}>...)' for name in KNOWN_GROUPS)}")
    options = re2.Options()
    options.max_mem, options.log_errors = MAX_PATTERN_BYTES, False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
        raise ValueError(f"{problem} (its syntax is RE2's: no lookarounds, no backreferences)") from error


def _has_hint(low: str) -> bool:
    return any(hint in low for hint in _HINTS)


def _until(end_s: float, matches: Iterator[Any]) -> Iterator[Any]:
    while thread_time() < end_s:
        if (match := next(matches, None)) is None:
            return
        yield match
    raise ValueError(f"it takes more than {CPU_LIMIT_S:g} s for a pod's lines")


def _first_texts(matches: Iterable[Any], names: Sequence[str]) -> dict[str, str]:
    groups: dict[str, str] = {}
    for match in matches:
        for name in names:
            if text := match[name]:
                groups.setdefault(name, text[:MAX_TEXT_CHARS])
    return groups
