"""Regular expressions that strangers give: they are searched in another process, which a bad one ends alone.

Whoever may create a pod may write such a pattern, and Python's engine knows patterns that take years.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from recommender.cluster.progress import words as log_words
from recommender.readings import CHECKPOINT, METRICS

LONGEST_PATTERN = 512
PROGRAM_WITHIN_S = 10.0
"""A limit for a machine that is busy; a pattern's own is its CPU time (`log_words.CPU_LIMIT_S`)."""

ENDED_A_ROUND = 4
"""After so many patterns that ended the program, the rest waits for the next round."""

_NUMBER = r"(?:[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:e[-+]?\d{1,3})?|[-+]?nan|[-+]?inf)(?![a-z0-9_]|\.\d)"
_BETWEEN = r"['\"]?[ \t]{0,4}[:=]?[ \t]{0,4}(?:tensor\()?\[?"


def _named(group: str, words: str) -> str:
    return rf"(?<![a-z0-9_./-])(?:{words}){_BETWEEN}(?P<{group}>{_NUMBER})"


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
TELLING = (*METRICS, "stage", CHECKPOINT)
"""A line without any of them has nothing to tell: seen at a glance, where the pattern takes a tenth of a ms."""


@dataclass(frozen=True, slots=True)
class Search:
    """A pattern (None for the default one) and the lines to look for it in."""

    pattern: str | None
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search brought.

    Attributes
    ----------
    words
        By line: what its named groups found. None where the search did not come to its end.
    problem
        What is wrong with the pattern; empty when it is sound.
    """

    words: Sequence[dict[str, str]] | None
    problem: str = ""


def search(searches: Sequence[Search]) -> list[Found]:
    """Do them all: the default pattern here, all others in a process of their own."""
    found = [Found(None)] * len(searches)
    strange = []
    for place, one in enumerate(searches):
        if one.pattern is None:
            found[place] = Found([_by_default(line) for line in one.lines])
        elif problem := _at_first_sight(one.pattern):
            found[place] = Found(None, problem)
        else:
            strange.append(place)
    for _ in range(ENDED_A_ROUND):
        if not strange:
            break
        answers, too_long = _run([searches[place] for place in strange])
        for place, answered in zip(strange, answers, strict=False):
            found[place] = answered
        strange = strange[len(answers) :]
        if not too_long:
            break
        found[strange.pop(0)] = Found(None, f"it takes more than {log_words.CPU_LIMIT_S:g} s for a pod's lines")
    return found


def _by_default(line: str) -> dict[str, str]:
    low = line.lower()
    return log_words.words_in(_DEFAULT, line) if any(hint in low for hint in _HINTS) else {}


def _at_first_sight(pattern: str) -> str:
    if len(pattern) > LONGEST_PATTERN:
        return f"it is longer than {LONGEST_PATTERN} characters"
    if not any(f"(?P<{name}>" in pattern for name in TELLING):
        return f"it has none of the groups {', '.join(f'(?P<{name}>...)' for name in TELLING)}"
    return ""


def _run(searches: Sequence[Search]) -> tuple[list[Found], bool]:
    """The answers that came, and whether the next one was ended for its time."""
    asked = b"".join(orjson.dumps({"pattern": one.pattern, "lines": list(one.lines)}) + b"\n" for one in searches)
    command = [sys.executable, "-I", "-S", str(Path(log_words.__file__))]
    try:
        done = subprocess.run(command, input=asked, capture_output=True, timeout=PROGRAM_WITHIN_S, check=False)  # noqa: S603 - ourselves
        said, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as error:
        said, status = error.stdout or b"", 0
    except OSError:  # no memory or processes left: another time
        return [], False
    whole = said[: said.rfind(b"\n") + 1].splitlines()
    return [_found(line) for line in whole], status == -signal.SIGPROF and len(whole) < len(searches)


def _found(answered: bytes) -> Found:
    content = orjson.loads(answered)
    return Found(content.get("words"), str(content.get("problem", "")))
