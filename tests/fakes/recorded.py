"""A recommender with a recorder in a simulated cluster; also a program, which a test kills."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from recommender.base.records import ContainerKey, Sample
from recommender.cluster.errors import Unreachable
from recommender.engine.fleet import Fleet
from recommender.engine.journal import Journal
from recommender.engine.lead_time import LeadTime
from recommender.engine.options import Options
from recommender.engine.recording import Recorder
from recommender.live.round import Recommender
from recommender.live.service import checkpoint_statuses
from recommender.policies.constraints import SharedLimits
from tests.fakes.day import HOUR_S, Day
from tests.fakes.records import MODEL

PIECE_BYTES = 2**22


def recorder_of(file: Path) -> Recorder:
    return Recorder(Journal(file, PIECE_BYTES))


class Outage(Day):
    """A day in which the API server does not answer while it is `away`."""

    away = False

    def samples(self) -> Iterable[tuple[ContainerKey, Sample]]:
        if self.away:
            raise Unreachable("the API server does not answer")
        return super().samples()

    def publish(self, *args: object) -> None:  # type: ignore[override]
        if self.away:
            raise Unreachable("the API server does not answer")
        super().publish(*args)  # type: ignore[arg-type]


def recommender_of(day: Day, recorder: Recorder) -> Recommender:
    return Recommender(
        day, Fleet(MODEL, day.round_s, 10), Options(), SharedLimits(),
        clock=lambda: day.now_s, stopwatch=lambda: day.now_s, lead_time=LeadTime(None, day.round_s),
        class_ttl_s=2 * HOUR_S, recorder=recorder,
    )  # fmt: skip


def live(day: Outage, recorder: Recorder, n: int) -> Iterator[Recommender]:
    """Rounds with checkpoints in between, as in the service."""
    recommender = recommender_of(day, recorder)
    for number in range(n):
        day.move()
        recommender.run()
        if number % 3 == 0:
            for state in recommender.vpas.values():
                checkpoint_statuses(recommender.engine, state, day.now_s)
        yield recommender


def record_for_ever(file: Path) -> None:
    """The program that a test kills."""
    day = Outage(round_s=60.0)
    for _ in live(day, recorder_of(file), 10**6):
        pass


if __name__ == "__main__":
    record_for_ever(Path(sys.argv[1]))
