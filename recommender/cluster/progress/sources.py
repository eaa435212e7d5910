"""Progress from pods: from their annotations, and from the logs of those that opt in.

Logs are read through the API server, limited in lines, bytes and time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import thread_time

from recommender.base.errors import BadInput
from recommender.base.units import MonotonicClock, format_time, parse_rfc3339_s
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import backed_off_s
from recommender.cluster.errors import ApiError, Forbidden, Invalid, NotFound
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.cluster.paths import PODS, path_of
from recommender.cluster.progress.patterns import search
from recommender.progress.readings import PodName, ProgressUpdate, Reading, Stage, parse_reading, reading_of, stage_of

PROGRESS_ANNOTATION, STAGE_ANNOTATION = "phasewise.dev/progress", "phasewise.dev/stage"

LOG_ANNOTATION = "phasewise.dev/progress-log"
"""Annotation or label: `true`, or (annotation only) a regular expression with named groups."""

LAST_LINES, MAX_BYTES, MAX_LINE_CHARS = 100, 64 << 10, 1000
"""Limits of one read: lines from the end, bytes, and characters searched per line."""

READS_TIMEOUT_S, SEARCH_CPU_LIMIT_S = 2.0, 2.0
"""Per round, for reading all logs and for searching all lines; the rest waits for the next round."""

MAX_BACKOFF_S, FORBIDDEN_BACKOFF_S = 480.0, 300.0
MAX_PROBLEMS = 20


class AnnotationProgress:
    """Reads `phasewise.dev/progress: loss=0.42 step=1200` and `phasewise.dev/stage: evaluate`."""

    name = "annotation"

    def take(self, pods: Sequence[Pod], now_s: float) -> ProgressUpdate:
        readings: dict[PodName, list[Reading]] = {}
        stages: dict[PodName, list[Stage]] = {}
        problems: dict[str, str] = {}
        for pod in pods:
            if (stage := stage_of({"stage": pod.annotations.get(STAGE_ANNOTATION)}, now_s, event=False)) is not None:
                stages[pod.key] = [stage]
            text = pod.annotations.get(PROGRESS_ANNOTATION)
            if text is None:
                continue
            try:
                readings[pod.key] = [parse_reading(text, f"pod {pod.key}", now_s)]
            except BadInput as error:
                if len(problems) < MAX_PROBLEMS:
                    problems[f"progress of {pod.key}"] = str(error)
        return ProgressUpdate(readings, problems, stages)


LogLine = tuple[float, str]
"""When a line was written (Unix seconds on the node's clock), and the line."""


@dataclass(slots=True)
class _LogState:
    """State of a container's log: read up to when, next read (monotonic seconds), failures in a row, and problem."""

    pod: Pod
    container: str
    pattern: str | None
    since_s: float | None = None
    next_read_s: float = float("-inf")
    failures: int = 0
    problem: str = ""


class LogProgress:
    """Reads new lines of the logs of pods that opt in, the longest waiting first, for a bounded time per round.

    `default_pattern` is for pods with `true`, None for `DEFAULT_PATTERN`; a log is read every `every_s` seconds.
    """

    name = "log"

    def __init__(self, api: Api, default_pattern: str | None, every_s: float, stopwatch: MonotonicClock) -> None:
        self._api, self._default, self._every_s, self._stopwatch = api, default_pattern, every_s, stopwatch
        self._logs: dict[str, _LogState] = {}
        self._cpu_s: defaultdict[str, float] = defaultdict(float)
        """CPU time of searching by namespace; halved each round, and dropped when negligible."""
        self._blocked_until_s, self._problem = float("-inf"), ""

    def take(self, pods: Sequence[Pod], now_s: float) -> ProgressUpdate:
        states = filter(None, map(self._state_of, pods))
        self._logs = {state.pod.uid: state for state in states}
        if self._stopwatch() < self._blocked_until_s:
            return ProgressUpdate({}, {"progress from logs": self._problem})
        read = sorted(self._read(), key=lambda each: self._priority(each[0]))
        decayed = {name: cpu_s / 2.0 for name, cpu_s in self._cpu_s.items() if cpu_s > 1e-4}
        self._cpu_s = defaultdict(float, decayed)
        readings: dict[PodName, list[Reading]] = {}
        stages: dict[PodName, list[Stage]] = {}
        left_s = SEARCH_CPU_LIMIT_S
        for state, lines in read:
            if left_s <= 0.0:
                break  # the next round reads the lines again
            key, start_s = state.pod.key, thread_time()
            readings[key], stages[key] = self._parse(state, lines, now_s)
            cpu_s = thread_time() - start_s
            self._cpu_s[key.namespace] += cpu_s
            left_s -= cpu_s
        return ProgressUpdate(readings, self._problems(), stages)

    def _priority(self, state: _LogState) -> tuple[float, float]:
        """Sort key: namespaces with expensive patterns last; within one, the pods take turns."""
        return self._cpu_s[state.pod.key.namespace], -math.inf if state.since_s is None else state.since_s

    def _state_of(self, pod: Pod) -> _LogState | None:
        """The state of the log of a pod; None if the pod has not opted in."""
        own = pod.annotations.get(LOG_ANNOTATION, "")
        if not pod.containers or (own or pod.labels.get(LOG_ANNOTATION, "")).lower() in ("", "false"):
            return None
        pattern = self._default if own.lower() in ("", "true") else own
        named = pod.annotations.get("kubectl.kubernetes.io/default-container", "")
        container = named if pod.container(named) else pod.containers[0].name
        known = self._logs.get(pod.uid)
        if known is None or (known.container, known.pattern) != (container, pattern):
            return _LogState(pod, container, pattern)
        known.pod = pod
        return known

    def _read(self) -> list[tuple[_LogState, list[LogLine]]]:
        start_s, read = self._stopwatch(), []
        self._problem = ""
        due = [state for state in self._logs.values() if state.next_read_s <= start_s]
        for state in sorted(due, key=lambda state: state.next_read_s):
            left_s = READS_TIMEOUT_S - (self._stopwatch() - start_s)
            if left_s <= 0:
                break
            container = state.pod.container(state.container)
            if container is None or not container.running:
                continue
            try:
                timeout_s = min(READS_TIMEOUT_S, left_s + 0.5)
                lines = read_log(self._api, state.pod.key, state.container, state.since_s, timeout_s)
            except Forbidden as error:
                self._blocked_until_s, self._problem = start_s + FORBIDDEN_BACKOFF_S, str(error)
                break
            except (Invalid, NotFound):  # not started yet, or deleted: the watch will tell
                state.next_read_s = start_s + self._every_s
            except ApiError as error:
                state.failures += 1
                state.next_read_s = start_s + backed_off_s(2.0 * self._every_s, state.failures, MAX_BACKOFF_S)
                state.problem = str(error)
            else:
                state.failures, state.problem, state.next_read_s = 0, "", start_s + self._every_s
                if lines:
                    read.append((state, lines))
        return read

    def _parse(self, state: _LogState, lines: Sequence[LogLine], now_s: float) -> tuple[list[Reading], list[Stage]]:
        try:
            found = search(state.pattern, [text for _, text in lines])
        except ValueError as error:
            state.next_read_s = math.inf  # until the pattern changes
            state.problem = f"the pattern of {LOG_ANNOTATION} cannot be used: {error}"
            return [], []
        state.since_s, _ = lines[-1]
        readings, stages = [], []
        for (time_s, _), groups in zip(lines, found, strict=True):
            at_s = min(time_s, now_s)
            if (stage := stage_of(groups, at_s)) is not None:
                stages.append(stage)
            try:
                readings.append(reading_of(groups, at_s))
            except ValueError:  # most lines contain no progress
                continue
        return readings, stages

    def _problems(self) -> dict[str, str]:
        problems = {f"progress of {state.pod.key}": state.problem for state in self._logs.values() if state.problem}
        first = dict(list(problems.items())[:MAX_PROBLEMS])
        return first | ({"progress from logs": self._problem} if self._problem else {})


def read_log(api: Api, pod: ObjectKey, container: str, since_s: float | None, timeout_s: float) -> list[LogLine]:
    """Read the lines written after a time, only the last ones if too many, oldest first.

    `Invalid` while the container is waiting to start.
    """
    query: dict[str, str | int] = {"container": container, "timestamps": "true"}
    query |= {"tailLines": LAST_LINES, "limitBytes": MAX_BYTES}
    if since_s is not None:  # the server supports whole seconds only
        query["sinceTime"] = format_time(since_s)
    text = api.text(path_of(PODS, *pod, "log"), query, timeout_s=timeout_s)
    return [line for line in _lines(text) if since_s is None or line[0] > since_s]


def _lines(text: str) -> Iterator[LogLine]:
    for stamped in text.split("\n"):
        stamp, _, message = stamped.partition(" ")
        try:
            time_s = parse_rfc3339_s(stamp)
        except ValueError:  # a truncated last line, or a message of the kubelet
            continue
        # A progress bar rewrites its line: keep its last state.
        yield time_s, message.rstrip("\r").rpartition("\r")[2][:MAX_LINE_CHARS]
