"""Users who may create pods and profiles, or open connections, cannot harm others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from flask import request

from extender.pods.pod import read_node
from extender.protocol.wire import ExtenderArgs, PreemptionArgs
from extender.settings import Limits, Settings
from extender.view.cache import MAX_CLOCK_SKEW_S, TimestampingReader
from extender.web import app as app_module
from extender.web.app import App, BodyLimits, Telemetry
from tests.extender.asgi import Client, extender_app
from tests.worlds.placement import NO_MEMORY, NOON_S, RESTLESS, World, class_json, node_json, pod_json, profile_json

ENDLESS = {"cpu": "1e15", "memory": "4e18"}
"""Almost too much for the integers of the scheduler."""


@pytest.mark.parametrize("settings", [None, Settings(limits=Limits(cpu_overload=0.01))])
def test_pods_with_absurd_requests_leave_the_sums_of_others_intact(
    settings: Settings | None,
) -> None:
    """Bound by `nodeName` without a scheduler, then removed because the kubelet refuses them."""
    gpu = {"nvidia.com/gpu": "4e18", "nvidia.com/gpucores": "4e18"}
    world = World(settings, node_json("a", extended={"nvidia.com/gpu": "8"}), node_json("b"))
    world.put(class_json("restless", RESTLESS, [1.0] * 120))
    world.put(pod_json("good", cpu="2.5", node="a"), pod_json("learned", node="a", workload="restless"))
    before = world.state.snapshot()
    for number in range(3):
        endless = pod_json(f"endless-{number}", **ENDLESS, extended=gpu, node="a", limits=ENDLESS)
        if number:  # each container counts separately, also next to a learned one
            learned = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
            endless["spec"]["containers"] = [learned, endless["spec"]["containers"][0] | {"name": "other"}]
            endless["metadata"]["labels"] = {"phasewise.dev/workload": "restless"}
        world.put(endless)
    assert world.prioritize(pod_json("new")) == {"a": 0, "b": 10}
    assert world.filter(pod_json("new")) == {"a": NO_MEMORY}
    for uid in ("uid-new", *(f"uid-endless-{number}" for number in range(3))):
        world.state.drop_pod(uid)
    after = world.state.snapshot()
    for one, other in ((before.load, after.load), (before.requested, after.requested)):
        assert np.allclose(one, other, rtol=1e-6, atol=1e-6)
    assert world.prioritize(pod_json("new"), ["a"]) == {"a": 10}


@pytest.mark.parametrize("gpus", ["4e18", "1e300"])
def test_an_absurd_number_of_gpus_leaves_the_guesses_for_others_intact(gpus: str) -> None:
    world = World(None, node_json("a"))
    world.put(pod_json("other", cpu=None, memory=None, node="a"))
    before = world.state.snapshot()
    world.put(pod_json("absurd", cpu=None, memory=None, node="a", limits={"nvidia.com/gpu": gpus}))
    world.state.drop_pod("uid-absurd")
    assert np.allclose(before.guessed, world.state.snapshot().guessed, rtol=1e-6)


def test_a_node_that_claims_a_million_gpus_takes_little_memory() -> None:
    world = World(None, node_json("a"), node_json("broken", extended={"nvidia.com/gpu": "1M"}))
    assert world.state.snapshot().devices.gpu_free.nbytes < 2**20


@pytest.mark.parametrize(("cpu", "memory"), [("1", "1e19"), ("1e300", "1e300"), ("5e15", "6e18")])
@pytest.mark.parametrize("workload", ["", "small"])
def test_a_pod_whose_requests_overflow_in_the_scheduler_takes_nothing_from_others(
    cpu: str, memory: str, workload: str
) -> None:
    """The scheduler counts the sum over its containers as nothing, and binds it to any node."""
    world = World(None, node_json("a"), class_json("small", [0.1], [0.1]))
    pod = pod_json("absurd", cpu=cpu, memory=memory, node="a", workload=workload)
    pod["spec"]["containers"] += [pod["spec"]["containers"][0] | {"name": f"other-{number}"} for number in range(2)]
    world.put(pod)
    assert world.state.snapshot().requested[1] == 0.0
    assert world.filter(pod_json("new")) == {}


def test_a_pod_with_a_limit_too_large_for_a_double_counts_by_its_requests() -> None:
    world = World(None, node_json("a", memory="10Gi"), node_json("b"), class_json("eater", [1.0], [8.0]))
    world.put(pod_json("there", memory="5Gi", node="a", limits={"cpu": "1e402", "memory": "1e402"}))
    assert world.filter(pod_json("new", workload="eater", limits={"cpu": "1e402"})) == {"a": NO_MEMORY}


def test_limits_of_gpus_whose_sum_overflows_do_not_hide_a_pod() -> None:
    gpus = {"nvidia.com/gpu": "1.7e308", "amd.com/gpu": "1.7e308"}
    world = World(None, node_json("a", memory="10Gi"), class_json("eater", [1.0], [8.0]))
    world.put(pod_json("there", memory="5Gi", node="a", extended=gpus, limits=gpus))
    assert world.filter(pod_json("new", workload="eater")) == {"a": NO_MEMORY}


def test_weights_whose_sum_overflows_are_ignored() -> None:
    world = World(None, node_json("a"), node_json("b")).put(pod_json("there", node="a"))
    greedy = {"phasewise.dev/weights": "complement=1e308,specon=1e308"}
    assert world.prioritize(pod_json("new", annotations=greedy)) == world.prioritize(pod_json("new"))


def test_a_profile_does_not_affect_pods_of_other_namespaces() -> None:
    world = World(None, node_json("a")).put(profile_json("own", {"uid-p": "watching"}), pod_json("p", node="a"))
    other = profile_json("own", {"uid-p": "converged", "uid-stranger": "converged"})
    other["metadata"]["namespace"] = "somebody"
    demand = class_json("x", [7.0], [30.0])["status"]["containers"]
    other["status"]["containers"] = demand
    for _ in range(2):
        world.put(other)
        snapshot = world.state.snapshot()
        assert snapshot.categories[:, 0].tolist() == [0.0, 1.0, 0.0]
        assert snapshot.load[0, 0, 0] == 1.0
        assert not world.state.is_ours(world.read_pod(pod_json("stranger", scheduler="default-scheduler")))
        world.state.drop_profile(world.read_profile(other))
    assert world.state.snapshot().categories[:, 0].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("step_s", "cpu_cores"), [(1e308, 1.0), (1e308, 1e308), (1.0, 1e308), (10**30, 1e300), (1e-320, 1e300)]
)
def test_an_absurd_demand_is_ignored_and_the_rest_of_the_profile_counts(step_s: float, cpu_cores: float) -> None:
    raw = class_json("k", [cpu_cores] * 3, [1.0] * 3, step_s)
    raw["status"]["containers"].append({"name": "other", "why": {"forecastCpuCores": 1e300, "forecastMemoryBytes": 1}})
    raw["status"]["pods"] = [{"name": "p", "uid": "uid-p", "category": "converged"}]
    profile = World().read_profile(raw)
    assert (profile.demand.curves, profile.forecast.curves, profile.categories) == ({}, {}, {"uid-p": 2})


def test_pods_of_other_schedulers_are_not_evicted_for_a_forecast() -> None:
    """The pod is judged, as its class is known, but its owner has not chosen this scheduler."""
    world = World(None, node_json("a", memory="10Gi"), class_json("eater", [1.0], [8.0]))
    world.put(pod_json("theirs", node="a", workload="eater", scheduler="default-scheduler"))
    urgent = pod_json("urgent", memory="5Gi", priority=1000)
    assert world.placer.filter(ExtenderArgs(urgent, ["a"], None)).resolvable == ""
    assert world.placer.preempt(PreemptionArgs(urgent, {"a": ()}, {"a": 0})) == {}


def test_an_object_with_a_future_time_does_not_hide_that_the_watch_is_behind() -> None:
    reader = TimestampingReader(read_node, lambda: NOON_S)
    raw = node_json("a")
    times = ("2027-01-15T08:00:00Z", "9999-12-31T23:59:59Z", "2027-01-15T08:01:01Z", None)
    raw["metadata"]["managedFields"] = [{"time": each} for each in times]
    reader(raw)
    assert reader.newest_s == NOON_S
    raw["metadata"]["managedFields"] = [{"time": "2027-01-15T08:01:00Z"}]
    reader(raw)
    assert reader.newest_s == NOON_S + MAX_CLOCK_SKEW_S, "clocks may differ a little"


@pytest.mark.parametrize("path", ["/explain/a?b", "/explain/a/b?c", "/explain/%zz/x#y", "//metrics", "/explain/a/\x00"])
def test_a_path_with_special_characters_is_not_found(path: str) -> None:
    client = Client(extender_app(World(None, node_json("a"))))
    assert client.ask("GET", path.replace("?", "%3F")).status_code == 404
    start = asyncio.run(_response_start(client.app, path))
    assert start["status"] == 404


async def _response_start(app: App, path: str) -> Mapping[str, Any]:
    """The start of the response; `path` is decoded, as servers pass it."""
    sent: list[Mapping[str, Any]] = []

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}, receive, send)
    return sent[0]


def test_unfinished_bodies_hold_limited_memory_and_a_complete_one_is_answered() -> None:
    """Twelve clients each send nine tenths of the largest body and then stop; there is memory for four at a time."""
    limits = BodyLimits(largest_bytes=1000, timeout_s=20.0, total_bytes=4000)
    app = App(Telemetry("extender"), {"/echo": lambda body: body}, lambda: "", limits)
    answers: list[tuple[int, int]] = []

    async def post(client: int, pieces: list[bytes], rest: asyncio.Event) -> None:
        async def receive() -> Mapping[str, Any]:
            if not pieces:
                await rest.wait()
            return {"type": "http.request", "body": pieces.pop(0) if pieces else b"", "more_body": not rest.is_set()}

        async def send(message: Mapping[str, Any]) -> None:
            answers.extend([(client, message["status"])] if "status" in message else [])

        scope = {"type": "http", "method": "POST", "path": "/echo", "query_string": b"", "headers": []}
        await app(scope, receive, send)

    async def attack(number: int) -> None:
        answers.clear()
        rest, complete = asyncio.Event(), asyncio.Event()
        complete.set()
        slow = [asyncio.create_task(post(client, [b"x" * 300] * 3, rest)) for client in range(number)]
        await asyncio.sleep(0.1)
        refused = [(client, 408) for client in range(number - 4)]
        assert answers == refused, "the oldest ones"
        await post(99, [b"x" * 500], complete)
        rest.set()
        await asyncio.gather(*slow)
        assert answers == [*refused, (99, 200), *((client, 200) for client in range(number - 4, number))]

    asyncio.run(attack(12))
    asyncio.run(attack(4))  # none is held for the bodies of before


def test_large_bodies_take_turns_and_those_that_wait_hold_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parsed body may take thirty times its size. There is memory for eight bodies, so for four that wait."""
    monkeypatch.setattr(app_module, "MAX_INLINE_BYTES", 500)
    at_work, most_at_work, may_end = 0, 0, threading.Semaphore(0)

    def post(body: bytes) -> bytes:
        nonlocal at_work, most_at_work
        if len(body) > 500:
            at_work += 1
            most_at_work = max(most_at_work, at_work)
            assert may_end.acquire(timeout=20.0)
            at_work -= 1
        return body

    client = Client(App(Telemetry("webhook"), {"/echo": post}, lambda: "", BodyLimits(1000, 20.0, 8000)))

    async def attack() -> None:
        large = [asyncio.create_task(client.answer("POST", "/echo", b"x" * 1000)) for _ in range(6)]
        assert {(await each).status_code for each in large[4:]} == {503}
        assert (await client.answer("POST", "/echo", b"x" * 10)).status_code == 200
        assert not any(each.done() for each in large[:4])
        may_end.release(4)
        assert {(await each).status_code for each in large[:4]} == {200}
        may_end.release()
        assert (await client.answer("POST", "/echo", b"x" * 1000)).status_code == 200

    asyncio.run(attack())
    assert most_at_work == 1


def test_the_body_of_a_request_for_a_page_is_not_kept() -> None:
    """Pages may wait for the API server, and would hold it meanwhile."""
    app = App(Telemetry("web"), {}, lambda: "")
    app.pages.post("/")(lambda: str(len(request.get_data())))
    assert Client(app).post("/", b"x" * 10_000).text == "0"
