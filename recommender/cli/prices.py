"""Options of all commands that count in money."""

from __future__ import annotations

from recommender.cli.common import FiniteRange
from recommender.cli.grouped import grouped
from recommender.report.summary import USUAL_PRICES

_option = grouped()

PRICE_OPTIONS = (
    _option(
        "--cpu-price cpu_core_hour",
        FiniteRange(0),
        f"Price per core-hour reserved. Default, if no price is given: {USUAL_PRICES.cpu_core_hour:g}.",
    ),
    _option(
        "--memory-price memory_gib_hour",
        FiniteRange(0),
        f"Price per GiB-hour reserved. Default, if no price is given: {USUAL_PRICES.memory_gib_hour:g}.",
    ),
)

HARM_OPTIONS = (
    _option(
        "--violation-price violation_hour",
        FiniteRange(0),
        "Price per container-hour in violation; deducted from savings.",
    ),
    _option(
        "--oom-price oom_event",
        FiniteRange(0),
        "Price per OOM kill besides the work that it loses; replaces the price of memory violations.",
    ),
)
