"""Who sets the requests in each row of the bench: what runs beside the batch, and what the Jobs' VPAs say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from local_cluster import autoscaling
from local_cluster.cluster import Cluster
from local_cluster.processes import Server
from local_cluster.recommender import MANIFESTS, install, start_recommender
from local_cluster.vpa_objects import recommend

UPDATER_EVERY_S = 5.0
DEFAULT_ROUND_EVERY_S = 10.0
OUR_OPTIONS, RESIZING = ("--interval", "5s", "--step", "5s", "--cycle", "1m"), "--resize-waiting"
"""What ours is started with, the last one unless pods that wait are left as they are."""

SCRIPTED: Mapping[str, Mapping[str, str]] = {
    "import": {"cpu": "900m", "memory": "450Mi"},
    "load": {"cpu": "150m", "memory": "600Mi"},
    "preprocess": {"cpu": "900m", "memory": "1000Mi"},
    "train": {"cpu": "200m", "memory": "650Mi"},
    "evaluate": {"cpu": "900m", "memory": "750Mi"},
    "export": {"cpu": "600m", "memory": "750Mi"},
}
"""What somebody who knows the job would guess that each stage needs."""

OnStage = Callable[[str, str], None]
"""Called with a job's name and the stage that it begins."""


@dataclass(frozen=True)
class Row:
    """One row of the bench.

    Attributes
    ----------
    title
        What stands in the table.
    vpas
        Whether every Job has a VPA.
    recommender
        The recommender that the VPAs name; None for the default one.
    leaves_waiting
        Ours leaves pods as they are that have no node yet.
    """

    key: str
    title: str
    vpas: bool = True
    recommender: str | None = None
    leaves_waiting: bool = False


ROWS: Mapping[str, Row] = {
    row.key: row
    for row in (
        Row("static", "nobody (static, as declared)", vpas=False),
        Row("default", f"the default VPA (round every {DEFAULT_ROUND_EVERY_S:g} s)"),
        Row("script", "a script, at each stage's beginning", recommender="script"),
        Row("unseen", "ours, class never seen", recommender="phasewise"),
        Row("ours", "ours, class seen", recommender="phasewise"),
    )
}
OF_OURS = frozenset({"unseen", "ours"})
LESSONS = Row("lessons", "ours, while it learns the class", recommender="phasewise")
"""No row of the table: the jobs that ours sees before its own."""


def named(keys: str, *, leaves_waiting: bool = False) -> list[Row]:
    """The rows of a comma list of keys, in the order of the table.

    Parameters
    ----------
    leaves_waiting
        Let our recommender leave pods as they are that have no node yet.

    Raises
    ------
    ValueError
        There is no row of that name; the message says which there are.
    """
    chosen = keys.split(",")
    if unknown := [key for key in chosen if key not in ROWS]:
        raise ValueError(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    rows = [row for row in ROWS.values() if row.key in chosen]
    return [replace(row, leaves_waiting=leaves_waiting) if row.key in OF_OURS else row for row in rows]


@contextmanager
def setting_requests(cluster: Cluster, namespace: str, row: Row) -> Iterator[OnStage]:
    """Let the one whom the row is about set the requests; yields what wants to hear of the stages."""
    if not row.vpas:
        yield lambda job, stage: None
        return
    with ExitStack() as stack:
        updater = autoscaling.start_updater(cluster, interval_s=UPDATER_EVERY_S, **autoscaling.AS_UPSTREAM)
        stack.callback(updater.stop)
        if row.key == "script":
            yield _Script(cluster, namespace)
            return
        if row.key in OF_OURS:
            recommender = _start_ours(cluster, row)
        else:
            recommender = autoscaling.start_recommender(cluster, interval_s=DEFAULT_ROUND_EVERY_S)
        stack.callback(recommender.stop)
        yield lambda job, stage: None


def _start_ours(cluster: Cluster, row: Row) -> Server:
    """Ours, as the service account that the manifests give it."""
    account = install(cluster)
    cluster.apply(MANIFESTS / "overlays" / "waiting" / "rights.yaml")
    return start_recommender(cluster, account, *OUR_OPTIONS, *(() if row.leaves_waiting else (RESIZING,)))


class _Script:
    """Publishes what was guessed of a stage the moment it begins."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def __call__(self, job: str, stage: str) -> None:
        if guessed := SCRIPTED.get(stage):
            recommend(self._cluster, self._namespace, job, guessed)
