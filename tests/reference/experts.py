"""Experts on one container, sample by sample: a slow version of `kernels.experts`. Amounts are in floors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from recommender.kernels import experts as kernel
from recommender.kernels.experts import CLASS, EXPERTS, GRAPH, LEAD_SAMPLES, MARGINS, PAST, REQUEST, WINDOWS, Weights


class Container:
    """`graph` returns what the phase graph wants, given what it asks for now, the level and the price."""

    def __init__(self, weights: Weights, prior: Sequence[float], graph: Callable[[float, float, float], float]) -> None:
        self.weights, self.prior, self.graph = weights, prior, graph
        self.used: list[float] = []
        self.asked = [math.nan] * (EXPERTS + 1)
        self.history: list[list[float]] = []  # after each sample: what each expert asked for, and the request
        self.record, self.losses, self.charged = [0.0] * EXPERTS, [0.0] * EXPERTS, [0.0] * EXPERTS
        experienced = {CLASS, PAST, REQUEST}
        self.most = [
            weights.changes_per_hour if at in experienced else kernel.SAVED_CHANGES for at in range(EXPERTS + 1)
        ]
        self.budget = [*self.most]
        self.price_factor, self.chosen = 1.0, 0

    def judge(self, amount: float, in_force: float) -> None:
        violated = amount > in_force * self.weights.tolerance
        factor = self.price_factor * math.exp(kernel.PRICE_GAIN * (violated - self.weights.target))
        self.price_factor = min(max(factor, kernel.LEAST_FACTOR), kernel.MOST_FACTOR)

    def observe(self, amount: float) -> None:
        if len(self.history) > LEAD_SAMPLES:
            self._charge(amount, *self.history[-LEAD_SAMPLES - 1 :][:2])
        if self.used:
            saved = [left + self.weights.changes_per_sample for left in self.budget]
            self.budget = [*map(min, saved, self.most)]
        self.used.append(amount)

    def decide(self, told: Sequence[tuple[float, float]], *, sampled: bool) -> None:
        for expert, (soon, longer) in zip((CLASS, PAST), told, strict=True):
            self._ask(expert, soon, longer)
        if sampled:
            self._ask_graph()
            for number, samples in enumerate((kernel.SHORT_SAMPLES, self._long_samples)):
                for margin, share in enumerate(MARGINS):
                    wanted = max(max(self.used[-samples:]) * (1.0 + share), 1.0)
                    self._ask(WINDOWS + number * len(MARGINS) + margin, wanted / self.weights.tolerance, wanted)
        losses = {
            expert: self.record[expert] + kernel.PRIOR_SAMPLES * self._mean * self.prior[expert]
            for expert in range(EXPERTS)
        }
        present = [expert for expert in range(EXPERTS) if not math.isnan(self.asked[expert])]
        if present:
            best, now = min(present, key=losses.__getitem__), self.asked[self.chosen]
            if math.isnan(now) or losses[self.chosen] - losses[best] > self.weights.resize * now:
                self.chosen = best
            wanted = self.asked[self.chosen]
            self._ask(REQUEST, wanted / self.weights.tolerance, wanted)
        self.history.append([*self.asked])

    @property
    def _long_samples(self) -> int:
        """Whole blocks, and what there is of the present one."""
        return (len(self.used) - 1) % kernel.WINDOW_SAMPLES + 1 + (kernel.BLOCKS - 1) * kernel.WINDOW_SAMPLES

    @property
    def _mean(self) -> float:
        prior = kernel.SIZE_PRIOR_SAMPLES
        return (sum(self.used) + prior * self.weights.mean) / (len(self.used) + prior)

    @property
    def _level(self) -> float:
        latest = self.used[-3:]
        return math.log1p(sum(latest) / len(latest))

    @property
    def _size(self) -> float:
        return max(self._mean, math.exp(self._level))

    def _charge(self, amount: float, in_force: list[float], newer: list[float]) -> None:
        price = kernel.PRICE * self.price_factor * max(self._mean, amount)

        def cost(reserved: float) -> float:
            return reserved + (price if amount > reserved * self.weights.tolerance else 0.0)

        costs = [
            cost(had) + (self.weights.resize * then if then != had and not math.isnan(then) else 0.0)
            for had, then in zip(in_force[:EXPERTS], newer[:EXPERTS], strict=True)
        ]
        known = [one for one in costs if not math.isnan(one)]
        for expert, one in enumerate(costs):
            charged = cost(in_force[REQUEST]) if math.isnan(one) else one
            self.record[expert] = kernel.DISCOUNT * self.record[expert] + (0.0 if math.isnan(charged) else charged)
            if not math.isnan(one):
                self.losses[expert] += one
                self.charged[expert] += sum(known) / len(known)

    def _ask(self, expert: int, least: float, wanted: float) -> None:
        held = self.asked[expert]
        if math.isnan(held) or math.isnan(wanted):
            self.asked[expert] = wanted
        elif held < least or (held * (1.0 - kernel.BAND) > wanted and self.budget[expert] >= 1.0):
            self.asked[expert], self.budget[expert] = wanted, max(self.budget[expert] - 1.0, -kernel.MAX_DEBT)

    def _ask_graph(self) -> None:
        held, price = self.asked[GRAPH], max(kernel.LEAST_PRICE, kernel.PRICE * self.price_factor) * self._size
        wanted = self.graph(held, self._level, price)
        if math.isnan(held):
            self.asked[GRAPH] = wanted
        elif wanted > held or (wanted < held and self.budget[GRAPH] >= 1.0):
            self.asked[GRAPH], self.budget[GRAPH] = wanted, max(self.budget[GRAPH] - 1.0, -kernel.MAX_DEBT)
