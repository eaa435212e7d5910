"""`phasewise explain`: the phases, forecast and reasons behind the recommendation of one VPA."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console

from recommender import __version__
from recommender.base.errors import BadInput, Misuse
from recommender.base.records import CPU, MEMORY
from recommender.base.units import format_time, parse_rfc3339_s
from recommender.cli.common import FILE, MOMENT
from recommender.cli.connection import connection_options
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import NotFound
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.profiles import MOVE, PROFILES
from recommender.cluster.vpas.status import LOW_CONFIDENCE
from recommender.engine.engine import Engine
from recommender.engine.keys import Group
from recommender.engine.replaying import Replay
from recommender.live.writing.profile import container_entry
from recommender.report.profile_words import render_profile

Json = dict[str, Any]


@click.command(name="explain")
@click.argument("vpa", metavar="NAMESPACE/VPA")
@click.option("--json", "as_json", is_flag=True, help="Print the status of the PhaseProfile and of the VPA as JSON.")
@connection_options
@click.option("--record", type=FILE, help="Read this record of `recommender --record` instead.")
@click.option("--at", "at_s", type=MOMENT, help="Time within the record.  [default: its end]")
def command(vpa: str, as_json: bool, connect: Callable[..., Api], record: Path | None, at_s: float | None) -> None:
    """Show the phases and the forecast of a VPA's containers, and the reasons for the target.

    \b
      phasewise explain ml/resnet-training
      phasewise explain ml/resnet-training --record hour.rec --at 2026-05-01T12:00Z
    """
    namespace, slash, name = vpa.partition("/")
    if not (namespace and slash and name):
        raise Misuse(f"{vpa!r} is not NAMESPACE/VPA. Write for example ml/resnet-training.")
    if record is not None:
        profile, status = _from_record(record, namespace, name, math.inf if at_s is None else at_s)
    elif at_s is not None:
        raise Misuse("--at needs a record: add --record FILE, written by `phasewise recommender --record`.")
    else:
        profile, status = _from_cluster(connect(user_agent=f"phasewise-explain/{__version__}"), namespace, name)
    if as_json:
        click.echo(orjson.dumps({"profile": profile, "vpa": status}, option=orjson.OPT_INDENT_2).decode())
    else:
        now_s = time.time() if record is None else parse_rfc3339_s(profile["updated"])
        Console().print(render_profile(vpa, profile, status, now_s))


def _from_cluster(api: Api, namespace: str, name: str) -> tuple[Json, Json]:
    """The status of the PhaseProfile, with the latest message about a move, and that of the VPA."""
    vpa = f"{namespace}/{name}"
    found = _object(api, path_of(VPAS, namespace, name), f"there is no VPA {vpa}")
    profile = _object(
        api,
        path_of(PROFILES, namespace, name),
        f"VPA {vpa} has no PhaseProfile: it names another recommender, or ours is not running",
    )
    status: Json = profile.get("status") or {}
    status.pop("state", None)  # internal to the recommender
    if move := (profile["metadata"].get("annotations") or {}).get(MOVE):
        status["move"] = move
    return status, found.get("status") or {}


def _from_record(file: Path, namespace: str, name: str, at_s: float) -> tuple[Json, Json]:
    """The same as of the last recorded step up to a time; BadInput if the VPA has no target there."""
    last_s, engine = math.nan, None
    for step in Replay(file).steps(at_s):
        last_s, engine = step.now_s, step.engine
    if engine is None:
        raise BadInput("it has no step in that period", remedy="Check --at.", file=file)
    groups = [group for group in engine.targets if (group.namespace, group.vpa) == (namespace, name)]
    if not groups:
        known = ", ".join(sorted({f"{group.namespace}/{group.vpa}" for group in engine.targets})) or "none"
        problem = f"at {format_time(last_s)} it has no target for VPA {namespace}/{name}"
        raise BadInput(problem, remedy=f"It has targets for: {known}.", file=file)
    return _profile(engine, groups, last_s), _vpa(engine, groups)


def _profile(engine: Engine, groups: list[Group], now_s: float) -> Json:
    members = [member for group in groups for member in engine.members_of(group)]
    doubts = {group.container: doubt for group in groups if (doubt := engine.targets[group].doubt)}
    return {
        "updated": format_time(now_s),
        "conditions": [
            {"type": LOW_CONFIDENCE, "status": "True", "message": f"{container}: {doubt}"}
            for container, doubt in doubts.items()
        ],
        "containers": [container_entry(group.container, engine.why(group), engine.fleet) for group in groups],
        "pods": [
            {
                "name": member.instance.pod_uid,
                "container": member.instance.container,
                "phase": int(engine.fleet.arrays.phase[member.slot]),
            }
            for member in members
        ],
    }


def _vpa(engine: Engine, groups: list[Group]) -> Json:
    """The targets of the step in the form of a VPA's status, before the limits of users and operators."""
    entries = []
    for group in groups:
        estimate = engine.targets[group].estimate
        bounds = {"lowerBound": estimate.lower, "target": estimate.target, "upperBound": estimate.upper}
        amounts = {bound: {"cpu": f"{of[CPU]:.3f}", "memory": f"{of[MEMORY]:.0f}"} for bound, of in bounds.items()}
        entries.append({"containerName": group.container, **amounts})
    return {"recommendation": {"containerRecommendations": entries}}


def _object(api: Api, path: str, absent: str) -> Json:
    try:
        return api.get(path)
    except NotFound as error:
        raise Misuse(f"{absent}. List them with `kubectl get vpa,phaseprofiles -A`.") from error
