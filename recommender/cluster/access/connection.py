"""Requests to an API server: plain JSON in and out, never faster than agreed, never without a limit of time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from recommender.cluster.access.answers import error_of_silence, error_of_status, parsed, parsed_if_json
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.access.watch_lines import WatchLines
from recommender.cluster.errors import ApiError, BadCredentials, Throttled, Unauthorized, Unreachable

if TYPE_CHECKING:
    from recommender.cluster.access.credentials import Credentials

Query = Mapping[str, str | int]
Observer = Callable[[str, int, float], None]
"""Told of each request: method, HTTP status (0 without an answer), seconds."""
Send = Callable[[float], urllib3.BaseHTTPResponse]
"""Sends a request, once, and waits for so many seconds."""

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
PAGE = 100
"""Objects a page of a list: a MB or two of pods, which take ten times as much while they are read."""

LONGEST_PATIENCE_S = 5.0
"""A server that is busy asks for a second; longer waits (a disruption budget's) are the caller's to decide."""

TRIES = 4

TRUSTING = "?fieldValidation=Ignore"
"""Else a server decodes each change twice to warn of unknown fields, and nobody would hear it."""

DRY_RUN = "?dryRun=All"

METADATA, METADATA_LIST = (
    f"application/json;as={kind};g=meta.k8s.io;v=v1,application/json"
    for kind in ("PartialObjectMetadata", "PartialObjectMetadataList")
)
"""To be told of objects no more than their metadata, where the server can do that."""

JSON, JSON_PATCH, MERGE_PATCH = "application/json", "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class Api:
    """An API server, for many threads at once. Every method raises an `ApiError`.

    Parameters
    ----------
    credentials
        Where it is and who we are.
    bucket
        The limit on our own requests; those we are told to repeat (429) count again.
    observe
        Called after each request.
    """

    def __init__(
        self,
        credentials: Credentials,
        bucket: TokenBucket,
        *,
        user_agent: str,
        observe: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._credentials, self._bucket = credentials, bucket
        self._user_agent, self._observe, self._clock = user_agent, observe, clock
        self._until_s = math.inf

    @property
    def server(self) -> str:
        """The server's address, for people."""
        return self._credentials.server

    def apart(self, bucket: TokenBucket) -> Api:
        """The same server with another limit: what must never wait behind a flood of writes (the lease)."""
        return Api(self._credentials, bucket, user_agent=self._user_agent, observe=self._observe, clock=self._clock)

    def hurry(self, until_s: float) -> None:
        """Ask as fast as the server lets us, and from a moment on our clock on nothing any more: the process ends."""
        self._until_s = until_s
        self._bucket.open_up()

    def get(self, path: str, query: Query | None = None, *, timeout_s: float = READ_TIMEOUT_S) -> dict[str, Any]:
        """One object, or a whole list."""
        return parsed(f"GET {path}", self._read(path, query, timeout_s=timeout_s).data)

    def text(self, path: str, query: Query | None = None, *, timeout_s: float = READ_TIMEOUT_S) -> str:
        """What is no object: a log."""
        return self._read(path, query, timeout_s=timeout_s).data.decode("utf-8", "replace")

    def list_pages(
        self, path: str, query: Query | None = None, *, page: int = PAGE, metadata_only: bool = False
    ) -> Iterator[dict[str, Any]]:
        """A list in pages, each as the server gives it; `Gone` when the list took too long to be finished."""
        further, accept = "", METADATA_LIST if metadata_only else JSON
        while True:
            asked = {**(query or {}), "limit": page, **({"continue": further} if further else {})}
            answer = parsed(f"GET {path}", self._read(path, asked, timeout_s=READ_TIMEOUT_S, accept=accept).data)
            yield answer
            further = (answer.get("metadata") or {}).get("continue") or ""
            if not further:
                return

    def watch_lines(
        self, path: str, query: Query | None = None, *, silent_s: float, metadata_only: bool = False
    ) -> WatchLines:
        """Open a watch; `Silent` is raised while reading it once nothing, not even a bookmark, came for so long."""
        asked = f"WATCH {path}"
        query, accept = {**(query or {}), "watch": 1}, METADATA if metadata_only else JSON
        response = self._read(path, query, timeout_s=silent_s, accept=accept, asked=asked, stream=True)
        return WatchLines(response, asked)

    def patch(
        self,
        path: str,
        body: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        *,
        timeout_s: float = READ_TIMEOUT_S,
        metadata_only: bool = False,
        strategic: bool = False,
    ) -> dict[str, Any]:
        """Change an object: a list is a JSON Patch, an object a JSON merge patch, or a strategic one, which knows the
        keys of lists. Returns the object, or some of it."""
        of_object = STRATEGIC_PATCH if strategic else MERGE_PATCH
        kind, accept = of_object if isinstance(body, Mapping) else JSON_PATCH, METADATA if metadata_only else JSON
        return self._write("PATCH", path, body, TRUSTING, content_type=kind, accept=accept, timeout_s=timeout_s)

    def create(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float = READ_TIMEOUT_S, dry_run: bool = False
    ) -> dict[str, Any]:
        """Make an object, or only see whether it would be made; `Conflict` when it is there."""
        return self._write("POST", path, body, DRY_RUN if dry_run else "", timeout_s=timeout_s)

    def evict(self, pod: str, uid: str) -> None:
        """Have a pod leave its node, the very one of this UID; `Throttled` when its disruption budget does not allow it
        now, which holds up nothing else that is asked for."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.rpartition("/")[2]},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        self._write("POST", f"{pod}/eviction", body, timeout_s=READ_TIMEOUT_S, patient=False)

    def replace(self, path: str, body: Mapping[str, Any], *, timeout_s: float = READ_TIMEOUT_S) -> dict[str, Any]:
        """Put an object in place of what is there; `Conflict` unless it holds the present resourceVersion."""
        return self._write("PUT", path, body, timeout_s=timeout_s)

    def delete(self, path: str, *, uid: str = "", timeout_s: float = READ_TIMEOUT_S) -> dict[str, Any]:
        """Delete an object, what it owns later; with `uid` only that very one, else `Conflict`."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        return self._write("DELETE", path, options, timeout_s=timeout_s)

    def _write(
        self,
        method: str,
        path: str,
        body: object,
        query: str = "",
        *,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float,
        patient: bool = True,
    ) -> dict[str, Any]:
        """What a request with a body is answered."""
        asked, data = f"{method} {path}", orjson.dumps(body)

        def once(within_s: float) -> urllib3.BaseHTTPResponse:
            headers = self._headers(accept) | {"Content-Type": content_type}
            return self._sent(method, path + query, headers, within_s, body=data)

        return parsed(asked, self._tried(method, asked, once, timeout_s, patient=patient).data)

    def _read(
        self,
        path: str,
        query: Query | None,
        *,
        timeout_s: float,
        accept: str = JSON,
        asked: str = "",
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        url = path + (f"?{urlencode(query)}" if query else "")

        def once(within_s: float) -> urllib3.BaseHTTPResponse:
            return self._sent("GET", url, self._headers(accept), within_s, stream=stream)

        return self._tried("GET", asked or f"GET {path}", once, timeout_s)

    def _tried(
        self, method: str, asked: str, once: Send, timeout_s: float, *, patient: bool = True
    ) -> urllib3.BaseHTTPResponse:
        """Ask until it is answered by something else than "later" and "who are you?"; neither was carried out."""
        renewed = False
        for tries_left in reversed(range(TRIES)):
            self._bucket.take()
            timeout_s = min(timeout_s, self._until_s - self._clock())
            if timeout_s <= 0:
                raise Unreachable(f"{asked}: not asked, as the process ends")
            generation = self._credentials.generation
            response = self._observed(method, asked, once, timeout_s)
            if response.status < 300:
                return response
            error = _error(asked, response)
            if isinstance(error, Unauthorized) and tries_left and not renewed:
                self._credentials.reload(generation)
                renewed = True
            elif _worth_waiting(error) and patient and tries_left:
                self._bucket.hold_for(error.retry_after_s or 1.0)
            else:
                break
        raise error

    def _observed(self, method: str, asked: str, once: Send, timeout_s: float) -> urllib3.BaseHTTPResponse:
        started_s, status = self._clock(), 0
        try:
            response = once(timeout_s)
            status = response.status
        except (HTTPError, OSError) as error:
            raise error_of_silence(asked, error) from error
        except ValueError:
            # http.client quotes a header it cannot send, token included; so no cause and no text.
            raise BadCredentials("the token holds characters that no header may have") from None
        finally:
            if self._observe is not None:
                self._observe(method, status, self._clock() - started_s)
        return response

    def _headers(self, accept: str) -> dict[str, str]:
        return {"Accept": accept, "User-Agent": self._user_agent, **self._credentials.headers()}

    def _sent(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        within_s: float,
        *,
        body: bytes | None = None,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        return self._credentials.pool.urlopen(
            method,
            self._credentials.prefix + url,
            body=body,
            headers=headers,
            timeout=urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, within_s), read=within_s),
            retries=False,
            redirect=False,
            assert_same_host=False,
            preload_content=not stream,
        )


def _worth_waiting(error: ApiError) -> bool:
    return isinstance(error, Throttled) and (error.retry_after_s or 0) <= LONGEST_PATIENCE_S


def _error(asked: str, response: urllib3.BaseHTTPResponse) -> ApiError:
    try:
        body = parsed_if_json(response.data)  # of a stream it is read only now
    except (HTTPError, OSError) as error:
        return error_of_silence(asked, error)
    finally:
        response.release_conn()
    return error_of_status(asked, response.status, body, response.headers.get("Retry-After"))


def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    qps: float = 50.0,
    burst: int = 100,
    user_agent: str,
    observe: Observer | None = None,
) -> Api:
    """The API server of the pod we run in, or of a kubeconfig; nothing is sent yet.

    Parameters
    ----------
    kubeconfig, context
        See `Credentials`.
    qps, burst
        Requests a second, and at once after a pause (the default recommender's 50 and 100).
    user_agent
        How we show up in the server's audit log.

    Raises
    ------
    BadCredentials
        There is nothing to connect with.
    """
    # The client library takes a third of the time to start: help, --check and what runs offline do without.
    from recommender.cluster.access.credentials import Credentials  # noqa: PLC0415

    return Api(Credentials(kubeconfig, context), TokenBucket(qps, burst), user_agent=user_agent, observe=observe)
