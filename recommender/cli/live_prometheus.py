"""A Prometheus as the source of the live recommender: use in each round, and the past before the first one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from recommender.live.past.before_start import PriorHistory
from recommender.live.view.usage import Usage, Used
from recommender.live.view.view import Place
from recommender.records import Sample
from recommender.sources.prometheus_access import Access
from recommender.sources.prometheus_api import PrometheusClient
from recommender.sources.prometheus_past import PrometheusPast
from recommender.sources.prometheus_queries import UsageSettings
from recommender.sources.prometheus_usage import UsageQuery

ROUND_RETRIES, ROUND_TIMEOUT_S = 2, 15.0
"""In a round: the next one asks again anyway, and the VPAs do not wait for it."""

START_RETRIES = 7
"""At the start: waits of half a minute and more in all, until a Prometheus that starts at the same time answers."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LivePrometheus:
    """Where to ask, and for what."""

    url: str
    access: Access
    settings: UsageSettings

    @classmethod
    def of(cls, url: str, access: Access, settings: UsageSettings, only_namespace: str | None) -> LivePrometheus:
        """For the one namespace that is looked at, unless others were named."""
        if only_namespace and not settings.namespaces:
            settings = replace(settings, namespaces=(only_namespace,))
        return cls(url, access, settings)

    def usage(self, prior: PriorHistory | None) -> Usage:
        """The latest sample of every container; the first time, those before the start too."""
        client = PrometheusClient(
            self.url, self.access, timeout_s=ROUND_TIMEOUT_S, retries=ROUND_RETRIES, warn=self._warn
        )
        query = UsageQuery(client, self.settings)

        def samples(now_s: float) -> Iterable[tuple[Place, Sample]]:
            if prior is not None:
                yield from prior.samples()
            for place, sample in query.current_usage(now_s).items():
                yield Place(*place), sample

        return lambda now_s: Used(samples(now_s))

    def prior(self, length_s: float, resolution_s: float, step_s: float, ended: threading.Event) -> PriorHistory | None:
        """What loads the past, unless the process is to end; None where none is wanted (a length of 0)."""
        if not length_s:
            return None

        def pause(seconds: float) -> None:
            ended.wait(seconds)

        client = PrometheusClient(self.url, self.access, retries=START_RETRIES, warn=self._warn, sleep=pause)
        clocks = {"clock": time.time, "stopwatch": time.monotonic}
        past = PrometheusPast(client, self.settings)
        return PriorHistory(past, length_s, resolution_s, step_s, **clocks, stopped=ended.is_set)

    def _warn(self, told: str) -> None:
        log.warning("Prometheus warns: %s", told)
