"""The recorded last hour of each container, and charts of it together with the forecast."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from extender.dashboard.job import AMOUNTS, Running
from recommender.base.records import CPU, UNKNOWN_PHASE, ContainerKey, FloatArray
from recommender.base.units import format_cpu, format_memory, parse_rfc3339_s
from recommender.report.profile_words import phase_words

ROW_LENGTH = 2 * len(AMOUNTS) + 6
PHASE, KILLED, DEFERRED, VALUE, REVERTED, SAVED = range(2 * len(AMOUNTS), ROW_LENGTH)


class History:
    """Ring buffers of float32 with a common position. Thread-safe: pages read while a sample is recorded.

    A container is dropped once it has been gone for a whole turn, or for as long as it was there: one that is recreated
    under its name keeps its past, and thousands of short pods do not add up.
    """

    def __init__(self, length: int = 240) -> None:  # an hour at 15 s: 13 kB per container
        self._moments = np.full(length, np.nan)
        self._rings: dict[ContainerKey, tuple[FloatArray, int, int]] = {}
        self._turn = 0
        self._lock = threading.Lock()

    def add(self, now_s: float, running: Iterable[Running]) -> None:
        with self._lock:
            self._add(now_s, running)
            self._forget()
            self._turn += 1

    def _add(self, now_s: float, running: Iterable[Running]) -> None:
        column = self._turn % len(self._moments)
        self._moments[column] = now_s
        for one in running:
            ring, first, _ = self._rings.get(one.key, (None, self._turn, 0))
            if ring is None:
                ring = np.full((len(self._moments), ROW_LENGTH), np.nan, dtype=np.float32)
            pairs = (one.use, one.request, one.limit, one.target)
            ring[column] = [
                *(amount for pair in pairs for amount in pair), one.phase, one.killed_s - now_s,
                bool(one.deferred), one.value, one.reverted, one.saved_s - now_s,
            ]  # fmt: skip
            self._rings[one.key] = ring, first, self._turn

    def of(self, key: ContainerKey) -> tuple[FloatArray, FloatArray]:
        """(n,) unix seconds, the oldest first, and (n, `ROW_LENGTH`): CPU and memory of each of `AMOUNTS`, phase, last
        OOM kill, deferred resize, training value, reverted resize, last checkpoint; times relative to the sample."""
        with self._lock:
            if key not in self._rings:
                return np.empty(0), np.empty((0, ROW_LENGTH))
            order = (np.arange(len(self._moments)) + self._turn) % len(self._moments)
            moments, rows = self._moments[order], self._rings[key][0][order].astype(float)
        kept = np.isfinite(moments) & np.isfinite(rows[:, PHASE])
        return moments[kept], rows[kept]

    def saved_before(self, key: ContainerKey, moment_s: float) -> float:
        """Time of the last checkpoint before a time; minus infinity if none was seen."""
        moments, rows = self.of(key)
        saved_s = moments + rows[:, SAVED]
        return float(saved_s[saved_s <= moment_s].max(initial=-np.inf))

    def _forget(self) -> None:
        for key, (ring, first, last) in [*self._rings.items()]:
            if self._turn - last >= min(len(self._moments), 1 + last - first):
                del self._rings[key]
            elif last != self._turn:
                ring[self._turn % len(self._moments)] = np.nan


WIDTH, HEIGHT, TOP, BOTTOM, LEFT = 900.0, 200.0, 26.0, 20.0, 62.0
FUTURE_SHARE = 0.25  # share of the width for the forecast
MIN_SPAN_S = 120.0


@dataclass(frozen=True, slots=True)
class Ribbon:
    """A period of one phase with a label; `ahead` if it is forecast."""

    x: float
    width: float
    phase: int
    words: str
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An event: `kind` is `asked`, `applied`, `deferred`, `reverted`, `saved` or `killed`."""

    x: float
    kind: str
    words: str


@dataclass(slots=True)
class Drawing:
    """A chart, in units of an SVG of `WIDTH` by `HEIGHT`; `lines` maps names to SVG paths."""

    title: str
    lines: dict[str, str] = field(default_factory=dict)
    ribbons: list[Ribbon] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    ticks: list[tuple[float, str]] = field(default_factory=list)
    hours: list[tuple[float, str]] = field(default_factory=list)
    now_x: float = 0.0
    forecast: tuple[float, float, float] | None = None  # x, width and y of that for the coming cycle


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps times and amounts to coordinates: the past is left of now, `low` at the bottom and `high` at the top."""

    now_s: float
    span_s: float
    low: float
    high: float

    @classmethod
    def of(cls, moments: FloatArray, now_s: float, low: float, high: float) -> Scale:
        span_s = now_s - float(moments[0]) if len(moments) else 0.0
        return cls(now_s, max(MIN_SPAN_S, span_s), low, high if high > low else low + max(1.0, abs(low) / 1e6))

    @property
    def future_s(self) -> float:
        """How far the chart extends into the future."""
        return self.span_s * FUTURE_SHARE / (1.0 - FUTURE_SHARE)

    def x(self, moment_s: float) -> float:
        past = (WIDTH - LEFT) * (1.0 - FUTURE_SHARE)
        return round(LEFT + past * (1.0 + (moment_s - self.now_s) / self.span_s), 1)

    def y(self, amount: float) -> float:
        share = (amount - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share, 1)

    def empty(self, title: str, words: Callable[[float], str]) -> Drawing:
        ticks = [self.low + share * (self.high - self.low) for share in (0.0, 0.5, 1.0)]
        return Drawing(
            title,
            ticks=[(self.y(amount), words(amount)) for amount in ticks],
            hours=[
                (self.x(self.now_s - ago_s), f"{ago_s / 60:.0f} min ago") for ago_s in (self.span_s, self.span_s / 2.0)
            ],
            now_x=self.x(self.now_s),
        )


def draw(
    resource: int, moments: FloatArray, rows: FloatArray, entry: Mapping[str, Any], now_s: float, age_s: float
) -> Drawing:
    """The chart of CPU or memory of one container; without the demand of its class if its age is unknown (NaN)."""
    why = entry.get("why") or {}
    forecast = why.get("forecastCpuCores" if resource == CPU else "forecastMemoryBytes")
    future_s = Scale.of(moments, now_s, 0.0, 1.0).future_s
    demand = list(_demand(resource, entry, age_s, future_s))
    series = {what: rows[:, 2 * place + resource] for place, what in enumerate(AMOUNTS)}
    known = np.concatenate([*series.values(), [forecast or 0.0], [amount for _, amount in demand]])
    scale = Scale.of(moments, now_s, 0.0, 1.1 * float(np.nanmax(known, initial=0.0)))
    made = scale.empty(*(("CPU", format_cpu) if resource == CPU else ("memory", format_memory)))
    for what, amounts in series.items():
        if path := _path(moments, amounts, scale, stepped=what != "use"):
            made.lines[what] = path
    if demand:
        points = (f"{scale.x(now_s + after_s)},{scale.y(amount)}" for after_s, amount in demand)
        made.lines["demand"] = "M" + "L".join(points)
    if isinstance(forecast, int | float) and math.isfinite(forecast):
        made.forecast = made.now_x, WIDTH - made.now_x, scale.y(forecast)
    made.ribbons = [*_past(moments, rows[:, PHASE], scale.x, now_s), *_coming(entry, scale.x, now_s, now_s + future_s)]
    made.marks = list(_marks(moments, rows, resource, scale.x))
    return made


def draw_progress(metric: str, moments: FloatArray, rows: FloatArray, now_s: float) -> Drawing | None:
    """The chart of the training metric in the last hour; None without values."""
    values = rows[:, VALUE]
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    scale = Scale.of(moments, now_s, float(finite.min()), float(finite.max()))
    made = scale.empty(metric, "{:.3g}".format)
    made.lines["use"] = _path(moments, values, scale, stepped=True)
    return made


def _path(moments: FloatArray, amounts: FloatArray, scale: Scale, *, stepped: bool) -> str:
    """An SVG path, interrupted where values are missing."""
    parts, before = [], math.nan
    for moment_s, amount in zip(moments.tolist(), amounts.tolist(), strict=True):
        if math.isfinite(amount):
            if not math.isfinite(before):
                parts.append(f"M{scale.x(moment_s)},{scale.y(amount)}")
            elif stepped:
                parts.append(f"H{scale.x(moment_s)}V{scale.y(amount)}" if amount != before else f"H{scale.x(moment_s)}")
            else:
                parts.append(f"L{scale.x(moment_s)},{scale.y(amount)}")
        before = amount
    return "".join(parts)


def _past(moments: FloatArray, phases: FloatArray, x: Any, now_s: float) -> Iterator[Ribbon]:
    begins = np.flatnonzero(np.diff(phases, prepend=np.nan) != 0.0)
    ends = [*moments[begins[1:]], now_s]
    for first, end_s in zip(begins, ends, strict=False):  # a gap adds an end without a beginning
        phase = int(phases[first])
        if phase != UNKNOWN_PHASE:
            left, right = x(moments[first]), x(end_s)
            yield Ribbon(left, round(right - left, 1), phase, f"phase {phase}")


def _coming(entry: Mapping[str, Any], x: Any, now_s: float, until_s: float) -> Iterator[Ribbon]:
    """The most probable next phase, from its expected start."""
    for following in (entry.get("next") or ())[:1]:
        try:
            at_s = max(now_s, parse_rfc3339_s(str(following["at"])))
            phase, chance = int(following["phase"]), float(following["probability"])
        except (KeyError, ValueError, TypeError):
            return
        if at_s < until_s:
            yield Ribbon(
                x(at_s), round(WIDTH - x(at_s), 1), phase, f"{phase_words(following)} ({chance:.0%})", ahead=True
            )


def _demand(resource: int, entry: Mapping[str, Any], age_s: float, future_s: float) -> Iterator[tuple[float, float]]:
    """Use of earlier runs of its class from this age on: (seconds from now, amount)."""
    demand = entry.get("demand") or {}
    step_s = float(demand.get("stepSeconds") or 0.0)
    if not (step_s > 0.0 and age_s >= 0.0):
        return
    amounts = demand.get("cpuCores" if resource == CPU else "memoryBytes") or ()
    for cell in range(int(age_s / step_s), min(len(amounts), int((age_s + future_s) / step_s) + 1)):
        yield max(0.0, cell * step_s - age_s), float(amounts[cell])


def _marks(moments: FloatArray, rows: FloatArray, resource: int, x: Any) -> Iterator[Mark]:
    words = format_cpu if resource == CPU else format_memory
    for kind, what in (("asked", "target"), ("applied", "request")):
        amounts = rows[:, 2 * AMOUNTS.index(what) + resource]
        for at in np.flatnonzero(amounts[1:] != amounts[:-1]) + 1:
            if np.isfinite(amounts[at - 1 : at + 1]).all():
                yield Mark(x(moments[at]), kind, f"{kind} {words(amounts[at])}, {words(amounts[at - 1])} before")
    for kind, column, what in (
        ("deferred", DEFERRED, "a resize waits"),
        ("reverted", REVERTED, "a resize is taken back: its node has no room"),
    ):
        lasts = rows[:, column] > 0.0
        for at in np.flatnonzero(lasts & ~np.append(False, lasts[:-1])):
            yield Mark(x(moments[at]), kind, what)
    for kind, column, what in (("saved", SAVED, "a checkpoint is saved"), ("killed", KILLED, "killed for memory")):
        at_s = moments + rows[:, column]
        for moment_s in sorted({round(float(one)) for one in at_s[np.isfinite(at_s)]}):
            if moment_s >= moments[0]:
                yield Mark(x(moment_s), kind, what)
