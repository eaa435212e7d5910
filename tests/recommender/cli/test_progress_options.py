"""Each option of training progress: another value reads or classifies it differently; bad ones are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recommender.base.errors import Misuse
from recommender.cli.progress_options import ProgressSettings, make_sources
from recommender.cli.recommender import command
from recommender.cluster.access.connection import Api, connect
from recommender.progress.growth import Growth, GrowthOptions
from recommender.progress.readings import Reading
from recommender.sources.prometheus_access import Access
from tests.fakes.api_server import kubeconfig
from tests.fakes.prometheus import vector
from tests.fakes.records import a_pod
from tests.rig.played_http import Played, Reply, played


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return connect(kubeconfig(tmp_path / "config", "http://127.0.0.1:9"), user_agent="test")


def settings(part: str, *arguments: str) -> dict[str, Any]:
    """The settings of a part of the command line."""
    parameters = command.make_context("recommender", list(arguments)).params
    return {name.removeprefix(part): value for name, value in parameters.items() if name.startswith(part)}


def growth_options(*arguments: str) -> GrowthOptions:
    return GrowthOptions(**settings("growth.", *arguments))


def sources(api: Api, *arguments: str, prometheus: str | None = None, **replaced: Any) -> list[Any]:
    progress = ProgressSettings(**settings("progress.", *arguments) | replaced)
    made, _ = make_sources(progress, growth_options(*arguments), api, (prometheus, Access()), lambda: True)
    return list(made.sources)


def test_the_defaults_are_those_of_the_thesis() -> None:
    assert growth_options() == GrowthOptions(interval_s=30.0, alpha=0.01, normalise="first")


def categories(*arguments: str) -> list[str]:
    """The categories of a job whose loss falls more and more slowly."""
    options, found = growth_options(*arguments), []
    growth = Growth.begin("test", Reading(0.0, 40.0, "loss"), options)
    for number in range(1, 40):
        growth.observe("test", Reading(15.0 * number, 40.0 * (0.1 + 0.9 * 0.8**number), "loss"), options)
        found.append(growth.category.value)
    return found


@pytest.mark.option("phasewise recommender", "--progress-interval", "--progress-alpha", "--progress-normalise")
@pytest.mark.parametrize("option", ["--progress-interval=2m", "--progress-alpha=0.2", "--progress-normalise=none"])
def test_another_value_changes_the_categories(option: str) -> None:
    assert categories(option) != categories()


@pytest.mark.option("phasewise recommender", "--progress-logs", "--progress-token-file")
def test_options_choose_the_sources_of_progress(api: Api, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t\n")
    query = ("--progress-query", "training_loss")
    found = [
        [source.name for source in sources(api, *options, prometheus="http://127.0.0.1:9090")]
        for options in ((), ("--no-progress-logs",), ("--progress-token-file", str(token), *query))
    ]
    assert found == [["annotation", "log"], ["annotation"], ["push", "annotation", "log", "prometheus"]]


@pytest.mark.option("phasewise recommender", "--progress-query", "--progress-metric", "--progress-label")
def test_query_metric_and_label_apply_to_progress_from_prometheus(api: Api) -> None:
    labels = {"namespace": "ns", "pod": "job-1", "name": "job-2"}

    def read(server: Played, *options: str) -> dict[Any, Any]:
        query = ("--progress-query", "training_loss")
        source = sources(api, *query, *options, prometheus=server.url)[-1]
        return dict(source.take([a_pod("job-1"), a_pod("job-2")], 1_000_000.0).readings)

    with played(lambda _: vector((labels, 0.5), at_s=1_000_000)) as server:
        plain = read(server)
        assert [one.query for one in server.asked] == ["training_loss"]
        assert read(server, "--progress-metric", "score") != plain
        assert [pod for _, pod in read(server, "--progress-label", "pod=name")] == ["job-2"]


@pytest.mark.option("phasewise recommender", "--progress-log-pattern")
def test_the_log_pattern_applies_to_pods_without_a_pattern_of_their_own(tmp_path: Path) -> None:
    log = Reply(body=b"2026-05-01T12:00:00.0Z quality is 0.25\n", headers={"Content-Type": "text/plain"})
    pod = a_pod("job-1")
    running = (replace(pod.containers[0], running=True),)
    pod = replace(pod, annotations={"phasewise.dev/progress-log": "true"}, containers=running)
    with played(lambda _: log) as server:
        api = connect(kubeconfig(tmp_path / "config", server.url), user_agent="test")
        found = []
        for options in ((), ("--progress-log-pattern", r"quality is (?P<score>\S+)")):
            update = sources(api, *options)[-1].take([pod], 1_777_636_801.0)
            found.append([reading.value for pod_readings in update.readings.values() for reading in pod_readings])
    assert found == [[], [0.25]]


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"query": "training_loss"}, "add --prometheus URL"),
        ({"query": " "}, "is empty"),
        ({"pattern": "loss=("}, "--progress-log-pattern: it has none of the groups"),
        ({"pattern": "(?P<loss>"}, "--progress-log-pattern: missing"),
        ({"query": "x", "labels": ("node=n",)}, "OURS is one of namespace, pod"),
        ({"query": "x", "labels": ("pod=a-b",)}, "not a label name of Prometheus"),
        ({"token_file": Path("none")}, "--progress-token-file none: no such file"),
    ],
)
def test_invalid_settings_are_misuse(api: Api, replaced: dict[str, Any], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        sources(api, **replaced)
