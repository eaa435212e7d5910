"""A PhaseProfile rendered for a person: phases, training progress, conditions and recommendations."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from recommender.base.units import parse_rfc3339_s
from recommender.report.profile_words import render_profile, when_words

NOW_S = parse_rfc3339_s("2026-11-21T09:59:10Z")


def rendered(*pods: dict[str, Any], vpa: dict[str, Any] | None = None, **profile: Any) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(render_profile("ns/job", {"pods": list(pods), **profile}, vpa or {}, NOW_S))
    return captured.get()


def test_a_pod_is_shown_with_its_category_its_start_and_its_progress() -> None:
    pod = {"name": "job-1", "uid": "u", "container": "main", "phase": 3, "category": "Watching"}
    text = rendered({**pod, "categorySince": "2026-11-21T10:00:00Z", "progress": 0.0042})
    assert "Watching since 2026-11-21T10:00:00Z, moved 0.42% in the last interval" in text
    assert "Watching" in rendered(pod)


def test_a_pod_without_progress_is_shown_as_not_reported() -> None:
    assert "not reported" in rendered({"name": "job-1", "uid": "u", "container": "main", "phase": 3})


def test_a_pod_without_samples_is_shown_with_an_unknown_phase() -> None:
    text = rendered({"name": "job-1", "uid": "u", "category": "Progressing"})
    assert "unknown" in text
    assert "Progressing" in text


def test_a_refused_model_is_shown() -> None:
    refused = {"type": "ModelRefused", "status": "True", "reason": "Refused", "message": "bundled goes on: damaged"}
    assert "ModelRefused: True. Refused bundled goes on: damaged" in rendered(conditions=[refused])


def test_recommendations_are_shown_in_readable_units() -> None:
    amounts = {"cpu": "977m", "memory": "1015105139"}
    vpa = {"recommendation": {"containerRecommendations": [{"containerName": "main", "target": amounts}]}}
    text = rendered(vpa=vpa, containers=[{"name": "main"}])
    assert "cpu 977m, memory 968Mi" in text
    assert "pods" not in text, "there are none"


def test_the_age_of_the_profile_can_be_seen() -> None:
    assert rendered(updated="2026-11-21T10:00:00Z").startswith("ns/job, as of 2026-11-21T10:00:00Z\n")


def test_the_annotation_about_a_move_is_shown() -> None:
    assert "move: planned: from n0 to n1" in rendered(move="planned: from n0 to n1")


def test_text_of_pod_owners_neither_controls_the_terminal_nor_breaks_the_table() -> None:
    hostile = "[/x]\x1b[2J[bold]"
    condition = {"type": hostile, "status": "True", "message": hostile}
    rail = {"name": "floor", "words": hostile}
    profile = {
        "move": hostile,
        "conditions": [condition],
        "containers": [{"name": hostile, "why": {"policy": hostile, "rails": [rail]}}],
        "pods": [{"name": hostile, "container": hostile, "phase": 1, "stage": hostile}],
    }
    console = Console(width=160, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(render_profile(hostile, profile, {"conditions": [condition]}, NOW_S))
    text = captured.get()
    assert text.count(r"[/x]\x1b[2J[bold]") == 12
    assert "\x1b[2J" not in text


def test_a_next_phase_that_did_not_decide_is_shown_with_what_did() -> None:
    following = [{"phase": 3, "doing": "waits on 0.1 cores", "probability": 0.6, "at": "2026-11-21T10:00:00Z"}]

    def expected(policy: str) -> str:
        text = rendered(containers=[{"name": "main", "next": following, "why": {"policy": policy}}])
        return next(line for line in text.splitlines() if "expected" in line)

    words = "phase 3 (waits on 0.1 cores), 60%, in 50s; CPU is decided by own.past instead"
    assert words in expected("own.past")
    assert "decided" not in expected("phase.graph")


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-11-21T10:00:00Z", "in 50s"),
        ("2026-11-21T09:58:50Z", "overdue by 20s"),
        ("2026-11-21T09:59:10Z", "overdue by 1s"),
        ("2026-11-21T11:00:00Z", "in 1h50s"),
        ("soon", "at an unknown time"),
        (None, "at an unknown time"),
    ],
)
def test_a_moment_that_has_passed_is_overdue(at: str | None, words: str) -> None:
    assert when_words(at, NOW_S) == words
