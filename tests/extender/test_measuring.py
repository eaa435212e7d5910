"""Pods with neither class profile nor requests: their use by the metrics API, or the forecast of their own profile."""

from __future__ import annotations

from typing import Any

import pytest

from extender.pods.footprint import FORECAST, GUESS, MEASURED, REQUESTS
from extender.pods.pod import CATEGORIES
from extender.view.cache import PERIOD_S, RETRY_S, UsagePoller
from recommender.cluster.errors import NotFound, ServerFailed
from tests.worlds.placement import World, class_json, node_json, pod_json, profile_json

SILENT: dict[str, Any] = {"cpu": None, "memory": None}


class MetricsApi:
    """A fake metrics.k8s.io that may fail."""

    def __init__(self) -> None:
        self.use: dict[str, tuple[str, str]] = {}
        self.problem: Exception | None = None
        self.asked = 0

    def get(self, path: str, timeout_s: float) -> dict[str, Any]:
        self.asked += 1
        if self.problem is not None:
            raise self.problem
        return {"items": [self._pod(name, *use) for name, use in self.use.items()]}

    def _pod(self, name: str, cpu: str, memory: str) -> dict[str, Any]:
        containers = [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}]
        return {
            "metadata": {"name": name, "namespace": "team"},
            "timestamp": "2027-01-15T08:00:00Z",
            "containers": containers,
        }


def poller_of(world: World, api: MetricsApi) -> UsagePoller:
    return UsagePoller(api, world.state)  # type: ignore[arg-type]


def use_on(world: World, node: str) -> list[float]:
    snapshot = world.state.snapshot()
    used: list[float] = snapshot.load[:, 0, snapshot.table.index[node]].tolist()
    return used


def test_a_node_full_of_pods_without_requests_does_not_look_idle() -> None:
    """5 of 8 cores and 16 of 32 GiB are measured; a guess would be a tenth of a core and 200 MiB."""
    world, api = World(None, node_json("a"), node_json("b")), MetricsApi()
    world.put(pod_json("silent", **SILENT, node="a", scheduler="x"), pod_json("asks", node="b", scheduler="x"))
    poller, pod = poller_of(world, api), pod_json("new")
    assert world.place(pod) == "a"
    api.use = {"silent": ("5000000000n", "16777216Ki"), "asks": ("7", "1Gi")}
    poller.poll()
    assert world.place(pod) == "b"
    assert use_on(world, "a") == [5.0, 16.0 * 2**30]
    assert world.filter(pod_json("large", memory="20Gi"), ["a"]) != {}, "measured use is no guess"
    api.use = {}
    poller.poll()
    assert use_on(world, "a")[0] == pytest.approx(0.1), "no longer measured"


def test_the_metrics_api_is_polled_only_while_some_demand_is_neither_learned_nor_requested() -> None:
    world, api = World(None, node_json("a")), MetricsApi()
    world.put(
        pod_json("asks", node="a"), class_json("k", [1.0], [1.0]), pod_json("p", **SILENT, node="a", workload="k")
    )
    poller_of(world, api).poll()
    assert api.asked == 0
    world.put(pod_json("half", cpu="1", memory=None, node="a"))
    api.use = {"half": ("3000000000n", "1048576Ki")}
    poller_of(world, api).poll()
    assert api.asked == 1
    assert use_on(world, "a") == [1.0 + 1.0 + 1.0, 3.0 * 2**30], "for its CPU the request counts"


def test_a_pod_whose_learned_demand_is_larger_than_any_node_is_measured_if_it_requests_nothing() -> None:
    """Its class is said to need 40 GiB; the node has 32."""
    world, api = World(None, node_json("a"), class_json("k", [1.0], [40.0])), MetricsApi()
    world.put(pod_json("p", **SILENT, node="a", workload="k"))
    api.use = {"p": ("5", "16Gi")}
    poller_of(world, api).poll()
    assert use_on(world, "a") == [5.0, 16.0 * 2**30]


def test_requests_for_the_pod_as_a_whole_stand_for_those_that_its_containers_lack() -> None:
    """Its use of 6 GiB is not added to them, and what it does not request for the whole is measured as before."""
    world, api = World(None, node_json("a")), MetricsApi()
    whole = {"requests": {"cpu": "4", "memory": "8Gi"}}
    world.put(pod_json("p", **SILENT, node="a", resources=whole))
    api.use = {"p": ("3", "6Gi")}
    poller_of(world, api).poll()
    assert (api.asked, use_on(world, "a")) == (0, [4.0, 8.0 * 2**30])
    assert world.request(pod_json("p", **SILENT, resources=whole)).footprint.source == REQUESTS
    world.put(pod_json("p", **SILENT, node="a", resources={"requests": {"cpu": "4"}}))
    poller_of(world, api).poll()
    assert use_on(world, "a") == [4.0, 6.0 * 2**30]


def test_a_small_change_of_use_is_ignored() -> None:
    world, api = World(None, node_json("a")).put(pod_json("silent", **SILENT, node="a")), MetricsApi()
    api.use = {"silent": ("2000000000n", "1048576Ki")}
    poller = poller_of(world, api)
    poller.poll()
    before = world.state.snapshot()
    api.use = {"silent": ("2100000000n", "1040000Ki")}
    poller.poll()
    assert world.state.snapshot() is before
    api.use = {"silent": ("2300000000n", "1040000Ki")}
    poller.poll()
    assert use_on(world, "a")[0] == pytest.approx(2.3)


def test_a_missing_metrics_api_is_no_failure_and_one_that_fails_is_reported_once_and_soon_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, api = World(None, node_json("a")).put(pod_json("silent", **SILENT, node="a")), MetricsApi()
    poller = poller_of(world, api)
    api.problem = NotFound("no such group")
    poller.poll()
    assert poller.failing == 0
    assert poller.loop._max_pause_s() == PERIOD_S
    api.problem = ServerFailed("down")
    poller.poll()
    poller.poll()
    assert (poller.failing, poller.loop._max_pause_s()) == (1, RETRY_S)
    assert caplog.messages == ["the use of pods is unknown: down"]
    api.problem = None
    poller.poll()
    assert poller.failing == 0
    api.problem = RuntimeError("a fault of ours")
    with pytest.raises(RuntimeError):
        poller.poll()
    assert poller.failing == 1
    world.state.drop_pod("uid-silent")
    poller.poll()
    assert poller.failing == 0, "no pod needs it any more"


def test_a_running_pod_of_an_unknown_class_is_judged_by_the_forecast_of_its_profile() -> None:
    """It requests one core, and is about to use six of eight."""
    world = World(None, node_json("a"), node_json("b"))
    world.put(pod_json("p", node="a", workload="unseen"), pod_json("q", cpu="2", node="b", scheduler="x"))
    profile = profile_json("vpa", {"uid-p": CATEGORIES[2]})
    why = {"policy": "phasewise", "forecastCpuCores": 6.0, "forecastMemoryBytes": 2.0**32}
    profile["status"]["containers"] = [{"name": "main", "why": why}]
    world.put(profile)
    assert use_on(world, "a") == [6.0, 2.0**32]
    assert world.request(pod_json("p", node="a", workload="unseen")).footprint.source == FORECAST
    assert world.place(pod_json("new")) == "b", "2 of 8 cores are used there, 6 of 8 on the other"
    world.put(class_json("unseen", [3.0], [1.0]))
    assert use_on(world, "a")[0] == 3.0, "now its class is known"


@pytest.mark.parametrize("value", [-1.0, float("inf"), "many", None])
def test_an_invalid_forecast_is_ignored(value: object) -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a"))
    profile = profile_json("vpa", {"uid-p": CATEGORIES[0]})
    profile["status"]["containers"] = [{"name": "main", "why": {"forecastCpuCores": value, "forecastMemoryBytes": 1.0}}]
    assert use_on(world.put(profile), "a")[0] == 1.0


def test_a_footprint_says_whether_it_is_guessed_or_measured() -> None:
    world, api = World(None, node_json("a")).put(pod_json("p", **SILENT, node="a")), MetricsApi()
    assert world.request(pod_json("p", **SILENT, node="a")).footprint.source == GUESS
    api.use = {"p": ("1", "1Gi")}
    poller_of(world, api).poll()
    assert world.request(pod_json("p", **SILENT, node="a")).footprint.source == MEASURED
