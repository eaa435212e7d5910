"""`phasewise explain`: what the recommender sees of one VPA, and why it says what it says."""

from __future__ import annotations

from pathlib import Path

import click
import orjson
from rich.console import Console

from recommender import __version__
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.errors import NotFound
from recommender.cluster.paths import VPAS, path_of
from recommender.cluster.profiles import PROFILES
from recommender.errors import Misuse
from recommender.report.profile_words import told


@click.command(name="explain")
@click.argument("vpa", metavar="NAMESPACE/VPA")
@click.option("--json", "as_json", is_flag=True, help="For programs: the status of the PhaseProfile and of the VPA.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="[default: KUBECONFIG, ~/.kube/config]")
@click.option("--context", help="Context of the kubeconfig.  [default: its current one]")
def command(vpa: str, as_json: bool, kubeconfig: Path | None, context: str | None) -> None:
    """Tell what the recommender sees of a VPA, what it expects, and why the target is what it is.

    Example: phasewise explain ml/resnet-training
    """
    namespace, slash, name = vpa.partition("/")
    if not (namespace and slash and name):
        raise Misuse(f"{vpa!r} is not NAMESPACE/VPA. Write for example ml/resnet-training.")
    api = connect(kubeconfig, context, user_agent=f"phasewise-explain/{__version__}")
    found = _status(api, path_of(VPAS, namespace, name), f"there is no VPA {vpa}")
    profile = _status(
        api,
        path_of(PROFILES, namespace, name),
        f"VPA {vpa} has no PhaseProfile: it names another recommender, or ours is not running",
    )
    profile.pop("state", None)  # what the recommender keeps for itself
    if as_json:
        click.echo(orjson.dumps({"profile": profile, "vpa": found}, option=orjson.OPT_INDENT_2).decode())
    else:
        Console().print(told(vpa, profile, found))


def _status(api: Api, path: str, absent: str) -> dict[str, object]:
    try:
        status: dict[str, object] = api.get(path).get("status") or {}
    except NotFound as error:
        raise Misuse(f"{absent}. Look with `kubectl get vpa,phaseprofiles -A`.") from error
    return status
