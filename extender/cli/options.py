"""Options of filtering and scoring, shared by `serve` and `explain`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
import orjson

from extender.pods.curves import Grid
from extender.pods.footprint import FFDL, Sizes, checked_sizes
from extender.scoring.scorers import parse_weights
from extender.settings import DEFAULT_WEIGHTS, Limits, Settings
from recommender.base.errors import BadInput
from recommender.cli.common import DURATION, Command, FiniteRange
from recommender.cluster.errors import BadQuantity
from recommender.cluster.objects.quantities import parse_quantity

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FORECAST_CELLS = 24


def scoring_options(command: Command) -> Callable[..., Any]:
    @click.option("--weights", default="", help="Scorer weights: complement=3,specon=1; others keep their default.")
    @click.option("--scheduler-name", "schedulers", multiple=True, default=("phasewise",), help="Our schedulers.")
    @click.option("--horizon", "horizon_s", type=DURATION, default="1h", help="How far ahead load is forecast.")
    @click.option(
        "--cycle",
        "cycle_s",
        type=DURATION,
        default="10m",
        help="How far ahead --cpu-overload looks; and how far ahead, and for how long, memory counts that other "
        "namespaces use beyond what they declared.",
    )
    @click.option(
        "--memory-limit",
        type=FiniteRange(0, 100),
        default=1.0,
        help="Refuse nodes whose forecast memory exceeds this share of allocatable while the pod runs; 0: no limit.",
    )
    @click.option(
        "--cpu-overload",
        type=FiniteRange(0, 1),
        default=0.0,
        help="Refuse nodes where a pod is expected to add more overload (core-seconds above allocatable in the coming "
        "cycle) than this share of its own demand, such as 0.01; 0: no limit.",
    )
    @click.option(
        "--patience",
        "patience_s",
        type=DURATION,
        default="2h",
        help="Longest time that a pod waits for memory or --cpu-overload; the latter is relaxed gradually until then.",
    )
    @click.option(
        "--hold",
        "hold_s",
        type=DURATION,
        default="30s",
        help="How long advice counts for a pod that the watch has not shown.",
    )
    @click.option(
        "--sizes",
        "sizes_file",
        type=FILE,
        help='T-shirt sizes: {"2-V100": {"cpu": "42", "memory": "48Gi"}, ...}.  [default: those of FfDL]',
    )
    @wraps(command)
    def with_settings(
        *arguments: Any,
        weights: str,
        schedulers: tuple[str, ...],
        horizon_s: float,
        cycle_s: float,
        memory_limit: float,
        cpu_overload: float,
        patience_s: float,
        hold_s: float,
        sizes_file: Path | None,
        **options: Any,
    ) -> Any:
        settings = Settings(
            weights={**DEFAULT_WEIGHTS, **parse_weights(weights)},
            limits=Limits(memory_limit or None, cpu_overload or None, patience_s, cycle_s),
            grid=Grid(horizon_s / FORECAST_CELLS, FORECAST_CELLS),
            sizes=read_sizes(sizes_file) if sizes_file else FFDL,
            schedulers=frozenset(schedulers),
            hold_s=hold_s,
        )
        return command(*arguments, settings=settings, **options)

    return with_settings


def read_sizes(file: Path) -> Sizes:
    """T-shirt sizes from a JSON file; BadInput or Misuse if it is not such a table."""
    remedy = 'Write {"2-V100": {"cpu": "42", "memory": "48Gi"}}.'
    try:
        raw = orjson.loads(file.read_bytes())
        table = {name: (parse_quantity(need["cpu"]), parse_quantity(need["memory"])) for name, need in raw.items()}
    except (orjson.JSONDecodeError, BadQuantity, AttributeError, KeyError, TypeError) as error:
        raise BadInput(f"this is not a table of sizes: {str(error)[:120]}", remedy=remedy, file=file) from error
    return checked_sizes(table)
