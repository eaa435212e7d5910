"""Arguments of the default recommender are accepted, or refused with what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import click
import pytest

from recommender.base.errors import Misuse
from recommender.cli.grouped import keys_of
from recommender.cli.recommender import command
from recommender.cli.upstream_flags import DEFAULT_ONLY, IGNORED, RENAMED, translated
from tests.fakes.command_line import CommandResult

SHIPPED = """--v=4 --stderrthreshold=info --recommender-interval=1m0s --storage=checkpoint --leader-elect=true
--memory-saver --update-worker-count=10 --recommendation-margin-fraction=0.15 --target-cpu-percentile=0.90
--memory-histogram-decay-half-life=1440m --humanize-memory=false --kube-api-qps=50.0 --feature-gates=PerVPAConfig=true
--pod-recommendation-min-cpu-millicores 15 --prometheus-address http://prometheus:9090 --profiling"""

UPSTREAM = """
recommender-name recommender-interval address storage checkpoints-gc-interval checkpoints-timeout min-checkpoints
memory-saver update-worker-count recommendation-margin-fraction pod-recommendation-min-cpu-millicores
pod-recommendation-min-memory-mb target-cpu-percentile recommendation-lower-bound-cpu-percentile
recommendation-upper-bound-cpu-percentile target-memory-percentile recommendation-lower-bound-memory-percentile
recommendation-upper-bound-memory-percentile confidence-interval-cpu confidence-interval-memory humanize-memory
round-cpu-millicores round-memory-bytes memory-aggregation-interval memory-aggregation-interval-count
memory-histogram-decay-half-life cpu-histogram-decay-half-life oom-bump-up-ratio oom-min-bump-up-bytes
cpu-integer-post-processor-enabled container-recommendation-max-allowed-cpu container-recommendation-max-allowed-memory
prometheus-address prometheus-insecure prometheus-cadvisor-job-name prometheus-query-timeout prometheus-bearer-token
prometheus-bearer-token-file username password history-length history-resolution history-cpu-metric
history-memory-metric pod-label-prefix metric-for-pod-labels pod-namespace-label pod-name-label
container-namespace-label container-pod-name-label container-name-label use-external-metrics
external-metrics-cpu-metric external-metrics-memory-metric kubeconfig kube-api-qps kube-api-burst profiling
vpa-object-namespace ignored-vpa-object-namespaces leader-elect leader-elect-lease-duration
leader-elect-renew-deadline leader-elect-retry-period leader-elect-resource-lock leader-elect-resource-name
leader-elect-resource-namespace feature-gates v stderrthreshold
"""
"""Every flag of 1.8 (pkg/recommender/config)."""

BOOLEAN_FLAGS = {"--leader-elect": [], "--auto": ["--no-auto"]}


def our_arguments(*arguments: str) -> list[str]:
    return list(translated(arguments, BOOLEAN_FLAGS, []))


def test_every_flag_of_the_default_recommender_is_handled() -> None:
    keys = {key for option in command.params if isinstance(option, click.Option) for key in keys_of(option)}
    handled = {*RENAMED, *IGNORED, *DEFAULT_ONLY, "storage", "prometheus-address", "prometheus-insecure"}
    assert not handled & keys, "our options must not be translated"
    assert [flag for flag in UPSTREAM.split() if flag not in keys | handled] == []
    assert {name for name, _ in RENAMED.values()} <= keys


def test_the_arguments_of_the_upstream_deployment_are_accepted() -> None:
    context = command.make_context("recommender", SHIPPED.split())
    values = context.params
    assert values["rounds.interval_s"] == 60.0
    assert values["replicas.leader_elect"] is True
    assert values["rounds.workers"] == 10
    assert values["limits.least_millicores"] == 15.0
    assert values["prometheus.url"] is None  # its storage is a checkpoint: the address has no effect there either


def test_rate_limits_may_have_a_fraction_as_in_the_default_recommender() -> None:
    values = command.make_context("recommender", ["--kube-api-qps=20.5", "--kube-api-burst=60.0"]).params
    assert (values["api_server.qps"], values["api_server.burst"]) == (20.5, 60.0)


def test_the_log_says_which_flags_of_the_default_recommender_have_no_effect(
    phasewise: Callable[..., CommandResult],
) -> None:
    ended = phasewise("recommender", "--memory-saver", "--storage=prometheus", "--log-format", "json", "--check")
    messages = [json.loads(line)["message"] for line in ended.err.splitlines()]
    assert messages[0].startswith("--memory-saver=true has no effect: ")
    assert messages[1].startswith("--storage=prometheus: ")


def test_prometheus_storage_and_its_flags_are_translated() -> None:
    given = ("--storage=prometheus", "--prometheus-address=http://p:9090", "--history-length=8d", "--username=me")
    assert our_arguments(*given) == ["--history-length=8d", "--user=me", "--prometheus=http://p:9090"]
    assert our_arguments("--storage", "prometheus") == ["--prometheus=http://prometheus.monitoring.svc"]
    assert our_arguments("--prometheus-insecure", "--container-pod-name-label=pod") == ["--label=pod=pod", "--insecure"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("--leader-elect=true",), ["--leader-elect"]),
        (("--leader-elect=false",), []),
        (("--auto=F",), ["--no-auto"]),
        (("-v=4", "-v", "2", "--name", "a"), ["--name", "a"]),
        (("--memory-saver", "--name=a"), ["--name=a"]),
        (("--logtostderr", "--name", "a", "--log_file=x", "--skip_headers"), ["--name", "a"]),
        (("--config=x", "word", "-", "--interval", "1s"), ["--config=x", "word", "-", "--interval", "1s"]),
    ],
)
def test_flags_may_have_the_syntax_of_go(given: tuple[str, ...], expected: list[str]) -> None:
    assert our_arguments(*given) == expected


def refusals() -> Iterator[tuple[str, str]]:
    for name, (_, remedy) in DEFAULT_ONLY.items():
        yield f"--{name}=17", remedy
    yield "--storage=floppy", "--prometheus URL"
    yield "--leader-elect=perhaps", "neither true nor false"


@pytest.mark.parametrize(("argument", "remedy"), list(refusals()))
def test_unsupported_flags_and_values_are_refused_with_a_remedy(argument: str, remedy: str) -> None:
    with pytest.raises(Misuse, match=re.escape(remedy)) as refused:
        our_arguments(argument)
    name = argument.partition("=")[0]
    assert name in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_refused_secret_is_not_quoted() -> None:
    for name in ("prometheus-bearer-token", "password"):
        with pytest.raises(Misuse) as refused:
            our_arguments(f"--{name}=hunter2")
        assert "hunter2" not in str(refused.value)
