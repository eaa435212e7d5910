"""The HTTP face: every verb, every failure as a status, readiness before the first answer, metrics, explanations."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from placement_bench.worlds import World, as_schedulers_send, class_json, node_json, pod_json
from tests.extender.asgi import Client, app_over


class Face:
    """The application over a small world, and what it is waiting for."""

    def __init__(self) -> None:
        self.world = World(None, node_json("a"), node_json("b"), class_json("eater", [1.0], [30.0]))
        self.problem = ""
        self.client = Client(app_over(self.world, lambda: self.problem))

    def post(self, verb: str, body: Any) -> Any:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(f"/{verb}", text)


@pytest.fixture
def face() -> Face:
    return Face()


def asked(pod: Any, names: list[str] | None = None) -> Any:
    return {"Pod": pod, "Nodes": None, "NodeNames": names or ["a", "b"]}


def test_filter_prioritize_and_preempt_answer_as_the_scheduler_reads_them(face: Face) -> None:
    face.world.put(pod_json("eats", node="a", workload="eater"))
    pod = pod_json("new", memory="8Gi")
    told = face.post("filter", asked(pod)).get_json()
    assert told["NodeNames"] == ["b"]
    assert set(told["FailedAndUnresolvableNodes"]) == {"a"}
    small = face.post("prioritize", asked(pod_json("small")))
    assert small.status_code == 200
    assert {entry["Host"]: entry["Score"] for entry in small.get_json()} == {"a": 0, "b": 10}
    victims = {"Pod": pod, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uid-eats"}], "NumPDBViolations": 0}}}
    assert face.post("preempt", victims).get_json() == {"NodeNameToMetaVictims": victims["NodeNameToMetaVictims"]}


def test_a_pod_of_another_scheduler_gets_neutral_scores(face: Face) -> None:
    told = face.post("prioritize", asked(pod_json("theirs", scheduler="default-scheduler"))).get_json()
    assert told == [{"Host": "a", "Score": 5}, {"Host": "b", "Score": 5}]
    assert face.client.get("/explain/team/theirs").status_code == 404


def test_a_node_not_known_yet_is_neither_preferred_nor_left_out(face: Face) -> None:
    told = face.post("prioritize", asked(pod_json("new"), ["brand-new", "a", "b"])).get_json()
    assert sorted(entry["Host"] for entry in told) == ["a", "b", "brand-new"]
    assert {entry["Host"]: entry["Score"] for entry in told}["brand-new"] == 5
    only = face.post("prioritize", asked(pod_json("new"), ["brand-new"])).get_json()
    assert only == [{"Host": "brand-new", "Score": 5}]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
def test_failures_are_statuses_never_empty_answers(face: Face, verb: str) -> None:
    for body, status in (
        (b"", 400),
        (b"{", 400),
        (b"{}", 400),
        ({"Pod": {"metadata": {"name": "x"}}, "NodeNames": [], "NodeNameToMetaVictims": {}}, 400),
        ({"Pod": {"metadata": {"uid": 1}}, "NodeNames": [], "NodeNameToMetaVictims": {}}, 400),
        (b" " * (2 << 20), 413),
        (gzip.compress(b"{}"), 400),
    ):
        answer = face.post(verb, body)
        assert answer.status_code == status, body[:80]
        assert answer.get_json()["Error"]
    face.problem = "the cluster is not known yet"
    answer = face.post(verb, asked(pod_json("p")))
    assert (answer.status_code, answer.get_json()) == (503, {"Error": "the cluster is not known yet"})


def test_a_fault_of_ours_is_a_500_and_leaks_nothing(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(face.world.placer, "filter", fail)
    answer = face.post("filter", asked(pod_json("p")))
    assert answer.status_code == 500
    assert b"secret" not in answer.data


def test_what_is_not_there_is_answered_in_the_same_form(face: Face) -> None:
    assert face.client.post("/nothing").status_code == 404
    assert face.client.post("/nothing").get_json()["Error"]


@pytest.mark.parametrize("path", ["//filter", "/filter/", "///filter//"])
def test_slashes_too_many_are_no_other_path(face: Face, path: str) -> None:
    """A verb may be configured as `/filter`; a redirect would cost a round trip, or the body."""
    told = face.client.post(path, json=asked(pod_json("new")))
    assert (told.status_code, told.get_json()["NodeNames"]) == (200, ["a", "b"])


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("GET", "/filter", {"POST"}),
    ("DELETE", "//prioritize", {"POST"}),
    ("POST", "/metrics", {"GET", "HEAD", "OPTIONS"}),
])  # fmt: skip
def test_another_method_is_told_which_it_may_be(face: Face, method: str, path: str, allowed: set[str]) -> None:
    told = face.client.ask(method, path)
    assert (told.status_code, set(told.headers["allow"].split(", "))) == (405, allowed)
    assert told.get_json()["Error"]


def test_all_that_is_refused_is_counted(face: Face) -> None:
    for method, path, body in (
        ("GET", "/filter", b""),
        ("POST", "/filter", b" " * (2 << 20)),
        ("POST", "/preempt", b"{"),
        ("GET", "/nothing", b""),
        ("POST", "/metrics", b""),
    ):
        face.client.ask(method, path, body)
    page = face.client.get("/metrics").text
    for status, verb in ((405, "filter"), (413, "filter"), (400, "preempt"), (404, "page"), (405, "page")):
        assert f'phasewise_extender_calls_total{{status="{status}",verb="{verb}"}} 1.0' in page
    assert 'status="200"' not in page, "pages that were shown are no calls"


def test_a_pod_that_the_watch_has_shown_is_not_read_again_but_one_that_changed_is(face: Face) -> None:
    def seen(version: str, memory: str) -> Any:
        pod = pod_json("p", memory=memory)
        pod["metadata"]["resourceVersion"] = version
        return pod

    face.world.put(seen("7", "1Gi"))
    told = face.post("filter", as_schedulers_send(seen("7", "64Gi"), ["a", "b"])).get_json()
    assert told["NodeNames"] == ["a", "b"], "of one version it is the one that was seen"
    assert face.post("filter", as_schedulers_send(seen("8", "64Gi"), ["a", "b"])).get_json()["NodeNames"] == []


@pytest.mark.parametrize("scheduler", ["phasewise", "default-scheduler"])
def test_a_node_that_is_named_twice_is_answered_once(face: Face, scheduler: str) -> None:
    question = asked(pod_json("new", scheduler=scheduler), ["b", "x", "a", "b", "x"])
    assert face.post("filter", question).get_json()["NodeNames"] == ["b", "x", "a"]
    told = face.post("prioritize", question).get_json()
    assert sorted(entry["Host"] for entry in told) == ["a", "b", "x"]
    some = face.post("prioritize", asked(pod_json("new", scheduler=scheduler), ["b", "b"])).get_json()
    assert [entry["Host"] for entry in some] == ["b"]


def test_explain_tells_what_was_decided(face: Face) -> None:
    face.post("filter", asked(pod_json("p")))
    face.post("prioritize", asked(pod_json("p")))
    told = face.client.get("/explain/team/p?nodes=1").get_json()
    assert told["advised"] == told["nodes"][0]["node"]
    assert len(told["nodes"]) == 1
    assert told["nodes"][0]["scorers"]["specon"]["why"].startswith("S = 0")


def test_health_readiness_and_metrics(face: Face) -> None:
    assert face.client.get("/healthz").status_code == 200
    assert face.client.get("/readyz").status_code == 200
    face.problem = "another replica leads"
    assert face.client.get("/healthz").status_code == 200
    assert (face.client.get("/readyz").status_code, face.client.get("/readyz").text) == (503, "another replica leads\n")
    face.problem = ""
    face.post("filter", asked(pod_json("p")))
    face.post("filter", b"{")
    page = face.client.get("/metrics").text
    assert 'phasewise_extender_calls_total{status="200",verb="filter"} 1.0' in page
    assert 'phasewise_extender_calls_total{status="400",verb="filter"} 1.0' in page
    assert 'phasewise_extender_call_seconds_count{verb="filter"} 2.0' in page


def test_a_pod_of_a_megabyte_is_read_like_any_other(face: Face) -> None:
    pod = pod_json("large", annotations={"blob": "x" * 900_000})
    assert face.post("filter", asked(pod)).get_json()["NodeNames"] == ["a", "b"]


def test_the_form_of_kube_scheduler_is_answered_as_any_other_form(face: Face) -> None:
    pod = pod_json("p", cpu="2")
    pod["metadata"]["resourceVersion"] = "7"
    for names in (["a", "b"], ["b"], ["b", "brand-new", "a"], [], ["b", "a", "b"]):
        other = Face()
        for verb in ("filter", "prioritize"):
            told = face.post(verb, as_schedulers_send(pod, names))
            assert told.status_code == 200
            assert told.get_json() == other.post(verb, {"NodeNames": names, "Pod": pod}).get_json()


@pytest.mark.parametrize("names", [b'"a" "b"', b'"a",', b"1", b'"a",{}', b'a","b', b'"a","b', b"\xff"])
@pytest.mark.parametrize("scheduler", ["phasewise", "default-scheduler"])
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_what_only_looks_like_names_is_refused(face: Face, names: bytes, scheduler: str, verb: str) -> None:
    pod = pod_json("p", scheduler=scheduler)
    pod["metadata"]["resourceVersion"] = "7"
    body = as_schedulers_send(pod, ["a"]).replace(b'["a"]', b"[%b]" % names)
    assert face.post(verb, body).status_code == 400
