"""Address, trust and identity for the API server, from the pod's service account or a kubeconfig."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes.client import Configuration, rest
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from urllib3.util import parse_url

from recommender.base.units import MonotonicClock
from recommender.cluster.errors import BadCredentials

MAX_CONNECTIONS = 32
"""Pool size: one connection per watch, and the workers that write."""

HEADERS_TTL_S = 1.0
"""How long headers are cached: with a kubeconfig the library searches the environment each time, which takes half as
long as a request. A token replaced in the meantime is refused once, then reloaded."""


class Credentials:
    """Address, trust and identity as the client library reads them; reloaded when the server rejects them.

    The library itself renews service account tokens (once a minute) and tokens with an expiry (exec plugins, OIDC);
    `reload` covers replaced token files and certificates.

    Without `kubeconfig` those in `$KUBECONFIG` count, else the service account of our pod, else `~/.kube/config`;
    without `context` its current one. `BadCredentials` if they do not exist or are unusable; the message never quotes
    the file.
    """

    def __init__(
        self,
        kubeconfig: Path | None = None,
        context: str | None = None,
        clock: MonotonicClock = time.monotonic,
    ) -> None:
        self._kubeconfig, self._context, self._clock = kubeconfig, context, clock
        self._lock = threading.Lock()
        self.generation = 0
        """Number of reloads so far; a request remembers which one it was sent with."""
        self._headers: Mapping[str, str] = {}
        self._expires_s = -math.inf
        self._apply(self._load())

    @property
    def server(self) -> str:
        """The address of the API server, for people; without user information."""
        url = parse_url(self._host)
        return url._replace(auth=None).url

    def headers(self) -> Mapping[str, str]:
        """The Authorization header; none with a client certificate."""
        if self._clock() >= self._expires_s:
            with self._lock:
                self._headers, self._expires_s = self._auth_headers(), self._clock() + HEADERS_TTL_S
        return self._headers

    def reload(self, used_generation: int) -> None:
        """Reload everything, unless another thread has since generation `used_generation`."""
        with self._lock:
            if self.generation == used_generation:
                self._apply(self._load())
                self.generation += 1

    def _auth_headers(self) -> dict[str, str]:
        try:
            auth: Mapping[str, Any] = self._configuration.auth_settings()
        except (ConfigException, OSError):
            raise BadCredentials("the token can no longer be read") from None
        token = auth.get("BearerToken", {}).get("value")
        return {"Authorization": str(token).strip()} if token else {}

    def _apply(self, configuration: Configuration) -> None:
        address = parse_url(configuration.host)
        if address.scheme not in ("https", "http") or not address.host:
            raise BadCredentials(f"{self._origin()}: it has no server address (https://...)")
        configuration.connection_pool_maxsize = MAX_CONNECTIONS
        configuration.keep_alive = True
        try:
            manager = rest.RESTClientObject(configuration).pool_manager
        except (ValueError, OSError):
            raise BadCredentials(f"{self._origin()}: its certificates or proxy cannot be used") from None
        self._host: str = configuration.host.rstrip("/")
        self.pool: urllib3.HTTPConnectionPool = manager.connection_from_url(self._host)
        """Connections to this server. The pool manager, which handles many servers, takes a fifth longer per write."""
        plain_proxy = manager.proxy is not None and address.scheme == "http"
        self.prefix: str = self._host if plain_proxy else parse_url(self._host).path or ""
        """Prefix of each path; the whole address for a plain HTTP proxy without a tunnel."""
        self._configuration, self._expires_s = configuration, -math.inf

    def _load(self) -> Configuration:
        configuration = Configuration()
        files = self._files()
        try:
            if not files:
                load_incluster_config(client_configuration=configuration)
            else:
                # Never persisted: the library would write renewed tokens into the user's file.
                load_kube_config(
                    os.pathsep.join(files),
                    context=self._context or _current_context(files),
                    client_configuration=configuration,
                    persist_config=False,
                )
        except ConfigException as error:
            raise BadCredentials(f"{self._origin()}: {_without_contents(error)}") from None
        except OSError as error:
            raise BadCredentials(f"{self._origin()}: {(error.strerror or 'cannot be read').lower()}") from None
        except Exception:  # noqa: BLE001  # the library and its YAML parser raise anything on malformed files
            # The message may quote the file.
            raise BadCredentials(f"{self._origin()}: this is not a kubeconfig") from None
        return configuration

    def _files(self) -> list[str]:
        """The kubeconfigs, to be merged; none for the service account of our pod."""
        if self._kubeconfig is not None:
            if not self._kubeconfig.is_file():
                raise BadCredentials(f"{self._kubeconfig}: there is no such kubeconfig. Name one, or run in a pod.")
            return [str(self._kubeconfig)]
        in_pod = os.environ.get("KUBERNETES_SERVICE_HOST")
        named = os.environ.get("KUBECONFIG") or ("" if in_pod else "~/.kube/config")
        files = [str(file) for each in named.split(os.pathsep) if (file := Path(each).expanduser()).is_file()]
        if not files and not in_pod:
            raise BadCredentials(f"not in a pod, and there is no {named}. Name a kubeconfig.")
        return files

    def _origin(self) -> str:
        return os.pathsep.join(self._files()) or "the service account of this pod"


def _current_context(files: Sequence[str]) -> str | None:
    """Of the first file that has one, as in kubectl; the library takes the last one's, which may be another cluster."""
    contents = (yaml.safe_load(Path(file).read_text()) for file in files)
    return next((context for each in contents if (context := each.get("current-context"))), None)


def _without_contents(error: ConfigException) -> str:
    """The library's message, cut before the content of an entry, which includes keys and tokens.

    For the same reason these errors are raised `from None`: a traceback would print the original.
    """
    return str(error).split("{", maxsplit=1)[0][:200].strip()
