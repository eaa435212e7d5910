"""Each option of `phasewise dry-run`: another value, another answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest

from recommender.model import load
from recommender.training import CrossFit
from tests.fakes.command_line import CommandResult

Phasewise = Callable[..., CommandResult]

RUNS, SAMPLES = 4, 45
IN_THE_CLUSTER = {
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
"""Of the row `phasewise`: values that are not the default, and give another answer."""

OF_POLICIES = {
    "--step": ("45s",),
    "--cycle": ("1m",),
    "--cycle-samples": ("9",),
    "--policies": ("prev.step.rules",),
    "--map": ("cpu_cores=other",),
}
PRICES = ("--cpu-price", "--memory-price", "--violation-price", "--oom-price")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one class, one after the other, that begin calm, need more in between, and at last more than declared."""
    folder = tmp_path_factory.mktemp("jobs")
    for name, start, memory in (("now", 1_700_000_000, 5e9), ("before", 1_600_000_000, 1e9)):
        frames = []
        for number in range(RUNS):
            chance = np.random.default_rng(number)
            stage = np.arange(SAMPLES) * 3 // SAMPLES
            cpu = np.array([0.2, 1.5, 0.4])[stage] * chance.uniform(0.8, 1.1, SAMPLES)
            used = np.array([0.5e9, 1.5e9, memory])[stage] * chance.uniform(0.95, 1.05, SAMPLES)
            times = start + 15 * (np.arange(SAMPLES) + number * (SAMPLES + 4))
            frames.append(
                pd.DataFrame(
                    {
                        "timestamp": times,
                        "container": f"{name}-{number}",
                        "workload": "nightly",
                        "cpu_cores": cpu,
                        "other": cpu * 2.0,
                        "memory_bytes": used.round(),
                        "cpu_request_cores": 2.0,
                        "memory_request_bytes": 4e9,
                    }
                )
            )
        pd.concat(frames).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture
def answer(phasewise: Phasewise, jobs: Path) -> Callable[..., object]:
    """The figures of some rows, by the bundled model."""

    def told(rows: str, *options: object) -> object:
        given = [jobs / "before.csv" if word == "HISTORY" else word for word in options]
        asked = () if "--policies" in options else ("--policies", rows)
        asked += () if {"--cycle", "--cycle-samples"} & {*options} else ("--cycle", "30s")
        ended = phasewise("dry-run", jobs / "now.csv", "--model", "bundled", *asked, "--json", "-", *given)
        assert ended.code == 0, ended.err
        figures = orjson.loads(ended.out)
        return figures["policies"], figures["samples"]

    return told


@pytest.mark.option("phasewise dry-run", *IN_THE_CLUSTER)
@pytest.mark.long
def test_another_value_for_the_cluster_is_another_answer(answer: Callable[..., object]) -> None:
    default = answer("phasewise")
    same = [option for option, value in IN_THE_CLUSTER.items() if answer("phasewise", option, *value) == default]
    assert same == []


@pytest.mark.option("phasewise dry-run", *OF_POLICIES)
@pytest.mark.parametrize("option", OF_POLICIES)
def test_another_value_for_the_policies_is_another_answer(option: str, answer: Callable[..., object]) -> None:
    assert answer("prev.step.max", option, *OF_POLICIES[option]) != answer("prev.step.max")


@pytest.mark.option("phasewise dry-run", *PRICES)
@pytest.mark.parametrize("option", PRICES)
def test_another_price_is_another_sum_of_money(option: str, phasewise: Phasewise, jobs: Path) -> None:
    def table(price: str) -> str:
        prices = [word for name in PRICES for word in (name, price if name == option else "0.5")]
        rows = ("--policies", "prev.step.max,histogram")
        return phasewise("dry-run", jobs / "now.csv", "--model", "bundled", *rows, *prices).out

    assert table("0.5") != table("700")


@pytest.mark.option("phasewise dry-run", "--jobs")
def test_so_many_processes_train(phasewise: Phasewise, jobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def trained(source: object, containers: Sequence[str], *more: Any) -> CrossFit:
        told.append(more[-1])
        return CrossFit((load("bundled"),), dict.fromkeys(containers, 0))

    monkeypatch.setattr("recommender.cli.dry_run.cross_fit", trained)
    for number in (1, 3):
        phasewise("dry-run", jobs / "now.csv", "--policies", "phase.rules", "--jobs", number)
    assert told == [1, 3]


@pytest.mark.option("phasewise dry-run", "--seed")
@pytest.mark.long
def test_another_seed_is_another_cross_fitted_model(phasewise: Phasewise, jobs: Path) -> None:
    options = ("dry-run", jobs / "now.csv", "--cycle", "2m", "--policies", "phase.rules", "--sample", 2, "--json", "-")
    first, other = (orjson.loads(phasewise(*options, "--seed", seed).out)["policies"] for seed in (0, 1))
    assert first != other
