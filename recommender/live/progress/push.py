"""Progress and stages that jobs push: `POST /progress` with a bearer token, kept until the next round takes it."""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from pathlib import Path

import orjson

from recommender.errors import Misuse
from recommender.readings import FIELDS, METRICS, PodName, ProgressUpdate, Reading, Stage, reading_of, stage_of

log = logging.getLogger(__name__)

LARGEST_BODY_BYTES = 4096
MOST_PODS, MOST_READINGS = 20_000, 32
"""Kept between two rounds: pods, and readings and stages of one, the latest of them."""

LONGEST_NAME = 253


class PushedProgress:
    """An inbox that many threads fill and the round empties.

    Parameters
    ----------
    token_file
        Holds the one line that a pusher must show; read at each request, so a renewed one counts at once.
    accepts
        Whether this process acts at all: one that stands by would take readings to the grave.

    Raises
    ------
    Misuse
        The token file cannot be used.
    """

    name = "push"

    def __init__(
        self, token_file: Path, accepts: Callable[[], bool] = lambda: True, clock: Callable[[], float] = time.time
    ) -> None:
        self._token_file, self._accepts, self._clock = token_file, accepts, clock
        self._lock = threading.Lock()
        self._kept: dict[PodName, deque[Reading | Stage]] = {}
        self._token()

    def take(self, pods: Sequence[object], now_s: float) -> ProgressUpdate:
        """What was pushed since the last call; what is of no pod of ours falls away there."""
        with self._lock:
            kept, self._kept = self._kept, {}
        return ProgressUpdate(
            {pod: [one for one in said if isinstance(one, Reading)] for pod, said in kept.items()},
            stages={pod: [one for one in said if isinstance(one, Stage)] for pod, said in kept.items()},
        )

    def answer(self, headers: Message[str, str], read: Callable[[int], bytes]) -> tuple[int, str]:
        """HTTP status and words for one request; `read` gives as many bytes of its body as asked for."""
        try:
            known = self._shown(headers.get("Authorization", ""))
        except Misuse as error:
            log.error("%s", error)
            return 503, "the token cannot be checked"
        if not known:
            return 401, "a bearer token is asked for, and this is not it"
        length = headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return 411, "say the Content-Length"
        if len(length) > 9 or int(length) > LARGEST_BODY_BYTES:
            return 413, f"at most {LARGEST_BODY_BYTES} bytes"
        if not self._accepts():
            return 503, "this replica stands by; another one leads"
        try:
            pod, said = _read(read(int(length)), self._clock())
        except ValueError as error:
            return 400, str(error)
        return (204, "") if self._keep(pod, said) else (503, "too much was pushed; come again")

    def _keep(self, pod: PodName, said: Sequence[Reading | Stage]) -> bool:
        with self._lock:
            if pod not in self._kept and len(self._kept) >= MOST_PODS:
                return False
            self._kept.setdefault(pod, deque(maxlen=MOST_READINGS)).extend(said)
            return True

    def _shown(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        same = hmac.compare_digest(token.strip().encode("utf-8", "surrogateescape"), self._token())
        return same and scheme.lower() == "bearer"

    def _token(self) -> bytes:
        try:
            text = self._token_file.read_bytes().strip()
        except OSError as error:
            reason = (error.strerror or "it cannot be read").lower()
            raise Misuse(f"--progress-token-file {self._token_file}: {reason}. Check the path.") from error
        if not text or len(text.splitlines()) > 1:
            raise Misuse(f"--progress-token-file {self._token_file}: it must hold one line, the token. Write it again.")
        return text


def _read(body: bytes, now_s: float) -> tuple[PodName, Sequence[Reading | Stage]]:
    """Whose and what it is: a stage, a reading or both; ValueError with the reason when it is none."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError("the body is not JSON") from error
    if not isinstance(content, dict):
        raise ValueError("the body is not a JSON object")
    if unknown := sorted(content.keys() - {"namespace", "pod", "stage", *FIELDS}):
        raise ValueError(f"there is no field {unknown[0][:40]!r}")
    namespace, pod = (_name(content, field) for field in ("namespace", "pod"))
    stage = stage_of({"stage": content.get("stage")}, now_s)
    if stage is None and content.get("stage") is not None:
        raise ValueError("stage is no text")
    if stage is not None and not any(name in content for name in METRICS):
        return (namespace, pod), [stage]
    reading = reading_of(content, now_s)
    return (namespace, pod), [reading] if stage is None else [stage, reading]


def _name(content: Mapping[str, object], field: str) -> str:
    value = content.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        raise ValueError(f"{field} is missing, or no name")
    return value
