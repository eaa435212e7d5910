"""How a CRBM is trained: what is held out, who trains on what, and one epoch of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from recommender.kernels.crbm import batch_kernel, miss_kernel, online_kernel
from recommender.kernels.crbm_layout import Floats, Layout, Parameters, pack, workspace
from recommender.kernels.windows import Ints, window_starts

Schedule = Literal["constant", "inverse", "exponential"]

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda age: 1.0,
    "inverse": lambda age: 1.0 / (1.0 + age),
    "exponential": lambda age: 0.5**age,
}
"""Factor of the learning rate by age in units of `schedule_epochs`: after one unit the latter two have halved it."""

GROUPS_TO_HOLD_OUT = 5
"""With fewer containers one held out would be a fifth of the data or more, and one kind of workload unseen."""

WINDOWS_PER_DRAW = 65_536
"""Windows whose uniforms are drawn at a time: 2.6 MB of float32 for ten hidden units, whatever the data's size."""


def hold_out(segments: Ints, groups: Ints, lag: int, fraction: float, seed: int) -> tuple[list[Ints], Ints]:
    """Split windows into those to train on, by group, and those held out.

    Parameters
    ----------
    segments : int64 (n_segments + 1,)
    groups : int64 (n_segments,)
        The container of each segment.
    lag, fraction, seed
        Of the estimator.

    Returns
    -------
    train : list of int64 (n_windows of one group,)
        First rows, one array for each group that has windows left to train on.
    held_out : int64 (n_windows,)
        First rows. Of whole groups drawn at random where there are `GROUPS_TO_HOLD_OUT` and some are small enough (at
        most twice the share asked for is held out), else of the end of each segment, with `lag` windows left out before
        them, so that no row to be reconstructed there was ever trained on.
        Empty when `fraction` is 0 or leaves nothing to train on.
    """
    parts: dict[int, list[Ints]] = {}
    for i, group in enumerate(groups.tolist()):
        windows = segments[i] + window_starts(np.array([0, segments[i + 1] - segments[i]]), lag)
        if windows.size:
            parts.setdefault(group, []).append(windows)
    if fraction <= 0:
        return [np.concatenate(own) for own in parts.values()], np.empty(0, dtype=np.int64)
    if len(parts) < GROUPS_TO_HOLD_OUT:
        return _hold_out_ends(parts, lag, fraction)
    wanted, held, size = fraction * sum(len(p) for own in parts.values() for p in own), list[Ints](), 0
    for group in np.random.default_rng([seed, 1]).permutation(list(parts)).tolist():
        # one container may be most of the data; held out, it would leave little to learn from
        own_size = sum(map(len, parts[group]))
        if size < wanted and size + own_size <= 2 * wanted:
            held += parts.pop(group)
            size += own_size
    if not held:
        return _hold_out_ends(parts, lag, fraction)
    return [np.concatenate(own) for own in parts.values()], np.concatenate(held)


def _hold_out_ends(parts: dict[int, list[Ints]], lag: int, fraction: float) -> tuple[list[Ints], Ints]:
    """The last windows of each segment, and in front of them a gap of `lag` windows that are not used at all."""
    train: list[Ints] = []
    held_out: list[Ints] = [np.empty(0, dtype=np.int64)]
    for own in parts.values():
        fronts: list[Ints] = []
        for windows in own:
            first = len(windows) - int(fraction * len(windows))
            enough = lag < first < len(windows)
            fronts.append(windows[: first - lag] if enough else windows)
            held_out.append(windows[first:] if enough else windows[:0])
        train.append(np.concatenate(fronts))
    return train, np.concatenate(held_out)


def shards_of(groups: list[Ints], n_shards: int) -> list[Ints]:
    """Groups dealt out whole, largest first, each to the shard with the fewest windows so far; no shard is empty."""
    shards: list[list[Ints]] = [[] for _ in range(min(n_shards, len(groups)))]
    loads = [0] * len(shards)
    for group in sorted(groups, key=len, reverse=True):
        lightest = loads.index(min(loads))
        shards[lightest].append(group)
        loads[lightest] += len(group)
    return [np.sort(np.concatenate(shard)) for shard in shards]


class Trainer:
    """The buffers and draws of one training; `epoch` is one pass over all windows.

    Parameters
    ----------
    values : float (n_samples * n_features,), contiguous
    shards
        First rows of the windows of each thread.
    layout
        Of the workspaces, one a shard.
    cd_steps, sampled, batch_size, momentum, weight_decay, shuffle, seed
        As `ConditionalRBM`.
    """

    def __init__(
        self,
        values: Floats,
        shards: list[Ints],
        layout: Layout,
        *,
        cd_steps: int,
        sampled: bool,
        batch_size: int,
        momentum: float,
        weight_decay: float,
        shuffle: bool,
        seed: int,
    ) -> None:
        self.layout = layout
        self._values, self._shards = values, shards
        self._cd_steps, self._sampled, self._shuffle, self._seed = cd_steps, sampled, shuffle, seed
        self._batch_size, self._momentum, self._weight_decay = batch_size, momentum, weight_decay
        self._plain = batch_size == 1 and momentum == 0.0 and weight_decay == 0.0
        self._work = [workspace(layout, values.dtype, 1 if self._plain else 3) for _ in shards]

    def start_from(self, parameters: Parameters) -> None:
        """Give every shard the same parameters."""
        for work in self._work:
            pack(parameters, self.layout, work)

    def snapshot(self) -> Floats:
        """A copy of the workspace up to and with the parameters."""
        return self._work[0][: self.layout.parameters_at + self.layout.block].copy()

    def epoch(self, number: int, rate: float) -> float:
        """One pass over all windows at this rate; returns the training error, each window's before its own update."""
        if len(self._shards) == 1:
            return self._pass(0, number, rate) / len(self._shards[0])
        with ThreadPoolExecutor(len(self._shards)) as pool:
            misses = list(pool.map(lambda shard: self._pass(shard, number, rate), range(len(self._shards))))
        self._average()
        return math.fsum(misses) / sum(map(len, self._shards))

    def misses(self, starts: Ints) -> NDArray[np.float64]:
        """Reconstruction error of each of these windows, float64 (n_windows,)."""
        out = np.empty(len(starts))
        kernel = miss_kernel(self.layout, self._exact)
        kernel(self._values, starts, self._work[0], out)
        return out

    @property
    def _exact(self) -> bool:
        return self._values.dtype == np.float64

    def _pass(self, shard: int, number: int, rate: float) -> float:
        rng = np.random.default_rng([self._seed, 2, number, shard])
        starts, work = self._shards[shard], self._work[shard]
        order = rng.permutation(starts) if self._shuffle else starts
        scalar = self._values.dtype.type
        rates = (scalar(rate), scalar(self._momentum), scalar(self._weight_decay))
        step = self._batch_size * max(1, WINDOWS_PER_DRAW // self._batch_size)
        missed = 0.0
        for begin in range(0, len(order), step):
            part = order[begin : begin + step]
            draws = self._draws(rng, len(part))
            if self._plain:
                kernel = online_kernel(self.layout, self._exact)
                missed += kernel(self._values, part, rates[0], self.layout.n_history, self._cd_steps, draws, work)
            else:
                kernel = batch_kernel(self.layout, self._exact)
                missed += kernel(
                    self._values, part, rates, self._batch_size, self.layout.n_history, self._cd_steps, draws, work
                )
        return missed

    def _draws(self, rng: np.random.Generator, n_windows: int) -> Floats:
        width = self._cd_steps * self.layout.n_hidden if self._sampled else 0
        uniform = rng.random((n_windows, width), dtype=np.float64)
        return uniform.astype(self._values.dtype)

    def _average(self) -> None:
        """The shards' parameters, weighted by their windows, summed in the order of the shards."""
        first, last = self.layout.parameters_at, self.layout.parameters_at + self.layout.block
        weights = np.array([len(shard) for shard in self._shards], dtype=np.float64)
        mean = sum(
            (
                w / weights.sum() * work[first:last].astype(np.float64)
                for w, work in zip(weights, self._work, strict=True)
            ),
            np.zeros(last - first),
        )
        for work in self._work:
            work[first:last] = mean
