"""The dry run on a data frame."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from phasewise.estimator import PhaseModel
from phasewise.frames import as_file, to_table
from recommender.base.records import ReplayResult
from recommender.cli.replaying import DataOptions, Wanted, replay_source
from recommender.cli.simulated_cluster import AS_INSTALLED
from recommender.policies.registry import check_names
from recommender.report.figures import to_json
from recommender.report.summary import USUAL_PRICES, Prices
from recommender.simulate.rows import ALL_ROWS, ROWS

SHOWN = [
    "cpu.slack_ratio", "cpu.violation_ratio", "net_saved_cpu", "memory.slack_ratio", "net_saved_memory", "kills",
]  # fmt: skip
"""Columns of the table in a notebook."""


@dataclass(frozen=True)
class DryRun:
    """What a dry run found; in a notebook it shows itself."""

    result: ReplayResult
    prices: Prices = USUAL_PRICES

    def to_pandas(self) -> pd.DataFrame:
        """One row per policy, with the figures of `phasewise dry-run --json` as columns (`cpu.slack_ratio`)."""
        policies = self._figures()["policies"]
        return pd.json_normalize(list(policies.values())).set_axis(pd.Index(policies, name="policy"))

    def workloads(self) -> pd.DataFrame:
        """One row per workload: requests, what to write instead, and what that saves, as `phasewise recommend`."""
        return pd.DataFrame(self._figures()["workloads"])

    def _figures(self) -> Any:
        return orjson.loads(to_json(self.result, self.prices))

    def _repr_html_(self) -> str:
        table = self.to_pandas().reindex(columns=SHOWN).astype(float)
        return table.to_html(float_format="{:.3f}".format, na_rep="", border=0)


def dry_run(
    frame: Any = None,
    policies: Sequence[str] = ROWS,
    *,
    model: PhaseModel | str | None = None,
    cycle_s: float | None = None,
    target_kills: float = AS_INSTALLED.target_kills,
    prices: Prices = USUAL_PRICES,
) -> DryRun:
    """Replay a frame under policies; without a frame the bundled recordings.

    `model`: a fitted one, a model folder or `bundled`; None cross-fits models by container. `cycle_s`: seconds between
    decisions, 600 by default. Misuse: there is no such policy; BadInput: the frame cannot be used.
    """
    check_names(policies, ALL_ROWS)
    with ExitStack() as stack:
        name = model if isinstance(model, str) else None
        if isinstance(model, PhaseModel):
            name = str(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phasewise-"))) / "model")
            model.model_.save(name)
        source = () if frame is None else (stack.enter_context(as_file(to_table(frame))),)
        data = DataOptions(model_name=name, cycle_s=cycle_s)
        cluster = replace(AS_INSTALLED, target_kills=target_kills)
        return DryRun(replay_source(source, data, cluster, Wanted(tuple(policies))).result, prices)
