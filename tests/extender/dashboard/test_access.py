"""Access to the pages: a token must be valid, and its user allowed to list PhaseProfiles."""

from __future__ import annotations

import pytest

from extender.dashboard.access import AUTHENTICATION, AUTHORIZATION, CACHE_TTL_S, REQUIRED_ACCESS, AccessCheck, Refusal
from tests.extender.dashboard.scenes import FakeReviewApi


def check_of(api: FakeReviewApi, now_s: list[float] | None = None) -> AccessCheck:
    return AccessCheck(api, clock=lambda: (now_s or [0.0])[0])  # type: ignore[arg-type]


def test_a_valid_token_of_a_user_who_may_list_profiles_is_accepted() -> None:
    api = FakeReviewApi()
    assert check_of(api).refusal("Bearer right") is None
    (review, access) = api.reviews
    assert review == (AUTHENTICATION, {"token": "right"})
    assert access[0] == AUTHORIZATION
    assert (access[1]["user"], access[1]["groups"], access[1]["resourceAttributes"]) == (
        "ann",
        ["dev"],
        REQUIRED_ACCESS,
    )


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        ("", "a bearer token is required"),
        ("Basic cmlnaHQ=", "a bearer token is required"),
        ("Bearer ", "a bearer token is required"),
        ("Bearer wrong", "the token is not valid"),
    ],
)
def test_a_missing_or_invalid_token_is_refused(header: str, refusal: str) -> None:
    assert check_of(FakeReviewApi()).refusal(header) == Refusal(401, refusal)


def test_a_user_who_may_not_list_profiles_is_refused() -> None:
    refusal = check_of(FakeReviewApi(allowed=False)).refusal("Bearer right")
    assert refusal == (403, "ann may not list phaseprofiles.phasewise.dev in all namespaces")


def test_an_answer_is_cached_for_a_minute_but_not_the_token() -> None:
    api, now_s = FakeReviewApi(), [0.0]
    check = check_of(api, now_s)
    assert check.refusal("Bearer right") is check.refusal("Bearer right") is None
    assert len(api.reviews) == 2
    assert b"right" not in repr(check._cached).encode()
    api.allowed, now_s[0] = False, CACHE_TTL_S + 1.0
    assert check.refusal("Bearer right") is not None


def test_while_the_api_server_is_away_new_tokens_are_refused_and_that_is_not_cached() -> None:
    api = FakeReviewApi()
    check, api.away = check_of(api), True
    refusal = check.refusal("Bearer right")
    assert refusal is not None and (refusal.status, "could not be asked" in refusal.problem) == (503, True)
    api.away = False
    assert check.refusal("Bearer right") is None
