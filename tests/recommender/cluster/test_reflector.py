"""A reflector against a scripted server: every way in which a list or a watch can fail."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import Backoff
from recommender.cluster.errors import Forbidden, Gone, ReadTimeout, ServerFailed, Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.watching.reflector import Reflector
from tests.rig.waiting import wait_until

Step = Mapping[str, Any] | Exception


class ScriptedApi(Api):
    """Answers lists and watches from two scripts; after the last scripted watch it keeps one open."""

    def __init__(self, lists: list[list[Step]], watches: list[list[Step]]) -> None:
        self.lists, self.watches = lists, watches
        self.queries: list[Mapping[str, Any]] = []
        self.held = threading.Event()

    def list_pages(
        self, path: str, query: Any = None, *, page_size: int = 0, metadata_only: bool = False
    ) -> Iterator[dict[str, Any]]:
        for step in self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]:
            if isinstance(step, Exception):
                raise step
            yield dict(step)

    def watch_lines(self, path: str, query: Any = None, *, idle_timeout_s: float, metadata_only: bool = False) -> Any:
        self.queries.append(query)
        return ScriptedWatch(self)


class ScriptedWatch:
    def __init__(self, api: ScriptedApi) -> None:
        self.api = api
        self.last = not api.watches
        self.steps = [] if self.last else api.watches.pop(0)
        if self.steps and isinstance(self.steps[0], Forbidden):
            raise self.steps[0]

    def __enter__(self) -> ScriptedWatch:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            yield step
        if self.last:
            self.api.held.wait(10)

    def stop(self) -> None:
        self.api.held.set()


def thing(name: str, version: int, value: object = "v") -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": name, "resourceVersion": str(version)}, "value": value}


def page(version: int, *items: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}, "items": list(items)}


def event(kind: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": raw}


def value_of(raw: Any) -> Any:
    if raw["value"] == "broken":
        raise KeyError("value")
    return raw["value"]


Start = Callable[..., tuple[Reflector[Any], ScriptedApi]]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Reflector[Any]] = []

    def started(lists: list[list[Step]], watches: list[list[Step]], **options: Any) -> Any:
        api = ScriptedApi(lists, watches)
        options = {"min_backoff_s": 0.001, "max_backoff_s": 0.002} | options
        running.append(Reflector(api, "/things", value_of, **options).start())
        return running[-1], api

    yield started
    for reflector in running:
        reflector.stop()


def values(reflector: Reflector[Any]) -> dict[str, Any]:
    return {key.name: value for key, value in reflector.snapshot().items()}


def until(reflector: Reflector[Any], wanted: dict[str, Any]) -> None:
    wait_until(lambda: values(reflector) == wanted, f"{wanted}", timeout_s=5, every_s=0.005)


def test_a_watch_resumes_from_the_version_of_the_last_event_or_bookmark(start: Start) -> None:
    reflector, api = start(
        [[page(5, thing("a", 3))]],
        [
            [event("MODIFIED", thing("a", 6, "w")), Unreachable("reset")],
            [event("BOOKMARK", {"metadata": {"resourceVersion": "9"}}), Unreachable("reset")],
        ],
    )
    wait_until(lambda: len(api.queries) == 3, "three watches")
    assert [query["resourceVersion"] for query in api.queries] == ["5", "6", "9"]
    assert all(query["allowWatchBookmarks"] == "true" and query["timeoutSeconds"] >= 240 for query in api.queries)
    assert values(reflector) == {"a": "w"}
    assert reflector.lists == 1


@pytest.mark.parametrize(
    "failure",
    [
        event("ERROR", {"kind": "Status", "code": 410, "message": "too old"}),
        event("ERROR", {"kind": "Status", "code": 500, "message": "no leader"}),
        event("ERROR", {}),
        Gone("too old"),
        event("ADDED", {"no": "metadata"}),
        {"no": "type"},
    ],
)
def test_a_watch_that_cannot_resume_leads_to_a_new_list(start: Start, failure: Step) -> None:
    changes: list[Any] = []
    reflector, _ = start(
        [[page(5, thing("a", 3), thing("b", 4))], [page(9, thing("b", 8, "w")), page(9, thing("c", 9))]],
        [[failure]],
        on_change=lambda old, new: changes.append((old, new)),
    )
    until(reflector, {"b": "w", "c": "v"})
    assert reflector.lists == 2
    assert changes == [(None, "v"), (None, "v"), ("v", "w"), (None, "v"), ("v", None)]


def test_a_list_that_breaks_off_removes_no_object_and_is_repeated(start: Start) -> None:
    changes: list[Any] = []
    reflector, _ = start(
        [
            [page(5, thing("a", 3, "a"), thing("b", 4, "b"))],
            [page(9, thing("c", 8, "c")), Gone("the page is too old")],
            [page(10, thing("c", 8, "c")), ServerFailed("no leader")],
            [page(11, thing("a", 3, "a"), thing("c", 8, "c"))],
        ],
        [[Gone("too old")]],
        on_change=lambda old, new: changes.append((old, new)),
    )
    until(reflector, {"a": "a", "c": "c"})
    assert reflector.lists == 2
    assert changes == [(None, "a"), (None, "b"), (None, "c"), ("b", None)]


def test_without_the_right_to_watch_lists_are_repeated_and_the_reason_is_reported(start: Start) -> None:
    reflector, _ = start([[page(5, thing("a", 3))]], [[Forbidden("may not watch")] for _ in range(10_000)])
    wait_until(lambda: reflector.lists > 2, "lists")
    assert reflector.synced
    wait_until(lambda: reflector.problem == "may not watch", "the problem")


def test_a_server_that_ends_every_watch_at_once_is_reported_and_retried_with_backoff(start: Start) -> None:
    reflector, api = start([[page(5)]], [[] for _ in range(1000)], min_backoff_s=0.02, max_backoff_s=60.0)
    wait_until(lambda: len(api.queries) >= 4, "some watches")
    assert reflector._backoff.failures >= 3
    wait_until(lambda: reflector.problem.endswith("the server ended the watch at once"), "the problem")
    assert reflector.lists == 1


@pytest.mark.parametrize(("failure", "longest_s"), [(Unreachable("refused"), 5.0), (ServerFailed("no leader"), 30.0)])
def test_a_server_that_cannot_be_reached_is_tried_every_five_seconds_at_least(
    failure: Exception, longest_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it was away, what is shown is current soon after it has returned."""
    reflector = Reflector(ScriptedApi([[failure]], []), "/things", value_of)
    waits_s: list[float] = []

    def wait(wait_s: float) -> None:
        waits_s.append(wait_s)
        if len(waits_s) == 50:
            reflector._ended.set()

    monkeypatch.setattr(reflector._ended, "wait", wait)
    reflector._run()
    assert 0.5 * longest_s < max(waits_s) <= longest_s
    assert len(set(waits_s[20:])) > 1, "clients do not come all at once"


@pytest.mark.parametrize("failure", [Gone("too old"), event("ERROR", {"kind": "Status", "code": 410})])
def test_a_list_whose_version_expires_at_once_is_repeated_with_backoff(start: Start, failure: Step) -> None:
    reflector, _ = start([[page(5)]], [[failure] for _ in range(1000)], min_backoff_s=0.02, max_backoff_s=60.0)
    wait_until(lambda: reflector.lists >= 4, "some lists")
    assert reflector._backoff.failures >= 3
    assert reflector.synced


def test_an_idle_watch_is_reopened_without_a_problem(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    reflector, api = start([[page(5)]], [[ReadTimeout("nothing came")]])
    wait_until(lambda: len(api.queries) == 2, "the second watch")
    assert caplog.messages == []
    assert reflector.lists == 1


def test_broken_objects_are_reported_by_name_until_they_are_deleted(start: Start) -> None:
    reflector, _ = start(
        [[page(5, thing("a", 1), thing("b", 2, "broken"))]],
        [[event("MODIFIED", thing("a", 6, "broken")), event("DELETED", thing("b", 7)), event("ADDED", thing("c", 8))]],
    )
    until(reflector, {"c": "v"})
    assert reflector.broken == {ObjectKey("n", "a"): "KeyError while reading it"}


def test_a_broken_object_that_a_new_list_lacks_is_no_longer_reported(start: Start) -> None:
    expired = event("ERROR", {"code": 410})
    reflector, _ = start([[page(5, thing("b", 2, "broken"))], [page(9, thing("a", 8))]], [[expired]])
    until(reflector, {"a": "v"})
    wait_until(lambda: not reflector.broken, "nothing is broken", timeout_s=5, every_s=0.005)


def test_a_stop_while_a_watch_is_being_opened_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi([[page(5)]], [])
    reflector = Reflector[Any](api, "/things", value_of)

    def open_late(*_: object, **__: object) -> ScriptedWatch:
        stopping = threading.Thread(target=reflector.stop, args=(0.0,))
        stopping.start()
        stopping.join()
        return ScriptedWatch(api)

    monkeypatch.setattr(api, "watch_lines", open_late)
    reflector.start()
    wait_until(lambda: not reflector._thread.is_alive(), "the thread has ended", timeout_s=5, every_s=0.005)


def test_a_change_handler_that_raises_does_not_end_the_watch(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_old: object, _new: object) -> None:
        raise RuntimeError("the handler failed")

    reflector, _ = start([[page(5, thing("a", 1))]], [[event("ADDED", thing("b", 6))]], on_change=fail)
    until(reflector, {"a": "v", "b": "v"})
    assert "the handler failed" in caplog.text


def test_equal_objects_are_no_change_and_objects_parsed_to_none_are_left_out(start: Start) -> None:
    changes: list[Any] = []
    reflector, _ = start(
        [[page(5, thing("a", 1), thing("none", 2, None))]],
        [[event("MODIFIED", thing("a", 6)), event("MODIFIED", thing("none", 7, "now")), event("ADDED", thing("z", 8))]],
        on_change=lambda old, new: changes.append((old, new)),
    )
    until(reflector, {"a": "v", "none": "now", "z": "v"})
    assert changes == [(None, "v"), (None, "now"), (None, "v")]
    assert reflector.version == 3


def test_before_the_first_contact_a_reflector_is_infinitely_stale_and_not_synced(start: Start) -> None:
    reflector, _ = start([[Unreachable("refused")]], [])
    wait_until(lambda: reflector.problem == "refused", "the problem")
    assert reflector.staleness_s() == math.inf
    assert not reflector.synced
    assert not reflector.wait_synced(0.01)


def test_staleness_is_measured_on_the_given_clock(start: Start) -> None:
    now_s = [100.0]
    reflector, api = start([[page(5)]], [], clock=lambda: now_s[0])
    wait_until(lambda: api.queries, "the watch")
    wait_until(lambda: reflector._watch, "contact")
    wait_until(lambda: reflector.staleness_s() == 0.0, "contact")
    now_s[0] = 142.0
    assert reflector.staleness_s() == 42.0


def test_backoff_doubles_up_to_its_maximum_with_jitter() -> None:
    class FixedRandom:
        def uniform(self, low: float, high: float) -> float:
            assert (low, high) == (0.5, 1.0)
            return 0.75

    backoff = Backoff(1.0, 10.0, FixedRandom())  # type: ignore[arg-type]
    assert [backoff.next_s() for _ in range(6)] == [0.75, 1.5, 3.0, 6.0, 7.5, 7.5]
    backoff.reset()
    assert backoff.next_s() == 0.75
    backoff.failures = 10_000
    assert backoff.next_s() == 7.5
