"""The extender's HTTP API: verbs, error statuses, readiness, metrics and explanations."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.extender.asgi import Client, extender_app
from tests.worlds.placement import World, as_schedulers_send, class_json, node_json, pod_json


class ExtenderApi:
    """The extender over a world of two nodes; `problem` is why it is not ready."""

    def __init__(self) -> None:
        self.world = World(None, node_json("a"), node_json("b"), class_json("eater", [1.0], [30.0]))
        self.problem = ""
        self.client = Client(extender_app(self.world, lambda: self.problem))

    def post(self, verb: str, body: Any) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(f"/{verb}", data)


@pytest.fixture
def api() -> ExtenderApi:
    return ExtenderApi()


def extender_args(pod: Any, names: list[str] | None = None) -> Any:
    return {"Pod": pod, "Nodes": None, "NodeNames": names or ["a", "b"]}


def test_filter_prioritize_and_preempt_answer_in_the_format_of_the_scheduler(api: ExtenderApi) -> None:
    api.world.put(pod_json("eats", node="a", workload="eater"))
    pod = pod_json("new", memory="8Gi")
    filtered = api.post("filter", extender_args(pod)).get_json()
    assert filtered["NodeNames"] == ["b"]
    assert set(filtered["FailedAndUnresolvableNodes"]) == {"a"}
    scores = api.post("prioritize", extender_args(pod_json("small")))
    assert scores.status_code == 200
    assert {entry["Host"]: entry["Score"] for entry in scores.get_json()} == {"a": 0, "b": 10}
    victims = {"Pod": pod, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uid-eats"}], "NumPDBViolations": 0}}}
    assert api.post("preempt", victims).get_json() == {"NodeNameToMetaVictims": victims["NodeNameToMetaVictims"]}


def test_a_pod_of_another_scheduler_gets_neutral_scores(api: ExtenderApi) -> None:
    scores = api.post("prioritize", extender_args(pod_json("theirs", scheduler="default-scheduler"))).get_json()
    assert scores == [{"Host": "a", "Score": 5}, {"Host": "b", "Score": 5}]
    assert api.client.get("/explain/team/theirs").status_code == 404


def test_an_unknown_node_gets_the_neutral_score(api: ExtenderApi) -> None:
    scores = api.post("prioritize", extender_args(pod_json("new"), ["brand-new", "a", "b"])).get_json()
    assert sorted(entry["Host"] for entry in scores) == ["a", "b", "brand-new"]
    assert {entry["Host"]: entry["Score"] for entry in scores}["brand-new"] == 5
    alone = api.post("prioritize", extender_args(pod_json("new"), ["brand-new"])).get_json()
    assert alone == [{"Host": "brand-new", "Score": 5}]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
def test_a_failed_call_has_an_error_status_and_a_reason(api: ExtenderApi, verb: str) -> None:
    for body, status in (
        (b"", 400),
        (b"{", 400),
        (b"{}", 400),
        ({"Pod": {}, "NodeNames": [], "NodeNameToMetaVictims": {}}, 400),
        ({"Pod": {"metadata": {"uid": 1}}, "NodeNames": [], "NodeNameToMetaVictims": {}}, 400),
        (b" " * (2 << 20), 413),
        (gzip.compress(b"{}"), 400),
    ):
        answer = api.post(verb, body)
        assert answer.status_code == status, body[:80]
        assert answer.get_json()["Error"]
    api.problem = "the cluster is not known yet"
    answer = api.post(verb, extender_args(pod_json("p")))
    assert (answer.status_code, answer.get_json()) == (503, {"Error": "the cluster is not known yet"})


def test_a_pod_without_a_uid_is_placed_and_counted_by_its_name(api: ExtenderApi) -> None:
    """As a pod from a manifest, of which nobody has made an object yet."""
    pod, same = pod_json("small"), pod_json("small")
    del pod["metadata"]["uid"], same["metadata"]["uid"]
    assert api.post("filter", extender_args(pod)).get_json()["NodeNames"] == ["a", "b"]
    for _ in range(2):
        scores = {each["Host"]: each["Score"] for each in api.post("prioritize", extender_args(same)).get_json()}
        assert scores == {"a": 10, "b": 9}
    assert api.client.get("/explain/team/small").get_json()["advised"] == "a"
    assert api.world.state.advised == 1, "a second call replaces the advice of the first"


@pytest.mark.parametrize("levels", [255, 800, 2000])
def test_nodes_nested_deeper_than_can_be_answered_are_a_bad_request(api: ExtenderApi, levels: int) -> None:
    body = json.dumps({"Pod": pod_json("p"), "Nodes": {"items": [{"metadata": {"name": "a"}, "deep": "HERE"}]}})
    answer = api.post("filter", body.replace('"HERE"', "[" * levels + "]" * levels).encode())
    assert answer.status_code == 400
    assert "deep" in answer.get_json()["Error"] or "depth" in answer.get_json()["Error"]


def test_an_internal_error_is_a_500_without_details(api: ExtenderApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(api.world.placer, "filter", fail)
    answer = api.post("filter", extender_args(pod_json("p")))
    assert answer.status_code == 500
    assert b"secret" not in answer.data


def test_an_unknown_path_is_a_404_with_a_reason(api: ExtenderApi) -> None:
    assert api.client.post("/nothing").status_code == 404
    assert api.client.post("/nothing").get_json()["Error"]


@pytest.mark.parametrize("path", ["//filter", "/filter/", "///filter//"])
def test_extra_slashes_in_a_path_are_ignored(api: ExtenderApi, path: str) -> None:
    """A verb may be configured as `/filter`; a redirect would cost a round trip, or the body."""
    answer = api.client.post(path, json=extender_args(pod_json("new")))
    assert (answer.status_code, answer.get_json()["NodeNames"]) == (200, ["a", "b"])


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("GET", "/filter", {"POST"}),
    ("DELETE", "//prioritize", {"POST"}),
    ("POST", "/metrics", {"GET", "HEAD", "OPTIONS"}),
])  # fmt: skip
def test_a_wrong_method_is_a_405_with_the_allowed_methods(
    api: ExtenderApi, method: str, path: str, allowed: set[str]
) -> None:
    answer = api.client.ask(method, path)
    assert (answer.status_code, set(answer.headers["allow"].split(", "))) == (405, allowed)
    assert answer.get_json()["Error"]


def test_refused_requests_are_counted(api: ExtenderApi) -> None:
    for method, path, body in (
        ("GET", "/filter", b""),
        ("POST", "/filter", b" " * (2 << 20)),
        ("POST", "/preempt", b"{"),
        ("GET", "/nothing", b""),
        ("POST", "/metrics", b""),
    ):
        api.client.ask(method, path, body)
    page = api.client.get("/metrics").text
    for status, verb in ((405, "filter"), (413, "filter"), (400, "preempt"), (404, "page"), (405, "page")):
        assert f'phasewise_extender_calls_total{{status="{status}",verb="{verb}"}} 1.0' in page
    assert 'status="200"' not in page, "served pages are not counted as calls"


def test_a_pod_is_parsed_only_if_its_version_is_not_the_watched_one(api: ExtenderApi) -> None:
    def pod_of(version: str, memory: str) -> Any:
        pod = pod_json("p", memory=memory)
        pod["metadata"]["resourceVersion"] = version
        return pod

    api.world.put(pod_of("7", "1Gi"))
    answer = api.post("filter", as_schedulers_send(pod_of("7", "64Gi"), ["a", "b"])).get_json()
    assert answer["NodeNames"] == ["a", "b"], "the watched pod counts for its version"
    assert api.post("filter", as_schedulers_send(pod_of("8", "64Gi"), ["a", "b"])).get_json()["NodeNames"] == []


@pytest.mark.parametrize("scheduler", ["phasewise", "default-scheduler"])
def test_a_node_listed_twice_is_answered_once(api: ExtenderApi, scheduler: str) -> None:
    args = extender_args(pod_json("new", scheduler=scheduler), ["b", "x", "a", "b", "x"])
    assert api.post("filter", args).get_json()["NodeNames"] == ["b", "x", "a"]
    scores = api.post("prioritize", args).get_json()
    assert sorted(entry["Host"] for entry in scores) == ["a", "b", "x"]
    only_b = api.post("prioritize", extender_args(pod_json("new", scheduler=scheduler), ["b", "b"])).get_json()
    assert [entry["Host"] for entry in only_b] == ["b"]


def test_explain_returns_the_decision(api: ExtenderApi) -> None:
    api.post("filter", extender_args(pod_json("p")))
    api.post("prioritize", extender_args(pod_json("p")))
    decision = api.client.get("/explain/team/p?nodes=1").get_json()
    assert decision["advised"] == decision["nodes"][0]["node"]
    assert len(decision["nodes"]) == 1
    assert decision["nodes"][0]["scorers"]["specon"]["why"].startswith("S = 0")


def test_health_readiness_and_metrics(api: ExtenderApi) -> None:
    assert api.client.get("/healthz").status_code == 200
    assert api.client.get("/readyz").status_code == 200
    api.problem = "another replica leads"
    assert api.client.get("/healthz").status_code == 200
    assert (api.client.get("/readyz").status_code, api.client.get("/readyz").text) == (503, "another replica leads\n")
    api.problem = ""
    api.post("filter", extender_args(pod_json("p")))
    api.post("filter", b"{")
    page = api.client.get("/metrics").text
    assert 'phasewise_extender_calls_total{status="200",verb="filter"} 1.0' in page
    assert 'phasewise_extender_calls_total{status="400",verb="filter"} 1.0' in page
    assert 'phasewise_extender_call_seconds_count{verb="filter"} 2.0' in page


def test_the_exact_format_of_kube_scheduler_is_answered_like_any_other_json(api: ExtenderApi) -> None:
    pod = pod_json("p", cpu="2")
    pod["metadata"]["resourceVersion"] = "7"
    for names in (["a", "b"], ["b"], ["b", "brand-new", "a"], [], ["b", "a", "b"]):
        other = ExtenderApi()
        for verb in ("filter", "prioritize"):
            answer = api.post(verb, as_schedulers_send(pod, names))
            assert answer.status_code == 200
            assert answer.get_json() == other.post(verb, {"NodeNames": names, "Pod": pod}).get_json()
