"""An API server that is played: Jobs with versions, the ledger with one, evictions; and it may die at any write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from extender.pods.reservations import CONFIG_MAP, read_reservations
from recommender.cluster.errors import ApiError, Conflict

Json = dict[str, Any]


class Shown:
    """A watch that shows objects as they were last put; `at_once` shows what is written without delay."""

    synced, problem = True, ""
    broken: Mapping[str, str] = {}

    def __init__(self, parse: Callable[[Mapping[str, Any]], Any], *objects: Json) -> None:
        self._parse, self.behind = parse, False
        self.objects = {each["metadata"]["name"]: each for each in objects}
        self._seen, self._looks = self._read(), 0

    def _read(self) -> dict[str, Any]:
        return {name: self._parse(each) for name, each in self.objects.items()}

    def snapshot(self) -> Mapping[str, Any]:
        if not self.behind:
            self._seen = self._read()
        return self._seen

    @property
    def version(self) -> int:
        """Another one at each look: whoever keeps something by it looks again."""
        self._looks += 1
        return self._looks


class PlayedApi:
    """Fails where it was told to, by the first word of what is written: reserve, jobs, evict, events, phaseprofiles."""

    def __init__(self) -> None:
        self.ledger: Mapping[str, Any] = {"metadata": {"name": CONFIG_MAP, "resourceVersion": "1"}}
        self.jobs: Shown | None = None
        self.evicted: list[str] = []
        self.events: list[Mapping[str, Any]] = []
        self.patched: list[tuple[str, Mapping[str, Any]]] = []
        self.fails: dict[str, list[ApiError]] = {}
        self.writes_left = 1 << 20
        self.log: list[str] = []

    def _written(self, what: str) -> None:
        """One write; `Died` once there were as many as it lives for."""
        if self.writes_left == 0:
            raise Died
        self.writes_left -= 1
        if failures := self.fails.get(what):
            raise failures.pop(0)
        self.log.append(what)

    def get(self, path: str) -> Mapping[str, Any]:
        assert path.endswith(CONFIG_MAP)
        return self.ledger

    def replace(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self._written("reserve")
        was = self.ledger["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != was:
            raise Conflict("another wrote meanwhile")
        self.ledger = {**body, "metadata": {**body["metadata"], "resourceVersion": was + "1"}}
        return self.ledger

    def patch(self, path: str, body: Mapping[str, Any], *, metadata_only: bool = False) -> Json:
        kind, name = path.split("/")[-2:]
        self._written(kind)
        self.patched.append((f"{kind}/{name}", body))
        if kind != "jobs":
            return {}
        assert self.jobs is not None
        job = self.jobs.objects[name]
        if body["metadata"]["resourceVersion"] != job["metadata"]["resourceVersion"]:
            raise Conflict("it changed meanwhile")
        version = str(int(job["metadata"]["resourceVersion"]) + 1)
        annotations = {**job["metadata"].get("annotations", {}), **body["metadata"]["annotations"]}
        made = {**job, "metadata": {**job["metadata"], "annotations": annotations, "resourceVersion": version}}
        self.jobs.objects[name] = made
        return made

    def evict(self, pod: str, uid: str) -> None:
        self._written("evict")
        name = pod.rpartition("/")[2]
        assert uid == f"uid-{name}"
        self.evicted.append(name)

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        assert path == "/api/v1/namespaces/team/events"
        self._written("events")
        self.events.append(body)

    @property
    def reserved(self) -> Mapping[str, str]:
        """Pod UID -> node, as it stands in the ledger."""
        return {uid: node for each in read_reservations(self.ledger) for uid, node in each.nodes.items()}


class Died(BaseException):
    """The controller was killed before this write."""
