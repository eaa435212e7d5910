"""Access to the pages: a token must be valid, and its user allowed to list PhaseProfiles."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from extender.dashboard.pages import (
    AUTHENTICATION,
    AUTHORIZATION,
    CACHE_TTL_S,
    MAX_CACHED,
    REQUIRED_ACCESS,
    AccessCheck,
    Refusal,
)
from extender.dashboard.watching import ClusterView
from recommender.cluster.errors import BadCredentials
from tests.extender.dashboard.scenes import FakeReviewApi, client

EMPTY = ClusterView(now_s=1.0, jobs={}, classes={}, pods={}, nodes={})


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


def test_readers_with_known_tokens_are_not_asked_about_again_however_many_invalid_ones_come() -> None:
    api = FakeReviewApi()
    check = check_of(api)
    assert check.refusal("Bearer right") is None
    for number in range(MAX_CACHED + 1):
        check.refusal(f"Bearer wrong-{number}")
    asked = len(api.reviews)
    assert check.refusal("Bearer right") is None
    assert (len(api.reviews), len(check._cached)) == (asked, MAX_CACHED)


def test_while_the_api_server_is_away_new_tokens_are_refused_and_that_is_not_cached() -> None:
    api = FakeReviewApi()
    check, api.away = check_of(api), True
    refusal = check.refusal("Bearer right")
    assert refusal is not None and (refusal.status, "could not be asked" in refusal.problem) == (503, True)
    api.away = False
    assert check.refusal("Bearer right") is None


def test_a_token_is_refused_while_four_others_are_being_asked_about_but_not_one_that_is_known() -> None:
    """Otherwise whoever sends many invalid tokens would hold up all readers."""

    class SlowReviewApi(FakeReviewApi):
        def create(self, path: str, body: Any) -> Any:
            started.release()
            assert answered.wait(20.0)
            return super().create(path, body)

    started, answered = threading.Semaphore(0), threading.Event()
    answered.set()
    check = check_of(SlowReviewApi())
    assert check.refusal("Bearer right") is None
    answered.clear()
    with ThreadPoolExecutor() as pool:
        try:
            asked = [pool.submit(check.refusal, f"Bearer wrong-{number}") for number in range(4)]
            assert all(started.acquire(timeout=20.0) for _ in range(4))
            assert check.refusal("Bearer right") is None
            refusal = pool.submit(check.refusal, "Bearer another").result(5.0)
        finally:
            answered.set()
    assert refusal == Refusal(503, "too many tokens are being asked about; try again")
    assert [each.result() for each in asked] == [Refusal(401, "the token is not valid")] * 4
    assert check.refusal("Bearer another") == Refusal(401, "the token is not valid")


def test_without_credentials_of_our_own_a_reader_is_refused_with_the_reason() -> None:
    class WithoutCredentials:
        def create(self, path: str, body: Any) -> Any:
            raise BadCredentials("no token of a service account")

    refusal = check_of(WithoutCredentials()).refusal("Bearer right")  # type: ignore[arg-type]
    assert refusal is not None and (refusal.status, "no token of a service account" in refusal.problem) == (503, True)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in ("localhost:8946", "LOCALHOST", "127.0.0.1:8946", "127.0.0.2:80", "[::1]:8946")),
        *((name, 403) for name in ("evil.example:8946", "127.0.0.1.evil.example", "localhost.evil.example:8946", "")),
    ],
)
def test_with_local_access_a_page_is_only_shown_under_a_name_of_this_machine(host: str, status: int) -> None:
    """A site whose name was made to mean 127.0.0.1 has its visitor's browser ask for the pages, and may read them."""
    assert client(EMPTY, local=True).get("/nodes", Host=host, Accept="application/json").status_code == status
    assert client(EMPTY).get("/nodes", Host=host, Accept="application/json").status_code == 200
