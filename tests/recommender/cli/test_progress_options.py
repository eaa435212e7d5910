"""The options on progress: what they make, and what does not fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recommender.cli.progress_options import make_progress, sources_of
from recommender.cli.recommender import command
from recommender.cluster.access.connection import Api, connect
from recommender.errors import Misuse
from recommender.growth import GrowthOptions
from recommender.sources.prometheus_access import Access
from tests.fakes.api_server import kubeconfig

DEFAULTS = {
    name.removeprefix("told."): value
    for name, value in command.make_context("recommender", []).params.items()
    if name.startswith("told.")
}


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return connect(kubeconfig(tmp_path / "config", "http://127.0.0.1:9"), user_agent="test")


def sources(api: Api, url: str | None = None, **given: Any) -> list[str]:
    made, _ = sources_of(make_progress(**{**DEFAULTS, **given}), api, (url, Access()), lambda: True)
    return [source.name for source in made.sources]


def test_annotations_and_logs_are_looked_at_unless_told_otherwise(api: Api) -> None:
    assert sources(api) == ["annotation", "log"]
    assert sources(api, logs=False) == ["annotation"]


def test_a_query_and_a_token_bring_two_more(api: Api, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("t")
    given = {"query": "training_loss", "labels": ("pod=pod_name",), "token_file": token_file}
    assert sources(api, "http://127.0.0.1:9090", **given) == ["push", "annotation", "log", "prometheus"]


def test_the_thesis_defaults_hold() -> None:
    assert make_progress(**DEFAULTS).growth == GrowthOptions(interval_s=30.0, alpha=0.01, normalise="first")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"query": "training_loss"}, "say which by --prometheus"),
        ({"query": " "}, "is empty"),
        ({"pattern": "loss=("}, "--progress-log-pattern: it has none of the groups"),
        ({"pattern": "(?P<loss>"}, "--progress-log-pattern: missing"),
        ({"query": "x", "labels": ("node=n",)}, "OURS is namespace or pod"),
        ({"query": "x", "labels": ("pod=a-b",)}, "no label of Prometheus"),
        ({"token_file": Path("none")}, "--progress-token-file none: no such file"),
    ],
)
def test_what_does_not_fit_is_misuse(api: Api, given: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        sources(api, **given)
