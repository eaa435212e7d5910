"""Progress from the logs of pods that ask for it: works for any script that prints its loss.

Logs are read through the API server, never more of them than asked for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Forbidden, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.cluster.paths import PODS, path_of
from recommender.cluster.progress.patterns import Found, Search, search
from recommender.readings import PodName, ProgressUpdate, Reading, Stage, reading_of, stage_of

ASKS = "phasewise.dev/progress-log"
"""Annotation or label of a pod: `true`, or (annotation) a regular expression with named groups."""

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"

LAST_LINES, MOST_BYTES, LONGEST_LINE = 100, 64 << 10, 1000
"""Of one read: lines from the end, bytes of these, and characters of a line that are looked at."""

READ_WITHIN_S = 2.0
"""A node that does not answer must not take the time of the others."""

LONGEST_PAUSE_S, NO_RIGHT_PAUSE_S = 480.0, 300.0
MOST_PROBLEMS = 20

NO_TIME_S = 1e-4
"""CPU time that is not worth being remembered."""


class LogLine(NamedTuple):
    """A line, and when the container wrote it (unix seconds, the node's clock)."""

    time_s: float
    text: str


@dataclass(slots=True)
class _Followed:
    """One container's log: up to when it was read, when it is read again (monotonic), and why it was not."""

    pod: Pod
    container: str
    pattern: str | None
    after_s: float | None = None
    next_s: float = float("-inf")
    failures: int = 0
    problem: str = ""


class LogProgress:
    """Reads what is new in the logs of those that ask, the longest waiting first, for a bounded time each round.

    Parameters
    ----------
    default_pattern
        For pods that say `true`; None for `DEFAULT_PATTERN`.
    every_s
        Between two reads of one log.
    within_s
        Of a round: what reading may take altogether.
    stopwatch
        Monotonic seconds.
    """

    name = "log"

    def __init__(
        self,
        api: Api,
        default_pattern: str | None,
        every_s: float,
        stopwatch: Callable[[], float],
        within_s: float = 2.0,
    ) -> None:
        self._api, self._default, self._every_s, self._within_s = api, default_pattern, every_s, within_s
        self._stopwatch = stopwatch
        self._followed: dict[str, _Followed] = {}
        # CPU time by namespace; what is long ago counts little.
        self._used_s: defaultdict[str, float] = defaultdict(float)
        self._again_s, self._problem = float("-inf"), ""

    def take(self, pods: Sequence[Pod], now_s: float) -> ProgressUpdate:
        """What their logs say since the last time."""
        self._followed = {pod.uid: self._known(pod) for pod in pods if _asks(pod)}
        if self._stopwatch() < self._again_s:
            return ProgressUpdate({}, {"progress from logs": self._problem})
        read = sorted(self._read(), key=lambda one: self._turn(one[0]))
        found = search([Search(one.pattern, [line.text for line in lines]) for one, lines in read])
        lately = {name: used_s / 2.0 for name, used_s in self._used_s.items() if used_s > NO_TIME_S}
        self._used_s = defaultdict(float, lately)
        readings: dict[PodName, list[Reading]] = {}
        stages: dict[PodName, list[Stage]] = {}
        for (one, lines), answered in zip(read, found, strict=True):
            key = one.pod.key
            self._used_s[key.namespace] += answered.cpu_s
            readings[key], stages[key] = self._take_in(one, lines, answered, now_s)
        return ProgressUpdate(readings, self._problems(), stages)

    def _turn(self, one: _Followed) -> tuple[float, float]:
        """Namespaces whose patterns take long wait behind all others; of one the pods take turns."""
        return self._used_s[one.pod.key.namespace], -math.inf if one.after_s is None else one.after_s

    def _known(self, pod: Pod) -> _Followed:
        known, now = self._followed.get(pod.uid), _Followed(pod, _container(pod), _pattern(pod, self._default))
        if known is None or (known.container, known.pattern) != (now.container, now.pattern):
            return now
        known.pod = pod
        return known

    def _read(self) -> list[tuple[_Followed, list[LogLine]]]:
        began_s, read = self._stopwatch(), []
        self._problem = ""
        due = [one for one in self._followed.values() if one.next_s <= began_s]
        for one in sorted(due, key=lambda one: one.next_s):
            left_s = self._within_s - (self._stopwatch() - began_s)
            if left_s <= 0:
                break
            if not _runs(one.pod, one.container):
                continue
            try:
                lines = read_log(self._api, one.pod.key, one.container, one.after_s, min(READ_WITHIN_S, left_s + 0.5))
            except Forbidden as error:
                self._again_s, self._problem = began_s + NO_RIGHT_PAUSE_S, str(error)
                break
            except (Invalid, NotFound):  # not started yet, or gone: the watch says so soon
                one.next_s = began_s + self._every_s
            except ApiError as error:
                one.failures += 1
                one.next_s = began_s + min(self._every_s * 2.0**one.failures, LONGEST_PAUSE_S)
                one.problem = str(error)
            else:
                one.failures, one.problem, one.next_s = 0, "", began_s + self._every_s
                if lines:
                    read.append((one, lines))
        return read

    def _take_in(
        self, one: _Followed, lines: Sequence[LogLine], found: Found, now_s: float
    ) -> tuple[list[Reading], list[Stage]]:
        if found.problem:
            one.next_s = math.inf  # until the pod says another pattern
            one.problem = f"the pattern of {ASKS} cannot be used: {found.problem}"
            return [], []
        if found.words is None:
            return [], []  # it is read again
        one.after_s = lines[-1].time_s
        readings, stages = [], []
        for line, words in zip(lines, found.words, strict=True):
            at_s = min(line.time_s, now_s)
            if (stage := stage_of(words, at_s)) is not None:
                stages.append(stage)
            try:
                readings.append(reading_of(words, at_s))
            except ValueError:  # most lines tell nothing of it
                continue
        return readings, stages

    def _problems(self) -> dict[str, str]:
        said = {f"progress of {one.pod.key}": one.problem for one in self._followed.values() if one.problem}
        first = dict(list(said.items())[:MOST_PROBLEMS])
        return first | ({"progress from logs": self._problem} if self._problem else {})


def _asks(pod: Pod) -> bool:
    text = pod.annotations.get(ASKS) or pod.labels.get(ASKS, "")
    return bool(pod.containers) and text.lower() not in ("", "false")


def _pattern(pod: Pod, default: str | None) -> str | None:
    text = pod.annotations.get(ASKS, "")
    return default if text.lower() in ("", "true") else text


def _container(pod: Pod) -> str:
    named = pod.annotations.get(DEFAULT_CONTAINER, "")
    return named if pod.container(named) else pod.containers[0].name


def _runs(pod: Pod, container: str) -> bool:
    state = pod.container(container)
    return state is not None and state.running


def read_log(api: Api, pod: ObjectKey, container: str, after_s: float | None, timeout_s: float) -> list[LogLine]:
    """The lines written after a moment, the last ones if there are too many; oldest first.

    Raises
    ------
    ApiError
        The log cannot be read; `Invalid` while the container waits to be started.
    """
    query: dict[str, str | int] = {"container": container, "timestamps": "true"}
    query |= {"tailLines": LAST_LINES, "limitBytes": MOST_BYTES}
    if after_s is not None:  # the server knows whole seconds only
        query["sinceTime"] = datetime.fromtimestamp(math.floor(after_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = api.text(path_of(PODS, *pod, "log"), query, timeout_s=timeout_s)
    return [line for line in _lines(text) if after_s is None or line.time_s > after_s]


def _lines(text: str) -> Iterator[LogLine]:
    for stamped in text.split("\n"):
        stamp, _, words = stamped.partition(" ")
        try:
            time_s = datetime.fromisoformat(stamp).timestamp()
        except ValueError:  # the last line may be cut off, or the node has a word of its own to say
            continue
        # A progress bar rewrites its line: what it said last is what counts.
        yield LogLine(time_s, words.rstrip("\r").rpartition("\r")[2][:LONGEST_LINE])
