"""A PhaseProfile in words: what a person reads of phases and progress."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from recommender.report.profile_words import render_profile


def words_of(*pods: dict[str, Any]) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(render_profile("ns/job", {"pods": list(pods)}, {}))
    return captured.get()


def test_a_pod_is_told_with_its_category_since_when_and_how_far_it_moved() -> None:
    pod = {"name": "job-1", "uid": "u", "container": "main", "phase": 3, "category": "Watching"}
    words = words_of({**pod, "categorySince": "2026-11-21T10:00:00Z", "progress": 0.0042})
    assert "Watching since 2026-11-21T10:00:00Z, moved 0.42% in the last interval" in words
    assert "Watching" in words_of(pod)


def test_a_pod_that_tells_nothing_of_its_progress_is_said_not_to() -> None:
    assert "not reported" in words_of({"name": "job-1", "uid": "u", "container": "main", "phase": 3})


def test_a_pod_without_a_sample_is_told_without_a_phase() -> None:
    words = words_of({"name": "job-1", "uid": "u", "category": "Progressing"})
    assert "unknown" in words
    assert "Progressing" in words


def test_a_model_that_is_refused_is_told() -> None:
    refused = {"type": "ModelRefused", "status": "True", "reason": "Refused", "message": "bundled goes on: damaged"}
    console = Console(width=160)
    with console.capture() as captured:
        console.print(render_profile("ns/job", {"conditions": [refused]}, {}))
    assert "ModelRefused: True. Refused bundled goes on: damaged" in captured.get()


def test_what_is_published_is_told_in_units_that_a_person_can_read() -> None:
    amounts = {"cpu": "977m", "memory": "1015105139"}
    vpa = {"recommendation": {"containerRecommendations": [{"containerName": "main", "target": amounts}]}}
    console = Console(width=160)
    with console.capture() as captured:
        console.print(render_profile("ns/job", {"containers": [{"name": "main"}]}, vpa))
    assert "cpu 977m, memory 968Mi" in captured.get()
    assert "pods" not in captured.get(), "there is none any more"


def test_what_the_controller_said_of_a_move_is_told() -> None:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(render_profile("ns/job", {"move": "planned: from n0 to n1"}, {}))
    assert "move: planned: from n0 to n1" in captured.get()


def test_what_a_pods_owner_writes_neither_steers_the_terminal_nor_ends_the_table() -> None:
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
        console.print(render_profile(hostile, profile, {"conditions": [condition]}))
    words = captured.get()
    assert words.count(r"[/x]\x1b[2J[bold]") == 12
    assert "\x1b[2J" not in words
