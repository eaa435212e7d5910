"""The last hour of a container as recorded, and the charts of it."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from extender.dashboard.drawing import BOTTOM, HEIGHT, PHASE, TOP, WIDTH, History, draw, draw_progress
from extender.dashboard.drawing import ROW_LENGTH as COLUMNS
from extender.dashboard.job import Running
from recommender.base.records import CPU, MEMORY
from tests.extender.dashboard.scenes import NOON_S, a_job, only_container, profile

ONE = only_container(a_job())


def history_of(*samples: dict[str, Any], length: int = 240) -> History:
    """The container with these values, 15 s apart."""
    history = History(length)
    for number, values in enumerate(samples):
        history.add(NOON_S + 15.0 * number, [replace(ONE, **values)])
    return history


def recorded(samples: int, length: int = 240) -> History:
    """A container whose use rises and whose request doubles after five samples."""
    values = [
        {"use": (0.1 * n, 1e9), "request": (1.0 if n < 5 else 2.0, ONE.request[MEMORY]), "phase": n // 4}
        for n in range(samples)
    ]
    return history_of(*values, length=length)


def test_only_the_latest_samples_are_kept_the_oldest_first() -> None:
    moments, rows = recorded(7, length=4).of(ONE.key)
    assert moments.tolist() == [NOON_S + 15.0 * number for number in (3, 4, 5, 6)]
    assert rows[:, 0].tolist() == pytest.approx([0.3, 0.4, 0.5, 0.6])
    assert rows[:, PHASE].tolist() == [0.0, 1.0, 1.0, 1.0]


def test_a_page_rendered_while_a_sample_is_recorded_has_its_samples_in_order() -> None:
    history, read = recorded(4, length=4), list[list[float]]()
    page = threading.Thread(target=lambda: read.append(history.of(ONE.key)[0].tolist()))

    def running() -> Iterator[Running]:
        page.start()
        page.join(0.2)  # as long as recording thousands of other containers takes
        yield ONE

    history.add(NOON_S + 60.0, running())
    page.join()
    assert read == [[NOON_S + 15.0 * number for number in (1, 2, 3, 4)]]


def test_a_container_that_is_gone_for_a_whole_turn_is_dropped() -> None:
    history = recorded(4, length=4)
    for number in range(3):
        history.add(NOON_S + 100.0 + number, [])
        assert len(history.of(ONE.key)[0]) == 3 - number
    history.add(NOON_S + 200.0, [])
    assert ONE.key not in history._rings


def test_short_pods_that_come_and_go_do_not_add_up() -> None:
    history = History()
    for number in range(200):
        pods = [replace(ONE, key=ONE.key._replace(pod=f"p{max(0, number - age)}")) for age in (0, 1, 2)]
        history.add(NOON_S + 15.0 * number, pods)
        assert len(history._rings) <= 6, "three that run, and three that have run as long as they are gone"


def test_the_chart_shows_use_phases_marks_and_the_forecast() -> None:
    entry = profile()["status"]["containers"][0]
    moments, rows = recorded(9).of(ONE.key)
    now_s = float(moments[-1])
    drawn = draw(CPU, moments, rows, entry, now_s, age_s=60.0)
    assert {"use", "request", "target", "demand"} <= drawn.lines.keys()
    assert "limit" not in drawn.lines, "CPU has no limit"
    assert [(ribbon.phase, ribbon.ahead) for ribbon in drawn.ribbons] == [(0, False), (1, False), (2, False), (2, True)]
    assert [(mark.kind, mark.words) for mark in drawn.marks] == [("applied", "applied 2.00, 1.00 before")]
    assert drawn.forecast is not None
    assert drawn.forecast[0] == drawn.now_x < WIDTH
    assert drawn.ticks and all(0.0 <= y <= HEIGHT for y, _ in drawn.ticks)


def test_a_chart_without_data_is_empty() -> None:
    drawn = draw(MEMORY, np.empty(0), np.empty((0, COLUMNS)), {}, NOON_S, float("nan"))
    assert (drawn.lines, drawn.ribbons, drawn.marks, drawn.forecast) == ({}, [], [], None)


def test_a_deferred_resize_is_marked_where_it_begins() -> None:
    reasons = ("", "Deferred: no room", "Deferred: no room", "", "Deferred: no room")
    moments, rows = history_of(*({"deferred": reason} for reason in reasons)).of(ONE.key)
    marks = draw(CPU, moments, rows, {}, NOON_S + 60.0, math.nan).marks
    assert [mark.kind for mark in marks] == ["deferred", "deferred"]


def test_reverted_resizes_and_checkpoints_are_marked() -> None:
    samples = ((False, math.nan), (True, -20.0), (True, 20.0), (False, 20.0))
    history = history_of(*({"reverted": reverted, "saved_s": NOON_S + saved_s} for reverted, saved_s in samples))
    moments, rows = history.of(ONE.key)
    marks = draw(CPU, moments, rows, {}, NOON_S + 60.0, math.nan).marks
    assert [mark.kind for mark in marks] == ["reverted", "saved"], "one checkpoint was before the chart begins"
    assert [history.saved_before(ONE.key, NOON_S + at_s) for at_s in (-30.0, 0.0, 30.0)] == [
        -math.inf, NOON_S - 20.0, NOON_S + 20.0
    ]  # fmt: skip


def test_training_progress_is_drawn_if_any_was_reported() -> None:
    moments, rows = history_of(*({"metric": "loss", "value": loss} for loss in (2.0, 1.5, 1.5, 0.5))).of(ONE.key)
    drawn = draw_progress("loss", moments, rows, NOON_S + 45.0)
    assert drawn is not None
    assert [words for _, words in drawn.ticks] == ["0.5", "1.25", "2"]
    assert drawn.lines["use"].count("V") == 2, "a step where the value changes"
    no_progress, without_values = recorded(3).of(ONE.key)
    assert draw_progress("", no_progress, without_values, NOON_S) is None


@pytest.mark.parametrize("value", [0.0, 1e17, -1e30])
def test_progress_that_stands_still_is_drawn_however_large_it_is(value: float) -> None:
    """As the perplexity of a run that diverges: one more is the same number in double precision."""
    moments, rows = history_of(*({"metric": "perplexity", "value": value} for _ in range(3))).of(ONE.key)
    drawn = draw_progress("perplexity", moments, rows, NOON_S + 30.0)
    assert drawn is not None
    assert [y for y, _ in drawn.ticks] == [HEIGHT - BOTTOM, (HEIGHT - BOTTOM + TOP) / 2, TOP]
