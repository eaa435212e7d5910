"""Keeps VPAs in place for workloads that nobody wrote one for: looks where something changed, does what is planned."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Conflict, Unreachable
from recommender.cluster.vpas.auto_created import VpaMaker
from recommender.live.auto.view import AutoView
from recommender.live.auto.vpas import Planning, VpaChanges

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 300.0
"""Everything is looked at so often, whether or not a change was told."""

WAIT_S = 0.2
"""Between two looks at whether we lead and know enough to act."""

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
"""After a failure in a namespace; doubled with every further one."""


class AutoKeeper:
    """Makes, changes and removes VPAs on a thread of its own, while this process leads.

    Parameters
    ----------
    api
        Best one apart (`Api.with_rate_limit`), so that a thousand new jobs do not hold up the statuses.
    recommender
        The name that the VPAs say.
    leads
        Whether this process may act; asked before every write.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        api: Api,
        view: AutoView,
        recommender: str,
        registry: CollectorRegistry,
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._maker, self._view, self._recommender = VpaMaker(api), view, recommender
        self._leads, self._clock = leads, clock
        self._retry_s: dict[str, tuple[int, float]] = {}  # namespace -> failures in a row, when to try again
        self._said: dict[str, Mapping[str, str]] = {}  # namespace -> what was last said about its objects
        self._looked_at_all_s: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="auto VPAs", daemon=True)
        self._writes = Counter(
            "phasewise_auto_vpas", "VPAs written for workloads without one.", ["action"], registry=registry
        )
        self._problems = Gauge(
            "phasewise_auto_problems", "Workloads and VPAs of which a person should know.", registry=registry
        )

    def start(self) -> None:
        self._view.start()
        self._thread.start()

    def stop(self) -> None:
        """Write nothing more. A request under way is left to end by itself."""
        self._ended.set()
        self._view.stop()

    def _run(self) -> None:
        while not self._ended.is_set():
            if not self._leads() or not self._view.synced:
                self._looked_at_all_s = None
                self._problems.set(0)  # another process tells of them
                self._ended.wait(WAIT_S)
                continue
            try:
                self.look()
            except Exception:  # a fault of ours must show, and must not end the thread
                log.exception("unexpected failure")
                self._looked_at_all_s = None
                self._ended.wait(FIRST_RETRY_S)
            self._view.wait(self._until_next_s())

    def look(self) -> None:
        """Do what is to be done in each namespace in which something changed, or that failed, or is due."""
        now_s = self._clock()
        failing = {name for name, (failures, at_s) in self._retry_s.items() if failures and at_s > now_s}
        due = self._view.changed() - failing  # those are looked at again when it is time to
        due |= {name for name, (_, at_s) in self._retry_s.items() if at_s <= now_s}
        if self._looked_at_all_s is None or now_s - self._looked_at_all_s >= LOOK_AGAIN_S:
            due |= self._view.all_namespaces()
            self._looked_at_all_s = now_s
        for name in sorted(due):
            self._settle(name, now_s)
        self._problems.set(sum(len(said) for said in self._said.values()))

    def _settle(self, name: str, now_s: float) -> None:
        namespace = self._view.namespace(name)
        if namespace is None:
            self._retry_s.pop(name, None)
            self._said.pop(name, None)
            return
        workloads, vpas = self._view.workloads(name), self._view.vpas(name)
        wanted = Planning(namespace, workloads, vpas, self._recommender, self._view).done()
        undone = dict(self._carry_out(wanted))
        self._say(name, {**wanted.notes, **undone})
        if wanted.unsure or any(undone.values()):
            failures, _ = self._retry_s.get(name, (0, 0.0))
            wait_s = min(FIRST_RETRY_S * 2.0 ** min(failures, 10), LONGEST_RETRY_S)
            self._retry_s[name] = (failures + 1, now_s + wait_s)
        elif undone:
            self._retry_s[name] = (0, now_s + FIRST_RETRY_S)
        else:
            self._retry_s.pop(name, None)

    def _carry_out(self, wanted: VpaChanges) -> Iterator[tuple[str, str]]:
        """What could not be done, and why; no words where our view is late, and the next one will tell."""
        for step in _steps(wanted, self._maker):
            if self._ended.is_set() or not self._leads():
                return
            try:
                step.do()
            except Conflict:
                yield step.about, ""
            except ApiError as error:
                self._writes.labels("failed").inc()
                yield step.about, f"could not be {step.action}: {error}"
                if isinstance(error, Unreachable):
                    return  # the others would only wait as long, one after the other
            else:
                self._writes.labels(step.action).inc()
                log.info("%s: %s (%s)", step.about, step.action, step.why, extra={"about": step.about})

    def _say(self, namespace: str, words: Mapping[str, str]) -> None:
        """Log what a person should know when it comes and when it goes, not at every look."""
        said, new = self._said.pop(namespace, {}), {about: text for about, text in words.items() if text}
        for about, text in new.items():
            if said.get(about) != text:
                log.warning("%s: %s", about, text, extra={"about": about})
        for about in said.keys() - new.keys():
            log.info("%s: well again", about, extra={"about": about})
        if new:
            self._said[namespace] = new

    def _until_next_s(self) -> float:
        """Until the next retry or the next look at everything."""
        if self._looked_at_all_s is None:
            return 0.0
        due_s = min([self._looked_at_all_s + LOOK_AGAIN_S, *(at_s for _, at_s in self._retry_s.values())])
        return max(0.0, due_s - self._clock())


class _Step(NamedTuple):
    """One write: what it does to what, and why."""

    action: str
    about: str
    do: Callable[[], None]
    why: str


def _steps(wanted: VpaChanges, maker: VpaMaker) -> Iterator[_Step]:
    for vpa, why in wanted.remove:
        yield _Step("removed", f"VPA {vpa.key}", partial(maker.remove, vpa), why)
    for vpa, to in wanted.change:
        yield _Step("changed", f"VPA {vpa.key}", partial(maker.change, vpa, to), f"mode {to.settings.mode}")
    for new in wanted.create:
        yield _Step("made", f"VPA {new.key}", partial(maker.create, new), f"mode {new.settings.mode}")
