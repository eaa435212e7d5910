"""Progress and stages that jobs push: `POST /progress` with a bearer token, kept until the next round."""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from functools import partial
from pathlib import Path

import orjson

from recommender.base.errors import Misuse
from recommender.base.files import read_secret
from recommender.base.units import WallClock
from recommender.progress.readings import FIELDS, METRICS, PodName, ProgressUpdate, Reading, Stage, reading_of, stage_of

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 4096
MAX_PODS, MAX_READINGS = 20_000, 32
"""Kept between two rounds: pods, and the latest readings and stages of each."""

MAX_NAME_CHARS = 253


class PushedProgress:
    """An inbox that request threads fill and the round empties, while this process `accepts` readings: only a leader.

    The token is the one line of its file, read at each request: a rotated one counts at once. `Misuse` for a bad file.
    """

    name = "push"

    def __init__(
        self, token_file: Path, accepts: Callable[[], bool] = lambda: True, clock: WallClock = time.time
    ) -> None:
        self._token = partial(read_secret, token_file, "--progress-token-file")
        self._accepts, self._clock = accepts, clock
        self._lock = threading.Lock()
        self._inbox: dict[PodName, deque[Reading | Stage]] = {}
        self._token()

    def take(self, pods: Sequence[object], now_s: float) -> ProgressUpdate:
        """Everything pushed since the last call; the caller ignores pods that are not ours."""
        with self._lock:
            inbox, self._inbox = self._inbox, {}
        return ProgressUpdate(
            {pod: [one for one in updates if isinstance(one, Reading)] for pod, updates in inbox.items()},
            stages={pod: [one for one in updates if isinstance(one, Stage)] for pod, updates in inbox.items()},
        )

    def answer(self, headers: Message[str, str], read: Callable[[int], bytes]) -> tuple[int, str]:
        """HTTP status and text for one request; `read` reads a number of bytes of its body."""
        try:
            authorized = self._is_authorized(headers.get("Authorization", ""))
        except Misuse as error:
            log.error("%s", error)
            return 503, "the token cannot be checked"
        if not authorized:
            return 401, "the bearer token is missing or wrong"
        length = headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return 411, "Content-Length is missing or invalid"
        if len(length) > 9 or int(length) > MAX_BODY_BYTES:
            return 413, f"at most {MAX_BODY_BYTES} bytes"
        if not self._accepts():
            return 503, "this replica is on standby; another one leads"
        try:
            pod, updates = _parse(read(int(length)), self._clock())
        except ValueError as error:
            return 400, str(error)
        return (204, "") if self._store(pod, updates) else (503, "too many pods were pushed; try again")

    def _store(self, pod: PodName, updates: Sequence[Reading | Stage]) -> bool:
        with self._lock:
            if pod not in self._inbox and len(self._inbox) >= MAX_PODS:
                return False
            self._inbox.setdefault(pod, deque(maxlen=MAX_READINGS)).extend(updates)
            return True

    def _is_authorized(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        same = hmac.compare_digest(token.strip().encode("utf-8", "surrogateescape"), self._token().encode())
        return same and scheme.lower() == "bearer"


def _parse(body: bytes, now_s: float) -> tuple[PodName, Sequence[Reading | Stage]]:
    """Name of the pod, and its stage, reading or both; ValueError with the reason when the body is invalid."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError("the body is not JSON") from error
    if not isinstance(content, dict):
        raise ValueError("the body is not a JSON object")
    if unknown := sorted(content.keys() - {"namespace", "pod", "stage", *FIELDS}):
        raise ValueError(f"unknown field {unknown[0][:40]!r}")
    namespace, pod = (_name(content, field) for field in ("namespace", "pod"))
    stage = stage_of({"stage": content.get("stage")}, now_s)
    if stage is None and content.get("stage") is not None:
        raise ValueError("stage is not a string")
    if stage is not None and not any(name in content for name in METRICS):
        return (namespace, pod), [stage]
    reading = reading_of(content, now_s)
    return (namespace, pod), [reading] if stage is None else [stage, reading]


def _name(content: Mapping[str, object], field: str) -> str:
    value = content.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARS:
        raise ValueError(f"{field} is missing, or not a valid name")
    return value
