"""The pages over HTTP: HTML for people, JSON for programs, nothing of a name that a browser would take for ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from extender.dashboard.access import AccessCheck
from extender.dashboard.watching import ClusterView
from tests.extender.dashboard import scenes
from tests.extender.dashboard.scenes import HTML, Reviewing, a_job, client, seen

PATHS = ("/", "/jobs/ml/train", "/classes", "/nodes", "/warnings")
HOSTILE = '<script>alert("1")</script>'


@pytest.mark.parametrize("path", PATHS)
def test_each_page_is_html_for_a_browser_and_json_for_a_program(path: str) -> None:
    pages = client(a_job())
    shown, told = pages.get(path, **HTML), pages.get(path, Accept="application/json")
    assert (shown.status_code, told.status_code) == (200, 200)
    assert shown.headers["content-type"].startswith("text/html")
    assert told.get_json()["now"] == a_job().now_s
    assert pages.get(path).get_json() == told.get_json(), "who asks for nothing special is a program"


@pytest.mark.parametrize("path", PATHS)
def test_a_page_takes_nothing_from_elsewhere_and_runs_nothing_but_ours(path: str) -> None:
    shown = client(a_job()).get(path, **HTML)
    policy = shown.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "style=" not in shown.text
    assert "http://" not in shown.text.replace("http://www.w3.org", "")


def test_the_page_of_a_job_tells_the_chain_of_reasons_and_what_to_write_down() -> None:
    shown = client(a_job()).get("/jobs/ml/train", **HTML).text
    for words in (
        "phase 2 (80%)",
        "80% that phase 2 starts within 40 s",
        "slow shrink: kept for 600 s",
        "cpu 4.00, memory 8.00Gi",
    ):
        assert words in shown


def test_what_to_write_down_is_enough_for_a_whole_run_whatever_is_right_now() -> None:
    """1.2 cores are the target, 2 cores and 2 GiB were used by earlier runs of the class; 3 GiB are the target."""
    told = client(a_job()).get("/jobs/ml/train").get_json()
    assert told["yaml"] == {"main": "resources:\n  requests:\n    cpu: 2000m\n    memory: 3072Mi\n"}


def test_names_are_text_whatever_is_in_them() -> None:
    hostile = seen([scenes.vpa(HOSTILE, conditions=[{"type": "X", "status": "True", "message": HOSTILE}])])
    for path in ("/", "/warnings", f"/jobs/ml/{HOSTILE.replace('/', '%2F')}"):
        assert "<script>alert" not in client(hostile).get(path, **HTML).text
    assert "<script>alert" not in client(a_job()).get(f"/?q={HOSTILE}", **HTML).text


def test_a_job_that_is_not_there_is_404_and_a_page_that_cannot_be_is_400_to_nobody() -> None:
    pages = client(a_job())
    assert pages.get("/jobs/ml/none").status_code == 404
    assert pages.get("/?page=x").status_code == pages.get("/?page=-5").status_code == 200
    assert pages.post("/").status_code == 405


def test_the_first_view_of_ten_thousand_containers_is_below_300_kb() -> None:
    jobs, pods = range(2_500), range(4)
    one = seen(
        [scenes.vpa(f"training-of-model-{job}") for job in jobs],
        [scenes.profile(f"training-of-model-{job}", pods=[f"p-{job}-{pod}" for pod in pods]) for job in jobs],
        [scenes.pod(f"p-{job}-{pod}", node=f"n{pod}") for job in jobs for pod in pods],
        [scenes.node(f"n{pod}") for pod in pods],
        dict(scenes.use(name=f"p-{job}-{pod}", cpu_cores=1.5) for job in jobs for pod in pods),
    )
    pages = client(one)
    assert fleet_size(pages.get("/", Accept="application/json").get_json()) == 10_000
    for path in ("/", "/warnings", "/nodes"):
        assert len(pages.get(path, **HTML).data) + len(pages.get("/page.css").data) < 300_000


def fleet_size(told: Any) -> int:
    return int(told["containers"])


def test_without_a_token_that_may_nothing_of_the_cluster_is_told() -> None:
    pages = client(a_job(), AccessCheck(Reviewing()))  # type: ignore[arg-type]
    for path in PATHS:
        refused = pages.get(path)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert b"train-0" not in refused.data
        assert pages.get(path, Authorization="Bearer right").status_code == 200
    assert [pages.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]
    refused = client(a_job(), AccessCheck(Reviewing(allowed=False))).get("/", Authorization="Bearer right")  # type: ignore[arg-type]
    assert refused.status_code == 403


def test_before_the_first_look_there_is_no_page_and_that_is_said() -> None:
    pages = client(ClusterView(0.0, {}, {}, {}, {}))
    assert pages.get("/", **HTML).status_code == pages.get("/readyz").status_code == 503
    assert pages.get("/healthz").status_code == 200


def test_every_template_and_file_of_a_page_is_in_the_package(tmp_path: Path) -> None:
    pages = client(a_job())
    assert b".hour" in pages.get("/page.css").data
    assert b"setInterval" in pages.get("/page.js").data
