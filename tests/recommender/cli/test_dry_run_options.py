"""Each option of `phasewise dry-run`: another value changes the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest

from recommender.learning.model import load
from recommender.learning.training import CrossFit
from tests.fakes.command_line import CommandResult

Phasewise = Callable[..., CommandResult]

RUNS, SAMPLES = 7, 30
CLUSTER_OPTIONS = {
    "--apply-delay": ("10m",),
    "--apply": ("recreate",),
    "--resize-waiting": (),
    "--checkpoint-every": ("2m",),
    "--restart-time": ("1h",),
    "--limits": ("none",),
    "--resizes-per-hour": ("1",),
    "--target-kills": ("0.5",),
    "--history": ("HISTORY",),
}
"""Options of the simulated cluster: values other than the default."""

POLICY_OPTIONS = {
    "--step": ("45s",),
    "--cycle": ("1m",),
    "--cycle-samples": ("9",),
    "--policies": ("prev.step.rules",),
    "--map": ("cpu_cores=other",),
}
PRICES = ("--cpu-price", "--memory-price", "--violation-price", "--oom-price")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Consecutive runs of one class in three stages; in `now.csv`, the last uses more memory than requested."""
    folder = tmp_path_factory.mktemp("jobs")
    for name, start, memory in (("now", 1_700_000_000, 5e9), ("before", 1_600_000_000, 1e9)):
        frames = []
        for number in range(RUNS):
            rng = np.random.default_rng(number)
            stage = np.arange(SAMPLES) * 3 // SAMPLES
            cpu = np.array([0.2, 1.5, 0.4])[stage] * rng.uniform(0.8, 1.1, SAMPLES)
            memory_used = np.array([0.5e9, 1.5e9, memory])[stage] * rng.uniform(0.95, 1.05, SAMPLES)
            times = start + 15 * (np.arange(SAMPLES) + number * (SAMPLES + 4))
            frames.append(
                pd.DataFrame(
                    {
                        "timestamp": times,
                        "container": f"{name}-{number}",
                        "workload": "nightly",
                        "cpu_cores": cpu,
                        "other": cpu * 2.0,
                        "memory_bytes": memory_used.round(),
                        "cpu_request_cores": 2.0,
                        "memory_request_bytes": 4e9,
                    }
                )
            )
        pd.concat(frames).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture
def figures_of(phasewise: Phasewise, jobs: Path) -> Callable[..., object]:
    """The figures of some policies, with the bundled model."""

    def run(policies: str, *options: object) -> object:
        arguments = [jobs / "before.csv" if word == "HISTORY" else word for word in options]
        defaults = () if "--policies" in options else ("--policies", policies)
        defaults += () if {"--cycle", "--cycle-samples"} & {*options} else ("--cycle", "30s")
        ended = phasewise("dry-run", jobs / "now.csv", "--model", "bundled", *defaults, "--json", "-", *arguments)
        assert ended.code == 0, ended.err
        figures = orjson.loads(ended.out)
        return figures["policies"], figures["samples"]

    return run


@pytest.mark.option("phasewise dry-run", *CLUSTER_OPTIONS)
@pytest.mark.long
def test_another_value_of_a_cluster_option_changes_the_figures(figures_of: Callable[..., object]) -> None:
    default = figures_of("phasewise")
    same = [option for option, value in CLUSTER_OPTIONS.items() if figures_of("phasewise", option, *value) == default]
    assert same == []


@pytest.mark.option("phasewise dry-run", *POLICY_OPTIONS)
@pytest.mark.parametrize("option", POLICY_OPTIONS)
def test_another_value_of_a_policy_option_changes_the_figures(option: str, figures_of: Callable[..., object]) -> None:
    assert figures_of("prev.step.max", option, *POLICY_OPTIONS[option]) != figures_of("prev.step.max")


@pytest.mark.option("phasewise dry-run", *PRICES)
@pytest.mark.parametrize("option", PRICES)
def test_another_price_changes_the_costs(option: str, phasewise: Phasewise, jobs: Path) -> None:
    def table(price: str) -> str:
        prices = [word for name in PRICES for word in (name, price if name == option else "0.5")]
        policies = ("--policies", "vpa,phasewise")
        return phasewise("dry-run", jobs / "now.csv", "--model", "bundled", *policies, *prices).out

    assert table("0.5") != table("700")


@pytest.mark.option("phasewise dry-run", "--node-type")
def test_another_node_type_changes_the_nodes_of_each_row_and_their_cost(
    phasewise: Phasewise, jobs: Path, tmp_path: Path
) -> None:
    """Runs follow each other; each is killed once, and repeating its work costs a share of a node."""
    command = ("dry-run", jobs / "now.csv", "--model", "bundled", "--policies", "static,vpa,phasewise")

    def nodes(kind: str) -> dict:
        return orjson.loads(phasewise(*command, "--node-type", kind, "--json", "-").out)["nodes"]

    small, dear = nodes("2x8Gi@1"), nodes("2x8Gi@3")
    assert list(small) == ["static", "vpa", "phasewise", "new"]
    static = small["static"]
    assert static["node_hours"] == pytest.approx(RUNS * SAMPLES * 15 / 3600)
    assert static["lost_node_hours"] > 0 and static["cost"] == static["node_hours"] + static["lost_node_hours"]
    assert dear["static"]["cost"] == pytest.approx(3 * static["cost"])
    assert nodes("1x8Gi@1")["static"]["peak_nodes"] == 2
    ended = phasewise(*command, "--node-type", "2x8Gi@1", "--html", tmp_path / "page.html")
    assert 'id="node-table"' in (tmp_path / "page.html").read_text()
    assert [line.split()[0] for line in ended.out.partition("\nNodes")[2].splitlines()[4:8]] == [
        "static",
        "phasewise",
        "vpa",
        "new",
    ]


@pytest.mark.option("phasewise dry-run", "--jobs")
def test_jobs_sets_the_number_of_processes(phasewise: Phasewise, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[int] = []

    def fake_cross_fit(source: object, containers: Sequence[str], *others: Any) -> CrossFit:
        processes.append(others[-1])
        return CrossFit((load("bundled"),), dict.fromkeys(containers, 0))

    monkeypatch.setattr("recommender.cli.replaying.cross_fit", fake_cross_fit)
    for number in (1, 3):
        phasewise("dry-run", jobs / "now.csv", "--policies", "phase.rules", "--jobs", number)
    assert processes == [1, 3]


@pytest.mark.option("phasewise dry-run", "--seed")
@pytest.mark.long
def test_another_seed_gives_other_cross_fitted_models(phasewise: Phasewise, jobs: Path) -> None:
    options = ("dry-run", jobs / "now.csv", "--cycle", "2m", "--policies", "phase.rules", "--sample", 2, "--json", "-")
    first, other = (orjson.loads(phasewise(*options, "--seed", seed).out)["policies"] for seed in (0, 1))
    assert first != other
