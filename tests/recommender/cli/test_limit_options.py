"""Each option that bounds what is published, and each on progress: another value, and something else is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local_cluster.played_http import Played, Reply, played
from recommender.cli.live_options import make_limits
from recommender.cli.progress_options import make_progress, sources_of
from recommender.cli.recommender import command
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.engine.fleet import Fleet
from recommender.engine.options import Options
from recommender.growth import Growth
from recommender.live.round import Recommender
from recommender.readings import Reading
from recommender.sources.prometheus_access import Access
from tests.fakes.api_server import kubeconfig
from tests.fakes.prometheus import vector
from tests.fakes.records import GIB, MODEL, Records, a_pod, a_vpa, rounds

LIMITS = {
    "--container-recommendation-max-allowed-cpu": "100m",
    "--container-recommendation-max-allowed-memory": "1Gi",
    "--namespace-max-allowed": "ns=cpu:200m",
    "--pod-recommendation-min-cpu-millicores": "3000",
    "--pod-recommendation-min-memory-mb": "8000",
    "--round-cpu-millicores": "1700",
    "--round-memory-bytes": "3000000000",
    "--cpu-integer-post-processor-enabled": "--cpu-integer-post-processor-disabled",
    "--oom-bump-up-ratio": "3",
    "--oom-min-bump-up-bytes": "9000000000",
}
"""By an option's first name: a value that is not its default."""


def options_of(part: str, *arguments: str) -> dict[str, Any]:
    """What the command line says of a part of the recommender's settings."""
    given = command.make_context("recommender", list(arguments)).params
    return {name.partition(".")[2]: value for name, value in given.items() if name.startswith(f"{part}.")}


def published(*arguments: str) -> dict[str, Any]:
    """The target of a job that is killed for memory once."""
    cluster = Records()
    cluster.raw["job"] = a_vpa()
    annotations = {"vpa-post-processor.kubernetes.io/main_integerCPU": "true"}
    cluster.raw["job"]["metadata"]["annotations"] = annotations
    cluster.pods["job"] = [a_pod("job-1")]
    ours = Recommender(
        cluster,
        lambda *asks: Fleet(MODEL, 1.0, 30, *asks),
        Options(),
        make_limits(**options_of("limits", *arguments)),
        clock=lambda: cluster.now_s,
        stopwatch=lambda: cluster.now_s,
    )
    rounds(ours, cluster, 20)
    cluster.killed = [OomObservation(ObjectKey("ns", "job-1"), "main", cluster.now_s, 4 * GIB)]
    rounds(ours, cluster, 5)
    (entry,) = read_vpa(cluster.raw["job"]).status["recommendation"]["containerRecommendations"]
    return dict(entry["target"])


@pytest.mark.option("phasewise recommender", *LIMITS)
@pytest.mark.parametrize("option", LIMITS)
def test_another_limit_is_another_target(option: str) -> None:
    value = LIMITS[option]
    assert published(*([value] if value.startswith("--") else [option, value])) != published()


# -- progress ----------------------------------------------------------------------------------------------------------


def categories(*arguments: str) -> list[str]:
    """What a job is called while its loss falls ever more slowly."""
    growth_options = make_progress(**options_of("told", *arguments)).growth
    growth, found = Growth.begin("test", Reading(0.0, 40.0, "loss"), growth_options), []
    for number in range(1, 40):
        growth.observe("test", Reading(15.0 * number, 40.0 * (0.1 + 0.9 * 0.8**number), "loss"), growth_options)
        found.append(growth.category.value)
    return found


@pytest.mark.option("phasewise recommender", "--progress-interval", "--progress-alpha", "--progress-normalise")
@pytest.mark.parametrize("given", ["--progress-interval=2m", "--progress-alpha=0.2", "--progress-normalise=none"])
def test_progress_is_judged_as_is_said(given: str) -> None:
    assert categories(given) != categories()


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return connect(kubeconfig(tmp_path / "config", "http://127.0.0.1:9"), user_agent="test")


def sources(api: Api, *arguments: str, prometheus: str | None = None) -> list[Any]:
    made, _ = sources_of(make_progress(**options_of("told", *arguments)), api, (prometheus, Access()), lambda: True)
    return list(made.sources)


@pytest.mark.option("phasewise recommender", "--progress-logs", "--progress-token-file")
def test_where_progress_is_looked_for(api: Api, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t\n")
    found = [
        [source.name for source in sources(api, *options)]
        for options in ((), ("--no-progress-logs",), ("--progress-token-file", str(token)))
    ]
    assert found == [["annotation", "log"], ["annotation"], ["push", "annotation", "log"]]


@pytest.mark.option("phasewise recommender", "--progress-query", "--progress-metric", "--progress-label")
def test_what_a_prometheus_is_asked_of_progress_and_how_its_answer_is_read(api: Api) -> None:
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
def test_what_is_looked_for_in_a_log_that_names_no_pattern_itself(tmp_path: Path) -> None:
    said = Reply(body=b"2026-05-01T12:00:00.0Z quality is 0.25\n", headers={"Content-Type": "text/plain"})
    pod = a_pod("job-1")
    running = (replace(pod.containers[0], running=True),)
    pod = replace(pod, annotations={"phasewise.dev/progress-log": "true"}, containers=running)
    with played(lambda _: said) as server:
        api = connect(kubeconfig(tmp_path / "config", server.url), user_agent="test")
        found = []
        for options in ((), ("--progress-log-pattern", r"quality is (?P<score>\S+)")):
            told = sources(api, *options)[-1].take([pod], 1_777_636_801.0)
            found.append([reading.value for of_pod in told.readings.values() for reading in of_pod])
    assert found == [[], [0.25]]
