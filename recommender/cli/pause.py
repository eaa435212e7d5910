"""`phasewise pause`, `undo` and `resume`: who operates a cluster stops what the recommender does, and takes it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from recommender import __version__
from recommender.base.errors import Misuse
from recommender.base.units import counted
from recommender.cli.common import say
from recommender.cli.connection import connection_options
from recommender.cluster.access.connection import Api
from recommender.cluster.objects.vpa import DECLARED, KEEP, PAUSE
from recommender.cluster.paths import VPAS, path_of

Command = Callable[..., None]


def _options(command: Command) -> Command:
    for option in (
        connection_options,
        click.option("--recommender-name", default="phasewise", show_default=True, help="VPAs that name this one."),
        click.option("-A", "--all-namespaces", is_flag=True, help="All VPAs of the cluster that name it."),
        click.argument("where", nargs=-1, metavar="[NAMESPACE[/VPA]]..."),
    ):
        command = option(command)
    return command


@click.command("pause")
@_options
def pause(**options: Any) -> None:
    """Leave VPAs as they are: what is published stays, and nothing new is, until `phasewise resume`.

    The recommender goes on learning, and shows in PhaseProfiles what it would do. VPAs get the annotation
    phasewise.dev/pause; later ones are not paused. It takes effect in the recommender's next round.

    \b
      phasewise pause ml/resnet-training
      phasewise pause ml            all VPAs of the namespace ml
      phasewise pause -A
    """
    _annotate(KEEP, "paused", **options)


@click.command("undo")
@_options
def undo(**options: Any) -> None:
    """Put back what the owners of pods declare, and pause.

    Where pods are resized in place, the VPA's updater resizes running ones back, with memory in use at least; elsewhere
    they keep what they have, and new ones get what is declared.

    \b
      phasewise undo ml/resnet-training
    """
    _annotate(DECLARED, "back to what is declared, and paused", **options)


@click.command("resume")
@_options
def resume(**options: Any) -> None:
    """Let the recommender go on with VPAs that were paused or undone."""
    _annotate(None, "resumed", **options)


def _annotate(
    value: str | None,
    done: str,
    where: tuple[str, ...],
    all_namespaces: bool,
    recommender_name: str,
    connect: Callable[..., Api],
) -> None:
    if bool(where) == all_namespaces:
        raise Misuse("name VPAs as NAMESPACE/VPA or NAMESPACE, or all of the cluster by -A.")
    api = connect(user_agent=f"phasewise/{__version__}")
    chosen = [place.partition("/")[::2] for place in where] or [("", "")]
    changed = 0
    for namespace, name in chosen:
        for found_in, vpa in [(namespace, name)] if name else _names(api, namespace, recommender_name):
            api.patch(path_of(VPAS, found_in, vpa), {"metadata": {"annotations": {PAUSE: value}}}, metadata_only=True)
            say(f"{found_in}/{vpa}: {done}")
            changed += 1
    if not changed:
        raise Misuse(f"no VPA there names the recommender {recommender_name!r}. See `kubectl get vpa -A`.")
    say(f"{counted(changed, 'VPA')}: {done}; the recommender follows in its next round")


def _names(api: Api, namespace: str, recommender_name: str) -> list[tuple[str, str]]:
    """Namespace and name of the VPAs of a namespace, or of all, that name this recommender."""
    return [
        (vpa["metadata"]["namespace"], vpa["metadata"]["name"])
        for page in api.list_pages(path_of(VPAS, namespace or None))
        for vpa in page["items"]
        if recommender_name in [one.get("name") for one in (vpa.get("spec") or {}).get("recommenders") or ()]
    ]
