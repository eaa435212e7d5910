"""Pods of which neither a profile nor requests are known: what the metrics API says that they use."""

from __future__ import annotations

from typing import Any

import pytest

from extender.pods.footprint import FORECAST, GUESS, MEASURED
from extender.pods.pod import CATEGORIES
from extender.view.cache import UsagePoller
from placement_bench.worlds import World, class_json, node_json, pod_json, profile_json
from recommender.cluster.errors import NotFound, ServerFailed

SILENT: dict[str, Any] = {"cpu": None, "memory": None}


class MetricsApi:
    """Answers as metrics.k8s.io does, or not at all."""

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


def measured(world: World, api: MetricsApi) -> UsagePoller:
    return UsagePoller(api, world.state)  # type: ignore[arg-type]


def use_on(world: World, node: str) -> list[float]:
    snapshot = world.state.snapshot()
    used: list[float] = snapshot.load[:, 0, snapshot.table.index[node]].tolist()
    return used


def test_a_node_full_of_pods_that_ask_for_nothing_does_not_look_idle() -> None:
    """5 of 8 cores and 16 of 32 GiB by measure; a guess would be a tenth of a core and 200 MiB."""
    world, api = World(None, node_json("a"), node_json("b")), MetricsApi()
    world.put(pod_json("silent", **SILENT, node="a", scheduler="x"), pod_json("asks", node="b", scheduler="x"))
    measuring, pod = measured(world, api), pod_json("new")
    assert world.place(pod) == "a"
    api.use = {"silent": ("5000000000n", "16777216Ki"), "asks": ("7", "1Gi")}
    measuring.poll()
    assert world.place(pod) == "b"
    assert use_on(world, "a") == [5.0, 16.0 * 2**30]
    assert world.filter(pod_json("large", memory="20Gi"), ["a"]) != {}, "what was measured is no guess"
    api.use = {}
    measuring.poll()
    assert use_on(world, "a")[0] == pytest.approx(0.1), "not known any more"


def test_the_metrics_api_is_asked_only_while_something_is_neither_learned_nor_asked_for() -> None:
    world, api = World(None, node_json("a")), MetricsApi()
    world.put(
        pod_json("asks", node="a"), class_json("k", [1.0], [1.0]), pod_json("p", **SILENT, node="a", workload="k")
    )
    measured(world, api).poll()
    assert api.asked == 0
    world.put(pod_json("half", cpu="1", memory=None, node="a"))
    api.use = {"half": ("3000000000n", "1048576Ki")}
    measured(world, api).poll()
    assert api.asked == 1
    assert use_on(world, "a") == [1.0 + 1.0 + 1.0, 3.0 * 2**30], "of its CPU the request counts"


def test_use_that_hardly_changes_changes_nothing() -> None:
    world, api = World(None, node_json("a")).put(pod_json("silent", **SILENT, node="a")), MetricsApi()
    api.use = {"silent": ("2000000000n", "1048576Ki")}
    measuring = measured(world, api)
    measuring.poll()
    before = world.state.snapshot()
    api.use = {"silent": ("2100000000n", "1040000Ki")}
    measuring.poll()
    assert world.state.snapshot() is before
    api.use = {"silent": ("2300000000n", "1040000Ki")}
    measuring.poll()
    assert use_on(world, "a")[0] == pytest.approx(2.3)


def test_a_metrics_api_that_is_not_there_is_no_failure_and_one_that_fails_is_shown() -> None:
    world, api = World(None, node_json("a")).put(pod_json("silent", **SILENT, node="a")), MetricsApi()
    measuring = measured(world, api)
    api.problem = NotFound("no such group")
    measuring.poll()
    assert measuring.failing == 0
    api.problem = ServerFailed("down")
    measuring.poll()
    assert measuring.failing == 1
    api.problem = None
    measuring.poll()
    assert measuring.failing == 0
    api.problem = RuntimeError("a fault of ours")
    with pytest.raises(RuntimeError):
        measuring.poll()
    assert measuring.failing == 1


def test_a_running_pod_of_an_unseen_class_is_judged_by_what_its_profile_forecasts() -> None:
    """It asks for one core, and is about to use six of eight."""
    world = World(None, node_json("a"), node_json("b"))
    world.put(pod_json("p", node="a", workload="unseen"), pod_json("q", cpu="2", node="b", scheduler="x"))
    profile = profile_json("vpa", {"uid-p": CATEGORIES[2]})
    why = {"policy": "phasewise", "forecastCpuCores": 6.0, "forecastMemoryBytes": 2.0**32}
    profile["status"]["containers"] = [{"name": "main", "why": why}]
    world.put(profile)
    assert use_on(world, "a") == [6.0, 2.0**32]
    assert world.request(pod_json("p", node="a", workload="unseen")).footprint.source == FORECAST
    assert world.place(pod_json("new")) == "b", "a quarter against six eighths"
    world.put(class_json("unseen", [3.0], [1.0]))
    assert use_on(world, "a")[0] == 3.0, "its class is known by now"


@pytest.mark.parametrize("value", [-1.0, float("inf"), "many", None])
def test_a_forecast_that_is_nonsense_counts_for_nothing(value: object) -> None:
    world = World(None, node_json("a")).put(pod_json("p", node="a"))
    profile = profile_json("vpa", {"uid-p": CATEGORIES[0]})
    profile["status"]["containers"] = [{"name": "main", "why": {"forecastCpuCores": value, "forecastMemoryBytes": 1.0}}]
    assert use_on(world.put(profile), "a")[0] == 1.0


def test_where_use_comes_from_is_told() -> None:
    world, api = World(None, node_json("a")).put(pod_json("p", **SILENT, node="a")), MetricsApi()
    assert world.request(pod_json("p", **SILENT, node="a")).footprint.source == GUESS
    api.use = {"p": ("1", "1Gi")}
    measured(world, api).poll()
    assert world.request(pod_json("p", **SILENT, node="a")).footprint.source == MEASURED
