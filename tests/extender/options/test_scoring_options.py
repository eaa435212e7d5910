"""Every scoring option changes the decision on the same pod and nodes."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from extender.cli.options import scoring_options
from extender.settings import Settings
from tests.extender.options.every_scoring_option import scoring_command
from tests.worlds.placement import RESTLESS, World, class_json, node_json, pod_json


def settings(*arguments: str) -> Settings:
    """The settings that these options make."""
    parsed: list[Settings] = []

    @click.command()
    @scoring_options
    def command(settings: Settings) -> None:
        parsed.append(settings)

    command.main(list(arguments), standalone_mode=False)
    return parsed[0]


LATE = [1.0] * 16 + [7.0] * 8
"""Use in cells of 150 s: little for forty minutes, then much."""


def weights(*options: str) -> object:
    world = World(settings(*options), node_json("a"), node_json("b", labels={"data.phasewise.dev/imagenet": "1"}))
    world.put(pod_json("there", node="b", cpu="4", memory="16Gi"))
    return world.place(pod_json("reads", annotations={"phasewise.dev/data": "imagenet"}))


def schedulers(*options: str) -> object:
    world = World(settings(*options), node_json("a"), node_json("b"))
    return set(world.prioritize(pod_json("theirs", scheduler="mine")).values()) == {5}


def horizon_s(*options: str) -> object:
    world = World(settings(*options), node_json("a"), node_json("b"), class_json("late", LATE, [1.0] * 24))
    world.put(pod_json("late", node="a", workload="late"), pod_json("there", node="b", cpu="3"))
    return world.place(pod_json("new", cpu="4"))


def cycle_s(*options: str) -> object:
    limited = settings("--cpu-overload", "0.01", *options)
    world = World(limited, node_json("a"), class_json("late", LATE, [1.0] * 24))
    return world.put(pod_json("late", node="a", workload="late")).filter(pod_json("new", cpu="4"))


def memory_limit(*options: str) -> object:
    world = World(settings(*options), node_json("a"), class_json("eater", [1.0], [30.0]))
    return world.put(pod_json("eats", node="a", workload="eater")).filter(pod_json("new", memory="8Gi"))


def _restless(*options: str) -> World:
    world = World(settings(*options), node_json("a", cpu="5"), class_json("restless", RESTLESS, [1.0] * 120))
    return world.put(pod_json("there", node="a", workload="restless"))


def cpu_overload(*options: str) -> object:
    return _restless(*options).filter(pod_json("another", workload="restless"))


def patience_s(*options: str) -> object:
    world, pod = _restless(*options, "--cpu-overload", "0.01"), pod_json("another", workload="restless")
    world.put(pod)
    world.filter(pod)
    world.clock.now_s += 3600.0
    return world.filter(pod)


def hold_s(*options: str) -> object:
    world = World(settings(*options), node_json("a"))
    world.place(pod_json("advised"))
    world.clock.now_s += 60.0
    world.state.snapshot()
    return world.state.advised


def sizes_file(*options: str) -> object:
    world = World(settings(*options), node_json("a"), node_json("b"))
    world.put(pod_json("c", node="a", cpu="6", memory="2Gi"), pod_json("m", node="b", cpu="1", memory="14Gi"))
    return world.place(pod_json("sized", cpu=None, memory=None, annotations={"phasewise.dev/size": "1-wide"}))


SIZES = {"1-wide": {"cpu": "1", "memory": "20Gi"}}

CASES = {
    "weights": (weights, ("--weights", "data=1000"), ("--weights", "data=0")),
    "schedulers": (schedulers, ("--scheduler-name", "mine"), ()),
    "horizon_s": (horizon_s, ("--horizon", "10m"), ()),
    "cycle_s": (cycle_s, ("--cycle", "1h"), ()),
    "memory_limit": (memory_limit, ("--memory-limit", "0"), ()),
    "cpu_overload": (cpu_overload, ("--cpu-overload", "0.01"), ()),
    "patience_s": (patience_s, ("--patience", "1h"), ()),
    "hold_s": (hold_s, ("--hold", "2m"), ()),
    "sizes_file": (sizes_file, ("--sizes", "SIZES"), ()),
}
"""Option -> what is decided, and two sets of options that must lead to different decisions."""


NAMES = [option.opts[0] for option in scoring_command.params]


@pytest.mark.option("phasewise extender serve", *NAMES)
@pytest.mark.option("phasewise extender explain", *NAMES)
@pytest.mark.parametrize("option", CASES)
def test_another_value_of_the_option_changes_the_decision(option: str, tmp_path: Path) -> None:
    decide, *option_sets = CASES[option]
    table = tmp_path / "sizes.json"
    table.write_text(json.dumps(SIZES))
    one, other = (decide(*(str(table) if word == "SIZES" else word for word in options)) for options in option_sets)
    assert one != other
