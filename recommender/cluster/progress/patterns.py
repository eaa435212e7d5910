"""Regular expressions that strangers give: they are searched in another process, which a bad one ends alone.

Whoever may create a pod may write such a pattern, and Python's engine knows patterns that take years.
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

from recommender.cluster.progress import words as log_words
from recommender.readings import CHECKPOINT, METRICS

LONGEST_PATTERN = 512
PROGRAM_WITHIN_S = 10.0
"""A limit for a machine that is busy; a pattern's own is its CPU time (`log_words.CPU_LIMIT_S`)."""

CPU_A_ROUND_S = 1.0
"""What all patterns of pods may take in a round, and the default one as much; the rest waits for the next round."""

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
    cpu_s
        The CPU time that it took.
    """

    words: Sequence[dict[str, str]] | None
    problem: str = ""
    cpu_s: float = field(default=0.0, compare=False)


def search(searches: Sequence[Search]) -> list[Found]:
    """Do them while there is time: the default pattern here, all others in a process of their own."""
    found = [Found(None)] * len(searches)
    strange, left_s = [], CPU_A_ROUND_S
    for place, one in enumerate(searches):
        if one.pattern is not None:
            if problem := _at_first_sight(one.pattern):
                found[place] = Found(None, problem)
            else:
                strange.append(place)
        elif left_s > 0:
            found[place] = _by_default(one.lines)
            left_s -= found[place].cpu_s
    left_s, too_long = CPU_A_ROUND_S, True
    while strange and too_long and left_s > 0:
        answers, too_long = _run([searches[place] for place in strange], left_s)
        if too_long:
            problem = f"it takes more than {log_words.CPU_LIMIT_S:g} s for a pod's lines"
            answers.append(Found(None, problem, log_words.CPU_LIMIT_S))
        for place, answered in zip(strange, answers, strict=False):
            found[place] = answered
            left_s -= answered.cpu_s
        strange = strange[len(answers) :]
    return found


def _by_default(lines: Sequence[str]) -> Found:
    began_s = time.thread_time()
    words = [log_words.words_in(_DEFAULT, line) if _may_tell(line.lower()) else {} for line in lines]
    return Found(words, cpu_s=time.thread_time() - began_s)


def _may_tell(low: str) -> bool:
    return any(hint in low for hint in _HINTS)


def _at_first_sight(pattern: str) -> str:
    if len(pattern) > LONGEST_PATTERN:
        return f"it is longer than {LONGEST_PATTERN} characters"
    if not any(f"(?P<{name}>" in pattern for name in TELLING):
        return f"it has none of the groups {', '.join(f'(?P<{name}>...)' for name in TELLING)}"
    return ""


def _run(searches: Sequence[Search], within_s: float) -> tuple[list[Found], bool]:
    """The answers that came, and whether the next one was ended for its time."""
    asked = b"".join(orjson.dumps({"pattern": one.pattern, "lines": list(one.lines)}) + b"\n" for one in searches)
    command = [sys.executable, "-I", "-S", str(Path(log_words.__file__)), str(within_s)]
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
    return Found(content.get("words"), str(content.get("problem", "")), content["cpu_s"])
