"""Requests to the API server: plain JSON in and out, always rate-limited and with a timeout."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from recommender.base.units import MonotonicClock
from recommender.cluster.access.answers import error_from_exception, error_from_status, parse_object
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.errors import ApiError, BadCredentials, Throttled, Unauthorized, Unreachable

if TYPE_CHECKING:
    from recommender.cluster.access.credentials import Credentials

Query = Mapping[str, str | int]
Observer = Callable[[str, int, float], None]
"""Called with method, HTTP status (0 without a response) and duration in seconds of each request."""

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
PAGE_SIZE = 100
"""Objects per page of a list: one or two MB of pods, which take ten times as much while being parsed."""

MAX_RETRY_AFTER_S = 5.0
"""A busy server asks for one second; the caller decides on longer waits (a disruption budget's)."""

MAX_ATTEMPTS = 4

METADATA, METADATA_LIST = (
    f"application/json;as={kind};g=meta.k8s.io;v=v1,application/json"
    for kind in ("PartialObjectMetadata", "PartialObjectMetadataList")
)
"""Accept headers for metadata-only responses, falling back to whole objects."""

JSON = "application/json"


class Api:
    """A thread-safe client of the API server. Every method raises an `ApiError`.

    `bucket` limits our own requests; repeated ones (429) count again. `observe` is called after each request.
    """

    def __init__(
        self,
        credentials: Credentials,
        bucket: TokenBucket,
        *,
        user_agent: str,
        observe: Observer | None = None,
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        self._credentials, self._bucket = credentials, bucket
        self._user_agent, self._observe, self._clock = user_agent, observe, clock
        self._deadline_s = math.inf

    @property
    def server(self) -> str:
        """The server's address, for people."""
        return self._credentials.server

    def with_rate_limit(self, bucket: TokenBucket) -> Api:
        """The same server with another rate limit, for what must never queue behind a flood of writes (the lease)."""
        return Api(self._credentials, bucket, user_agent=self._user_agent, observe=self._observe, clock=self._clock)

    def hurry(self, until_s: float) -> None:
        """Prepare for shutdown: lift our rate limit, and refuse requests from `until_s` on our clock."""
        self._deadline_s = until_s
        self._bucket.lift_limit()

    def get(self, path: str, query: Query | None = None, *, timeout_s: float = READ_TIMEOUT_S) -> dict[str, Any]:
        """Get one object, or a whole list."""
        return self._object("GET", path, query, timeout_s=timeout_s)

    def text(self, path: str, query: Query | None = None, *, timeout_s: float = READ_TIMEOUT_S) -> str:
        """Get plain text, such as a log."""
        return self._request("GET", path, query, timeout_s=timeout_s).data.decode("utf-8", "replace")

    def list_pages(
        self, path: str, query: Query | None = None, *, page_size: int = PAGE_SIZE, metadata_only: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list; raises `Gone` when the list took too long."""
        token, accept = "", METADATA_LIST if metadata_only else JSON
        while True:
            params = {**(query or {}), "limit": page_size, **({"continue": token} if token else {})}
            answer = self._object("GET", path, params, accept=accept)
            yield answer
            token = (answer.get("metadata") or {}).get("continue") or ""
            if not token:
                return

    def watch_lines(
        self, path: str, query: Query | None = None, *, idle_timeout_s: float, metadata_only: bool = False
    ) -> WatchLines:
        """Open a watch; reading it raises `ReadTimeout` after `idle_timeout_s` without an event, bookmarks included."""
        query, accept = {**(query or {}), "watch": 1}, METADATA if metadata_only else JSON
        return WatchLines(self._request("GET", path, query, accept=accept, timeout_s=idle_timeout_s, stream=True), path)

    def patch(
        self,
        path: str,
        body: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        *,
        timeout_s: float = READ_TIMEOUT_S,
        metadata_only: bool = False,
        strategic: bool = False,
    ) -> dict[str, Any]:
        """Patch an object: a list is a JSON Patch, a mapping a JSON merge patch or, which merges lists by their keys, a
        strategic one. Returns the object, or its metadata."""
        kind = "json" if not isinstance(body, Mapping) else "strategic-merge" if strategic else "merge"
        how = {"content_type": f"application/{kind}-patch+json", "accept": METADATA if metadata_only else JSON}
        # Otherwise the server decodes each patch twice to warn of unknown fields, and nobody reads the warnings.
        query = {"fieldValidation": "Ignore"}
        return self._object("PATCH", path, query, body=body, timeout_s=timeout_s, **how)

    def create(
        self, path: str, body: Mapping[str, Any], *, timeout_s: float = READ_TIMEOUT_S, dry_run: bool = False
    ) -> dict[str, Any]:
        """Create an object, or only check that it could be; `Conflict` if it exists."""
        return self._object("POST", path, {"dryRun": "All"} if dry_run else None, body=body, timeout_s=timeout_s)

    def evict(self, pod: str, uid: str) -> None:
        """Evict the pod with this UID; `Throttled`, without delaying other requests, while its disruption budget does
        not allow it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.rpartition("/")[2]},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        self._object("POST", f"{pod}/eviction", body=body, retry_throttled=False)

    def replace(self, path: str, body: Mapping[str, Any], *, timeout_s: float = READ_TIMEOUT_S) -> dict[str, Any]:
        """Replace an object; `Conflict` unless the body has the current resourceVersion."""
        return self._object("PUT", path, body=body, timeout_s=timeout_s)

    def delete(self, path: str, *, uid: str = "") -> dict[str, Any]:
        """Delete an object, and its dependents in the background; with `uid` only that one, otherwise `Conflict`."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        return self._object("DELETE", path, body=options)

    def _object(self, method: str, path: str, query: Query | None = None, **how: Any) -> dict[str, Any]:
        return parse_object(f"{method} {path}", self._request(method, path, query, **how).data)

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_s: float = READ_TIMEOUT_S,
        stream: bool = False,
        retry_throttled: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request; repeat it after 429 and, with reloaded credentials, after 401: neither was carried out."""
        description, url = f"{'WATCH' if stream else method} {path}", path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        data = None
        if body is not None:
            data, headers["Content-Type"] = orjson.dumps(body), content_type
        reloaded = False
        for attempts_left in reversed(range(MAX_ATTEMPTS)):
            self._bucket.take()
            timeout_s = min(timeout_s, self._deadline_s - self._clock())
            if timeout_s <= 0:
                raise Unreachable(f"{description}: not sent, the process is shutting down")
            generation = self._credentials.generation
            timeout = urllib3.Timeout(connect=min(CONNECT_TIMEOUT_S, timeout_s), read=timeout_s)
            response = self._send(
                description, method, url, headers, body=data, timeout=timeout, preload_content=not stream
            )
            if response.status < 300:
                return response
            error = _error_in(description, response)
            if isinstance(error, Unauthorized) and attempts_left and not reloaded:
                self._credentials.reload(generation)
                reloaded = True
            elif (
                isinstance(error, Throttled)
                and retry_throttled
                and attempts_left
                and (wait_s := error.retry_after_s or 1.0) <= MAX_RETRY_AFTER_S
            ):
                self._bucket.pause_for(wait_s)
            else:
                break
        raise error

    def _send(
        self, description: str, method: str, url: str, headers: Mapping[str, str], **how: Any
    ) -> urllib3.BaseHTTPResponse:
        started_s, status, access = self._clock(), 0, self._credentials
        how |= {"retries": False, "redirect": False, "assert_same_host": False}
        try:
            headers = {**headers, **access.headers()}  # whose token may have to be fetched first
            response = access.pool.urlopen(method, access.prefix + url, headers=headers, **how)
            status = response.status
        except (HTTPError, OSError) as error:
            raise error_from_exception(description, error) from error
        except ValueError:
            # http.client quotes the invalid header, including the token: so no cause and no text.
            raise BadCredentials("the token contains characters that are invalid in a header") from None
        finally:
            if self._observe is not None:
                self._observe(method, status, self._clock() - started_s)
        return response


class WatchLines:
    """The events of one watch. A context manager; `stop` may be called from another thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse, path: str) -> None:
        self._response, self._request = response, f"WATCH {path}"
        self._stopped = False

    def __enter__(self) -> WatchLines:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield events until the server or `stop` ends the watch; `Unreachable` if it breaks, or no data arrives in
        time."""
        buffer = b""
        try:
            for chunk in self._response.stream(1 << 16, decode_content=True):
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield parse_object(self._request, line)
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # ValueError and AttributeError: urllib3 reads on while another thread shuts down the socket.
            if not self._stopped:
                raise error_from_exception(self._request, error) from error

    def stop(self) -> None:
        """End the watch; its reader gets no further events."""
        self._stopped = True
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # it has already ended
            self._response.shutdown()


def _error_in(description: str, response: urllib3.BaseHTTPResponse) -> ApiError:
    try:
        body = orjson.loads(response.data)  # a stream is read only here
    except orjson.JSONDecodeError:
        body = None  # nothing else is worth quoting
    except (HTTPError, OSError) as error:
        return error_from_exception(description, error)
    finally:
        response.release_conn()
    return error_from_status(description, response.status, body, response.headers.get("Retry-After"))


def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    qps: float = 50.0,
    burst: int = 100,
    user_agent: str,
    observe: Observer | None = None,
) -> Api:
    """A client for the API server of our pod, or of a kubeconfig; nothing is sent yet. For errors see `Credentials`.

    The defaults of `qps` and `burst` are the default recommender's.
    """
    # Importing the client library is a third of the startup time; --help, --check and offline commands skip it.
    from recommender.cluster.access.credentials import Credentials  # noqa: PLC0415

    return Api(Credentials(kubeconfig, context), TokenBucket(qps, burst), user_agent=user_agent, observe=observe)
