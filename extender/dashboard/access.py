"""Authentication and authorisation of readers."""

from __future__ import annotations

import hashlib
import threading
import time
from typing import Literal, NamedTuple

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, BadCredentials
from recommender.units import MonotonicClock

Access = Literal["local", "token", "proxy"]

AUTHENTICATION = "/apis/authentication.k8s.io/v1/tokenreviews"
AUTHORIZATION = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REQUIRED_ACCESS = {"group": "phasewise.dev", "resource": "phaseprofiles", "verb": "list"}
"""Anybody who may list PhaseProfiles in all namespaces may read pages derived from them."""

CACHE_TTL_S = 60.0  # how long an answer of the API server is cached; otherwise each page would cost two requests
MAX_CACHED = 1024

MAX_ASKING = 4
"""Tokens asked about at a time. Each takes a thread: with more, invalid ones would hold up the readers whose tokens are
known."""


class Refusal(NamedTuple):
    status: int
    problem: str


class AccessCheck:
    """Has the API server authenticate bearer tokens, which are cached as hashes and never logged, and authorise their
    users. `api` preferably has its own rate limit, so that invalid tokens delay nothing else."""

    def __init__(self, api: Api, clock: MonotonicClock = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._cached: dict[bytes, tuple[float, Refusal | None]] = {}
        self._asking = threading.Semaphore(MAX_ASKING)

    def refusal(self, authorization: str) -> Refusal | None:
        """Why a request with this Authorization header is refused; None if it is not."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return Refusal(401, "a bearer token is required")
        key, now_s = hashlib.sha256(token.strip().encode()).digest(), self._clock()
        until_s, refusal = self._cached.get(key, (0.0, None))
        if now_s < until_s:
            return refusal
        if not self._asking.acquire(blocking=False):
            return Refusal(503, "too many tokens are being asked about; try again")
        try:
            refusal = self._judge(token.strip())
        except (ApiError, BadCredentials) as error:
            return Refusal(503, f"the API server could not be asked about the token: {error}")
        finally:
            self._asking.release()
        while len(self._cached) >= MAX_CACHED:
            self._evict()
        self._cached[key] = now_s + CACHE_TTL_S, refusal
        return refusal

    def _evict(self) -> None:
        """Drop the oldest refusal, else the oldest answer: anyone may send invalid tokens, so they evict no reader."""
        answers = list(self._cached.items())
        oldest = next((key for key, (_, refusal) in answers if refusal is not None), answers[0][0])
        self._cached.pop(oldest, None)

    def _judge(self, token: str) -> Refusal | None:
        review = self._api.create(AUTHENTICATION, _body("authentication", "TokenReview", {"token": token}))
        status = review.get("status") or {}
        if not status.get("authenticated"):
            return Refusal(401, "the token is not valid")
        user = status.get("user") or {}
        attributes = {
            "user": user.get("username"), "groups": user.get("groups"), "uid": user.get("uid"),
            "extra": user.get("extra"), "resourceAttributes": REQUIRED_ACCESS,
        }  # fmt: skip
        body = _body("authorization", "SubjectAccessReview", attributes)
        allowed = (self._api.create(AUTHORIZATION, body).get("status") or {}).get("allowed")
        if allowed:
            return None
        return Refusal(403, f"{user.get('username')} may not list phaseprofiles.phasewise.dev in all namespaces")


def _body(group: str, kind: str, spec: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
