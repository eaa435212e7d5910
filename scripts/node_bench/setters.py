"""Who sets the requests in each row: processes beside the batch, and VPAs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from local_cluster import autoscaling
from local_cluster.cluster import Cluster
from local_cluster.processes import Server
from local_cluster.recommender import MANIFESTS, install, start_recommender
from local_cluster.vpa_objects import recommend

UPDATER_INTERVAL_S = 5.0
DEFAULT_INTERVAL_S = 10.0
OUR_OPTIONS, RESIZING = ("--interval", "5s", "--step", "5s", "--cycle", "1m"), "--resize-waiting"
"""Options of our recommender; the last one unless waiting pods are left as they are."""

SCRIPTED: Mapping[str, Mapping[str, str]] = {
    "import": {"cpu": "900m", "memory": "450Mi"},
    "load": {"cpu": "150m", "memory": "600Mi"},
    "preprocess": {"cpu": "900m", "memory": "1000Mi"},
    "train": {"cpu": "200m", "memory": "650Mi"},
    "evaluate": {"cpu": "900m", "memory": "750Mi"},
    "export": {"cpu": "600m", "memory": "750Mi"},
}
"""Requests by stage, as someone who knows the job might guess them."""

OnStage = Callable[[str, str], None]
"""Called with the name of a job and the stage that it begins."""


@dataclass(frozen=True)
class Row:
    """One row of the benchmark.

    `title`: Name in the table.
    `vpas`: Whether every Job has a VPA.
    `recommender`: Recommender that the VPAs name; None for the default one.
    `leaves_waiting`: Whether ours does not resize pods that wait for a node.
    """

    key: str
    title: str
    vpas: bool = True
    recommender: str | None = None
    leaves_waiting: bool = False


ROWS: Mapping[str, Row] = {
    row.key: row
    for row in (
        Row("static", "nobody (as declared)", vpas=False),
        Row("default", f"the default VPA (round every {DEFAULT_INTERVAL_S:g} s)"),
        Row("script", "a script, as each stage begins", recommender="script"),
        Row("unseen", "ours, class never seen", recommender="phasewise"),
        Row("ours", "ours, class seen", recommender="phasewise"),
    )
}
OUR_ROWS = frozenset({"unseen", "ours"})
LEARNING_ROW = Row("learning", "ours, while it learns the class", recommender="phasewise")
"""Not in the table: the jobs that ours learns from."""


def rows_named(keys: Collection[str], *, leaves_waiting: bool = False) -> list[Row]:
    """Rows by their keys, in the order of the table.

    `leaves_waiting`: whether our recommender does not resize pods that wait for a node.
    """
    rows = [row for row in ROWS.values() if row.key in keys]
    return [replace(row, leaves_waiting=leaves_waiting) if row.key in OUR_ROWS else row for row in rows]


@contextmanager
def setting_requests(cluster: Cluster, namespace: str, row: Row) -> Iterator[OnStage]:
    if not row.vpas:
        yield lambda job, stage: None
        return
    with ExitStack() as stack:
        updater = autoscaling.start_updater(cluster, interval_s=UPDATER_INTERVAL_S, **autoscaling.AS_UPSTREAM)
        stack.callback(updater.stop)
        if row.key == "script":
            yield _Script(cluster, namespace)
            return
        if row.key in OUR_ROWS:
            recommender = _start_ours(cluster, row)
        else:
            recommender = autoscaling.start_recommender(cluster, interval_s=DEFAULT_INTERVAL_S)
        stack.callback(recommender.stop)
        yield lambda job, stage: None


def _start_ours(cluster: Cluster, row: Row) -> Server:
    account = install(cluster)
    cluster.apply(MANIFESTS / "overlays" / "waiting" / "rights.yaml")
    return start_recommender(cluster, account, *OUR_OPTIONS, *(() if row.leaves_waiting else (RESIZING,)))


class _Script:
    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def __call__(self, job: str, stage: str) -> None:
        if guessed := SCRIPTED.get(stage):
            recommend(self._cluster, self._namespace, job, guessed)
