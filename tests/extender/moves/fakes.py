"""A fake API server with Jobs, a ledger and evictions that can kill the controller at a write; and a fake reflector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from extender.pods.reservations import CONFIG_MAP, read_reservations
from recommender.cluster.errors import ApiError, Conflict

Json = dict[str, Any]


class FakeReflector:
    """A watch that shows the objects as they are, or, while `behind`, as last read."""

    synced, problem = True, ""
    broken: Mapping[str, str] = {}

    def __init__(self, parse: Callable[[Mapping[str, Any]], Any], *objects: Json) -> None:
        self._parse, self.behind = parse, False
        self.objects = {each["metadata"]["name"]: each for each in objects}
        self._last_read, self._reads = self._read(), 0

    def _read(self) -> dict[str, Any]:
        return {name: self._parse(each) for name, each in self.objects.items()}

    def snapshot(self) -> Mapping[str, Any]:
        if not self.behind:
            self._last_read = self._read()
        return self._last_read

    @property
    def version(self) -> int:
        """A new one at every read, so that nothing is cached."""
        self._reads += 1
        return self._reads


class FakeApi:
    """Logs writes by kind (reserve, jobs, evict, events, phaseprofiles), and fails those in `fails`."""

    def __init__(self) -> None:
        self.ledger: Mapping[str, Any] = {"metadata": {"name": CONFIG_MAP, "resourceVersion": "1"}}
        self.jobs: FakeReflector | None = None
        self.evicted: list[str] = []
        self.events: list[Mapping[str, Any]] = []
        self.patched: list[tuple[str, Mapping[str, Any]]] = []
        self.fails: dict[str, list[ApiError]] = {}
        self.writes_left = 1 << 20
        self.log: list[str] = []

    def _record_write(self, kind: str) -> None:
        """Log a write; `Killed` once no `writes_left`."""
        if self.writes_left == 0:
            raise Killed
        self.writes_left -= 1
        if failures := self.fails.get(kind):
            raise failures.pop(0)
        self.log.append(kind)

    def get(self, path: str) -> Mapping[str, Any]:
        assert path.endswith(CONFIG_MAP)
        return self.ledger

    def replace(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self._record_write("reserve")
        version = self.ledger["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise Conflict("another wrote meanwhile")
        self.ledger = {**body, "metadata": {**body["metadata"], "resourceVersion": version + "1"}}
        return self.ledger

    def patch(self, path: str, body: Mapping[str, Any], *, metadata_only: bool = False) -> Json:
        kind, name = path.split("/")[-2:]
        self._record_write(kind)
        self.patched.append((f"{kind}/{name}", body))
        if kind != "jobs":
            return {}
        assert self.jobs is not None
        job = self.jobs.objects[name]
        if body["metadata"]["resourceVersion"] != job["metadata"]["resourceVersion"]:
            raise Conflict("it changed meanwhile")
        version = str(int(job["metadata"]["resourceVersion"]) + 1)
        annotations = {**job["metadata"].get("annotations", {}), **body["metadata"]["annotations"]}
        changed = {**job, "metadata": {**job["metadata"], "annotations": annotations, "resourceVersion": version}}
        self.jobs.objects[name] = changed
        return changed

    def evict(self, pod: str, uid: str) -> None:
        self._record_write("evict")
        name = pod.rpartition("/")[2]
        assert uid == f"uid-{name}"
        self.evicted.append(name)

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        assert path == "/api/v1/namespaces/team/events"
        self._record_write("events")
        self.events.append(body)

    @property
    def reserved(self) -> Mapping[str, str]:
        """Pod UID -> node, as in the ledger."""
        return {uid: node for each in read_reservations(self.ledger) for uid, node in each.nodes.items()}


class Killed(BaseException):
    """The controller was killed before this write."""
