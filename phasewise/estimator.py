"""The phases of containers as an estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from phasewise.frames import as_file, rows_of, to_table
from recommender.base.records import UNKNOWN_PHASE, IntArray, UsageSeries
from recommender.learning import model as models
from recommender.learning.training import TrainingOptions, gather, train
from recommender.phases.features import USAGE_FEATURES, source_columns
from recommender.phases.graph import bucket_of, runs_of
from recommender.sources.files import ReadOptions, open_source

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_TRACES = 6
"""Containers in one picture."""


class PhaseModel(ClusterMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Phases of containers: a conditional RBM over windows of usage, k-means on its codes, and a graph of what follows.

    Parameters
    ----------
    n_phases : int or None, default=None
        Number of phases; None chooses it from the data.
    lag : int, default=3
        Past samples in a window.
    n_hidden : int, default=10
        Hidden units of the CRBM, the width of `transform`.
    features : sequence of str, default=cpu_cores, memory_bytes and what is made from them
        Columns to learn from.
    cycle_s : float, default=600
        Seconds between decisions of a recommender with this model.
    step_s : float or None, default=None
        Grid step in seconds; None is the median interval of the data.
    random_state : int, default=0
        Seed of the training.

    Attributes
    ----------
    model_ : the trained model, with `save(folder)` for `phasewise dry-run --model` and `phasewise recommender`.
    labels_ : int64 (n,), phases of the rows of the training frame.
    step_s_ : grid step in seconds.

    Examples
    --------
    >>> model = PhaseModel(n_phases=4).fit(frame)  # doctest: +SKIP
    >>> frame["phase"] = model.predict(frame)  # doctest: +SKIP
    """

    def __init__(
        self,
        n_phases: int | None = None,
        *,
        lag: int = 3,
        n_hidden: int = 10,
        features: Sequence[str] = USAGE_FEATURES,
        cycle_s: float = 600.0,
        step_s: float | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_phases, self.lag, self.n_hidden, self.features = n_phases, lag, n_hidden, features
        self.cycle_s, self.step_s, self.random_state = cycle_s, step_s, random_state

    @classmethod
    def load(cls, name: str) -> Self:
        """A model folder, or `bundled`: the model that ships with Phasewise."""
        model = models.load(name)
        detector, facts = model.detector, model.facts
        loaded = cls(
            detector.n_phases, lag=detector.lag, n_hidden=detector.encoder.n_hidden, features=detector.features
        )
        loaded.model_, loaded.step_s_ = model, float(facts.get("step_s", 0.0)) or None
        return loaded

    def fit(self, X: Any, y: None = None) -> Self:  # noqa: N803  as in scikit-learn
        """Learn the phases of the containers of a frame."""
        features = tuple(self.features)
        options = TrainingOptions(
            features, self.lag, self.n_hidden, phases=self.n_phases, seed=self.random_state, cycle_s=self.cycle_s
        )
        reading = ReadOptions(features=source_columns(features), step_s=self.step_s)
        with as_file(to_table(X)) as file, open_source([file], reading) as opened:
            series = gather(opened, opened.containers, self.lag + 2)
            self.model_: models.PhaseModel = train(series, options, data_hash=opened.data_hash)
        self.step_s_: float | None = float(self.model_.facts["step_s"])
        self.labels_ = self.predict(X)
        return self

    def predict(self, X: Any) -> IntArray:  # noqa: N803
        """The phase of each row, int64 (n,); -1 is unknown: a window far from all phases."""
        labels = np.full(len(rows := _Rows(X, self)), UNKNOWN_PHASE)
        for series, at, cells in rows:
            labels[at] = self.model_.detector.trace(series)[cells]
        return labels

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """The code of the window that ends with each row, float32 (n, n_hidden); 0 where there is no full window."""
        rows = _Rows(X, self)
        codes = np.zeros((len(rows), self.model_.detector.encoder.n_hidden), np.float32)
        for series, at, cells in rows:
            codes[at] = self.model_.detector.codes(series)[0][cells]
        return codes

    def next_phase(self, X: Any) -> pd.DataFrame:  # noqa: N803
        """What follows the last row of each container: a frame with a row per container and possible next phase.

        Columns: container, phase (the present one), next_phase, probability, expected_s (seconds until it begins).
        """
        found = [row for series, _, _ in _Rows(X, self) for row in self._next_phases(series)]
        return pd.DataFrame(found, columns=["container", "phase", "next_phase", "probability", "expected_s"])

    def plot(self, X: Any) -> Figure:  # noqa: N803
        """Usage of the first containers on a background of phases, as a figure of Matplotlib."""
        from recommender.plots.timelines import traces_figure  # noqa: PLC0415  matplotlib takes a second to import

        traced = [(series, self.model_.detector.trace(series)) for series, _, _ in _Rows(X, self)]
        return traces_figure(traced[:MAX_TRACES])

    def _next_phases(self, series: UsageSeries) -> list[tuple[str, int, int, float, float]]:
        graph, runs = self.model_.graph, runs_of(self.model_.detector.trace(series))
        if graph is None or not runs:
            return []
        phase, dwell_steps = runs[-1]
        before = 1 + runs[-2][0] if len(runs) > 1 else 0
        chances = graph.followers()[before, phase, : self.model_.detector.n_phases].tolist()
        (bucket,) = bucket_of(np.array([dwell_steps]))
        expected_s = float(graph.remaining_steps()[before, phase, bucket]) * series.step_s
        by_chance = sorted((one for one in range(len(chances)) if one != phase), key=lambda one: -chances[one])
        return [(series.container, phase, following, chances[following], expected_s) for following in by_chance]


class _Rows:
    """The containers of a frame on a grid: for each its series, its rows in the frame, and the cell of each row."""

    def __init__(self, frame: Any, model: PhaseModel) -> None:
        check_is_fitted(model, "model_")
        self._table = to_table(frame)
        self._reading = ReadOptions(features=source_columns(model.model_.detector.features), step_s=model.step_s_)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[tuple[UsageSeries, IntArray, IntArray]]:
        with as_file(self._table) as file, open_source([file], self._reading) as opened:
            names, times_s = rows_of(self._table)
            rows = pd.Series(np.arange(len(names))).groupby(names).indices
            for series in opened:
                at = np.asarray(rows[series.container])
                cells = np.floor((times_s[at] - times_s[at].min()) / opened.step_s + 0.5).astype(np.int64)
                yield series, at, cells
