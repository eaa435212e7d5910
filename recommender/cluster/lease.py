"""Leader election on a Lease: one of several candidates acts; another takes over when it stops renewing.

Follows client-go's leaderelection package: a lease is free when it has no holder, or when no renewal was *observed
here* for its duration (clocks of other machines are never compared with ours); every write carries the version it read.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from recommender.base.units import MonotonicClock, WallClock
from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.errors import ApiError, BadCredentials, Conflict, NotFound
from recommender.cluster.paths import LEASES, new_object, path_of

log = logging.getLogger(__name__)

QPS, BURST = 5.0, 10
"""A rate limit of its own: a renewal must not queue behind a thousand status writes."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Lease duration, renew deadline of the holder, and retry period of all candidates."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0


class LeaderElection:
    """A candidate for a Lease, see `join`; tries to acquire and renew it on its own thread, also after losing it."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        times: LeaseTimes | None = None,
        clock: MonotonicClock = time.monotonic,
        wall_clock: WallClock = time.time,
    ) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._identity, self._times = identity, times or LeaseTimes()
        self._clock, self._wall_clock = clock, wall_clock
        self._path = path_of(LEASES, namespace, name)
        self._timeout_s = self._times.renew_deadline_s / 4  # two requests per attempt, two attempts within the deadline
        self._observed_spec: Mapping[str, Any] = {}
        self._observed_s = 0.0
        self._renewed_s: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader election", daemon=True)
        self.holder = ""
        """The holder at the last read."""
        self.problem = ""
        """The error of the last attempt; empty after a success."""

    @classmethod
    def join(cls, api: Api, namespace: str, name: str, times: LeaseTimes | None = None) -> LeaderElection:
        """A candidate with a unique identity and its own rate limit."""
        identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
        return cls(api.with_rate_limit(TokenBucket(QPS, BURST)), namespace, name, identity, times=times)

    @property
    def is_leader(self) -> bool:
        """Whether it renewed the lease within the deadline, before others may take it. Check before every write."""
        return self._renewed_in_time() and not self._ended.is_set()

    def _renewed_in_time(self) -> bool:
        return self._renewed_s is not None and self._clock() - self._renewed_s < self._times.renew_deadline_s

    # -- lifecycle -------------------------------------------------------------------------------------------------

    def start(self) -> LeaderElection:
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stop trying, and release the lease. Call it once nothing acts any more."""
        self._ended.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return  # a request hangs; the lease will expire
        try:
            self.release()
        except (ApiError, BadCredentials) as error:
            log.warning("the lease could not be released and will expire: %s", error)

    def _run(self) -> None:
        was_leader = False
        while not self._ended.is_set():
            try:
                self.try_acquire_or_renew()
                self.problem = ""
            except (ApiError, BadCredentials) as error:
                if not self.problem:
                    log.warning("lease: %s", error)
                self.problem = str(error)
            if self._renewed_in_time() != was_leader:
                was_leader = not was_leader
                if was_leader:
                    log.info("%s became the leader", self._identity)
                else:
                    log.warning("%s is no longer the leader", self._identity)
            self._ended.wait(self._times.retry_s * random.uniform(1.0, 1.2))  # noqa: S311  # jitter

    # -- one attempt ---------------------------------------------------------------------------------------------------

    def try_acquire_or_renew(self) -> bool:
        """Acquire the lease if it is free, or renew it if it is ours; return whether we hold it now.

        After an ApiError `is_leader` keeps deciding by the time of the last renewal.
        """
        requested_s = self._clock()  # not after the response: others may count from the earlier time
        try:
            lease = self._api.get(self._path, timeout_s=self._timeout_s)
        except NotFound:
            lease = {}
        spec = lease.get("spec") or {}
        self.holder = spec.get("holderIdentity") or ""
        if spec != self._observed_spec:
            self._observed_spec, self._observed_s = spec, self._clock()
        # The duration that the holder wrote: candidates may be configured differently.
        duration_s = float(spec.get("leaseDurationSeconds") or self._times.duration_s)
        if self.holder not in ("", self._identity) and self._clock() - self._observed_s < duration_s:
            self._renewed_s = None
            return False
        try:
            self._write(lease, self._held_spec(spec))
        except Conflict:
            return self._renewed_in_time()  # another candidate wrote; the next attempt sees who
        self._renewed_s, self.holder = requested_s, self._identity
        return True

    def release(self) -> None:
        """Release the lease if it is ours, so that the next candidate need not wait for it to expire."""
        held, self._renewed_s = self._renewed_s is not None, None
        if not held:
            return
        lease = self._api.get(self._path, timeout_s=self._timeout_s)
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") == self._identity:
            self._write(lease, {**spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()})

    def _write(self, lease: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Replace a lease, or create it if there is none; `Conflict` if another candidate did so first."""
        if lease:
            self._api.replace(self._path, {**lease, "spec": spec}, timeout_s=self._timeout_s)
            return
        metadata = {"name": self._name, "namespace": self._namespace}
        body = new_object(LEASES, "Lease", metadata, spec=spec)
        self._api.create(path_of(LEASES, self._namespace), body, timeout_s=self._timeout_s)

    def _held_spec(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The given spec with us as the holder, renewed now."""
        ours = spec.get("holderIdentity") == self._identity
        return {
            **spec,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration_s)),
            "acquireTime": spec.get("acquireTime") if ours else self._now(),
            "renewTime": self._now(),
            "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (0 if ours or not spec else 1),
        }

    def _now(self) -> str:
        return datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
