"""The pages over HTTP: HTML for browsers, JSON for programs, no markup from names, and access by token."""

from __future__ import annotations

import re
import time

import pytest

from extender.dashboard.pages import AccessCheck
from extender.dashboard.watching import ClusterView
from recommender.cluster.errors import BadCredentials
from tests.extender.dashboard import scenes
from tests.extender.dashboard.scenes import HTML, FakeReviewApi, a_job, client, view_of, watch_of

PATHS = ("/", "/jobs/ml/train", "/classes", "/nodes", "/warnings")
HOSTILE = '<script>alert("1")</script>'


@pytest.mark.parametrize("path", PATHS)
def test_each_page_is_html_for_a_browser_and_json_for_a_program(path: str) -> None:
    pages = client(a_job())
    html, data = pages.get(path, **HTML), pages.get(path, Accept="application/json")
    assert (html.status_code, data.status_code) == (200, 200)
    assert html.headers["content-type"].startswith("text/html")
    assert data.get_json()["now"] == a_job().now_s
    assert pages.get(path).get_json() == data.get_json(), "without an Accept header it is JSON"


@pytest.mark.parametrize("path", PATHS)
def test_a_page_loads_nothing_from_elsewhere_and_allows_no_inline_code(path: str) -> None:
    html = client(a_job()).get(path, **HTML)
    policy = html.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "style=" not in html.text
    assert "http://" not in html.text.replace("http://www.w3.org", "")


def test_the_page_of_all_jobs_says_how_soon_the_next_phase_is_expected() -> None:
    html = client(a_job()).get("/", **HTML).text
    assert "then 2 (80%)" in html
    assert re.search(r"<small>(in|overdue by) \d+[smh]", html)
    assert "2026-05-01T12:00:40Z" not in html


def test_the_page_of_a_job_shows_forecast_rule_guard_rail_and_declared_requests() -> None:
    html = client(a_job()).get("/jobs/ml/train", **HTML).text
    for words in (
        "phase 2 (80%)",
        "80% that phase 2 starts within 40 s",
        "slow shrink: kept for 600 s",
        "cpu 4.00, memory 8.00Gi",
    ):
        assert words in html


def test_the_suggested_requests_are_enough_for_a_whole_run() -> None:
    """The targets are 1.2 cores and 3 GiB; earlier runs of the class used 2 cores and 2 GiB."""
    data = client(a_job()).get("/jobs/ml/train").get_json()
    assert data["yaml"] == {"main": "resources:\n  requests:\n    cpu: 2000m\n    memory: 3072Mi\n"}


def test_markup_in_names_and_messages_is_escaped() -> None:
    hostile = view_of([scenes.vpa(HOSTILE, conditions=[{"type": "X", "status": "True", "message": HOSTILE}])])
    for path in ("/", "/warnings", f"/jobs/ml/{HOSTILE.replace('/', '%2F')}"):
        assert "<script>alert" not in client(hostile).get(path, **HTML).text
    for path in ("/", "/classes"):
        assert "<script>alert" not in client(a_job()).get(f"{path}?q={HOSTILE}", **HTML).text


def test_characters_that_reverse_text_are_shown_as_escapes() -> None:
    """Otherwise one name could look like another."""
    reversing = view_of([scenes.vpa(conditions=[{"type": "X", "status": "True", "message": "\u202eniart\u2069"}])])
    for path in ("/", "/warnings", "/jobs/ml/train"):
        html = client(reversing).get(path, **HTML).text
        assert "\\u202eniart\\u2069" in html
        assert not {"\u202e", "\u2069"} & set(html)


def test_an_unknown_job_is_404_a_wrong_page_number_is_ignored_and_post_is_405() -> None:
    pages = client(a_job())
    assert pages.get("/jobs/ml/none").status_code == 404
    assert pages.get("/?page=x").status_code == pages.get("/?page=-5").status_code == 200
    assert pages.post("/").status_code == 405


def test_the_first_view_of_ten_thousand_containers_is_below_300_kb() -> None:
    jobs, pods = range(2_500), range(4)
    view = view_of(
        [scenes.vpa(f"training-of-model-{job}") for job in jobs],
        [scenes.profile(f"training-of-model-{job}", pods=[f"p-{job}-{pod}" for pod in pods]) for job in jobs],
        [scenes.pod(f"p-{job}-{pod}", node=f"n{pod}") for job in jobs for pod in pods],
        [scenes.node(f"n{pod}") for pod in pods],
        dict(scenes.use(name=f"p-{job}-{pod}", cpu_cores=1.5) for job in jobs for pod in pods),
    )
    pages = client(view)
    assert pages.get("/").get_json()["containers"] == 10_000
    for path in ("/", "/warnings", "/nodes"):
        assert len(pages.get(path, **HTML).data) + len(pages.get("/page.css").data) < 300_000


def test_the_time_for_the_page_of_classes_grows_with_the_length_of_their_curves_not_with_its_square() -> None:
    """A hundred classes with curves of the largest length took eight seconds."""

    def cpu_s(length: int) -> float:
        profile = scenes.class_profile()
        profile["status"]["containers"][0]["demand"] |= {"cpuCores": [2.0] * length, "memoryBytes": [2e9] * length}
        web, taken_s = client(view_of(profiles=[profile])), list[float]()
        for _ in range(3):
            began_s = time.process_time()
            assert web.get("/classes", **HTML).text.count("L400.0,5.0") == 2
            taken_s.append(time.process_time() - began_s)
        return min(taken_s)

    assert cpu_s(1024) < 8.0 * cpu_s(128)


def test_without_an_authorised_token_no_page_is_served() -> None:
    pages = client(a_job(), AccessCheck(FakeReviewApi()))  # type: ignore[arg-type]
    for path in PATHS:
        refused = pages.get(path)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert b"train-0" not in refused.data
        assert pages.get(path, Authorization="Bearer right").status_code == 200
    assert [pages.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]
    refused = client(a_job(), AccessCheck(FakeReviewApi(allowed=False))).get("/", Authorization="Bearer right")  # type: ignore[arg-type]
    assert refused.status_code == 403


def test_before_the_cluster_was_read_pages_and_readiness_are_503() -> None:
    pages = client(ClusterView(0.0, {}, {}, {}, {}))
    assert pages.get("/", **HTML).status_code == pages.get("/readyz").status_code == 503
    assert pages.get("/healthz").status_code == 200


def test_the_style_sheet_and_the_script_are_served() -> None:
    pages = client(a_job())
    assert b".hour" in pages.get("/page.css").data
    assert b"setInterval" in pages.get("/page.js").data


def test_pages_are_updated_while_our_own_credentials_cannot_be_read_and_say_so() -> None:
    class WithoutCredentials:
        def get(self, path: str, **_: object) -> object:
            raise BadCredentials("the token can no longer be read")

    watching = watch_of(a_job())
    watching._api = WithoutCredentials()  # type: ignore[assignment]
    watching.refresh()
    assert watching.seen.troubles == ("use is unknown: the token can no longer be read",)
