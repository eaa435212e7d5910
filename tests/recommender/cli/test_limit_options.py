"""Each option that limits recommendations: another value changes the published target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recommender.cli.live_options import make_limits
from recommender.cli.recommender import command
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.engine.fleet import Fleet
from recommender.engine.options import Options
from recommender.live.round import Recommender
from recommender.policies.constraints import SharedLimits
from tests.fakes.command_line import CommandResult
from tests.fakes.records import GIB, MODEL, FakeView, a_pod, a_vpa, rounds

Phasewise = Callable[..., CommandResult]

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


def limits(*arguments: str) -> SharedLimits:
    """The limits that the command line sets."""
    given = command.make_context("recommender", list(arguments)).params
    prefix = "limits."
    return make_limits(**{name.removeprefix(prefix): given[name] for name in given if name.startswith(prefix)})


def published(*arguments: str) -> dict[str, Any]:
    """The published target of a job that is OOM-killed once."""
    cluster = FakeView()
    cluster.raw["job"] = a_vpa()
    annotations = {"vpa-post-processor.kubernetes.io/main_integerCPU": "true"}
    cluster.raw["job"]["metadata"]["annotations"] = annotations
    cluster.pods["job"] = [a_pod("job-1")]
    live = Recommender(
        cluster,
        Fleet(MODEL, 1.0, 30),
        Options(),
        limits(*arguments),
        clock=lambda: cluster.now_s,
        stopwatch=lambda: cluster.now_s,
    )
    rounds(live, cluster, 20)
    cluster.killed = [OomObservation(ObjectKey("ns", "job-1"), "main", cluster.now_s, 4 * GIB)]
    rounds(live, cluster, 5)
    (entry,) = read_vpa(cluster.raw["job"]).status["recommendation"]["containerRecommendations"]
    return dict(entry["target"])


@pytest.mark.option("phasewise recommender", *LIMITS)
@pytest.mark.parametrize("option", LIMITS)
def test_another_limit_changes_the_target(option: str) -> None:
    value = LIMITS[option]
    assert published(*([value] if value.startswith("--") else [option, value])) != published()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--round-memory-bytes", 2**63),
        ("--round-cpu-millicores", 10**400),
        ("--pod-recommendation-min-memory-mb", 1e308),
        ("--record-size", 1e308),
        ("--resizes-per-hour", 10**400),
        ("--kube-api-burst", "nan"),
    ],
)
def test_a_number_beyond_any_amount_is_refused(
    phasewise: Callable[..., CommandResult], option: str, value: Any
) -> None:
    ended = phasewise("recommender", "--check", option, value)
    assert ended.code == 2
    assert "is not a number up to 1152921504606846976" in ended.err
