"""Who may read: whose token the API server knows, and lets list PhaseProfiles."""

from __future__ import annotations

import pytest

from extender.dashboard.access import AUTHENTICATION, AUTHORIZATION, CACHE_TTL_S, REQUIRED_ACCESS, AccessCheck
from tests.extender.dashboard.scenes import Reviewing


def gate(api: Reviewing, now_s: list[float] | None = None) -> AccessCheck:
    return AccessCheck(api, clock=lambda: (now_s or [0.0])[0])  # type: ignore[arg-type]


def test_a_token_that_is_known_and_may_is_let_in() -> None:
    api = Reviewing()
    assert gate(api).refusal("Bearer right") == ""
    (review, access) = api.asked
    assert review == (AUTHENTICATION, {"token": "right"})
    assert access[0] == AUTHORIZATION
    assert (access[1]["user"], access[1]["groups"], access[1]["resourceAttributes"]) == (
        "ann",
        ["dev"],
        REQUIRED_ACCESS,
    )


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("", "a bearer token is required"),
        ("Basic cmlnaHQ=", "a bearer token is required"),
        ("Bearer ", "a bearer token is required"),
        ("Bearer wrong", "the token is not valid"),
    ],
)
def test_others_are_not(header: str, said: str) -> None:
    assert gate(Reviewing()).refusal(header) == said


def test_who_may_not_list_profiles_is_told_so() -> None:
    assert gate(Reviewing(allowed=False)).refusal("Bearer right").startswith("ann may not list phaseprofiles")


def test_an_answer_counts_for_a_minute_and_no_token_is_cached() -> None:
    api, now_s = Reviewing(), [0.0]
    asked = gate(api, now_s)
    assert asked.refusal("Bearer right") == asked.refusal("Bearer right") == ""
    assert len(api.asked) == 2
    assert b"right" not in repr(asked._cached).encode()
    api.allowed, now_s[0] = False, CACHE_TTL_S + 1.0
    assert asked.refusal("Bearer right") != ""


def test_while_the_api_server_is_away_nobody_new_is_let_in_and_that_is_not_remembered() -> None:
    api = Reviewing()
    asked, api.away = gate(api), True
    assert "could not be asked" in asked.refusal("Bearer right")
    api.away = False
    assert asked.refusal("Bearer right") == ""
