"""Credentials and certificates for a Prometheus, all read from files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from requests import PreparedRequest
from requests.auth import HTTPBasicAuth

from recommender.base.errors import Misuse
from recommender.base.files import read_secret


@dataclass(frozen=True, slots=True)
class Access:
    """Authentication and TLS options. Secrets are read from their files at every request, to use renewed ones.

    A bearer token excludes a `user`. Without `key_file` the key is in `certificate_file`; both and `ca_file` are PEM.
    Without `verify` any certificate is accepted. Options that exclude or need each other raise Misuse.
    """

    bearer_token_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    verify: bool = True
    headers: tuple[str, ...] = ()
    """Further headers as `NAME: VALUE`, such as the tenant of Mimir; no secrets, since others see arguments."""

    def __post_init__(self) -> None:
        for name, value in self.named_headers().items():
            if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not value or not value.isprintable() or not value.isascii():
                raise Misuse(f"--header {name!r}: write NAME: VALUE, such as 'X-Scope-OrgID: team-a'.")
            if name.lower() in ("authorization", "cookie"):
                raise Misuse(f"--header {name}: others see it among the processes. Use --bearer-token-file or --user.")
        if self.bearer_token_file is not None and self.user is not None:
            raise Misuse("--bearer-token-file and --user exclude each other: give the one that Prometheus needs.")
        if (self.user is None) != (self.password_file is None):
            raise Misuse("--user and --password-file belong together: give both or neither.")
        if self.key_file is not None and self.certificate_file is None:
            raise Misuse("--key-file is the key of --certificate-file: give that too.")
        if self.ca_file is not None and not self.verify:
            raise Misuse("--insecure accepts any certificate, so --ca-file has no effect: give only one of them.")
        for option in ("ca_file", "certificate_file", "key_file"):
            file = getattr(self, option)
            if file is not None and not file.is_file():
                raise Misuse(f"--{option.replace('_', '-')} {file}: there is no such file. Check the path.")

    def credentials(self) -> Callable[[PreparedRequest], PreparedRequest] | None:
        """What authenticates the next request; None without credentials."""
        if self.bearer_token_file is not None:
            token = read_secret(self.bearer_token_file, "--bearer-token-file")

            def sign(request: PreparedRequest) -> PreparedRequest:
                request.headers["Authorization"] = f"Bearer {token}"
                return request

            return sign
        if self.user is not None and self.password_file is not None:
            # Bytes, since requests encodes text as Latin-1.
            return HTTPBasicAuth(self.user.encode(), read_secret(self.password_file, "--password-file").encode())
        return None

    def named_headers(self) -> dict[str, str]:
        """The further headers of each request."""
        parts = (header.partition(":") for header in self.headers)
        return {name.strip(): value.strip() for name, _, value in parts}

    @property
    def trust(self) -> bool | str:
        """The option `verify` of requests: a CA file, True for the system's CAs, False for no verification."""
        return str(self.ca_file) if self.ca_file is not None else self.verify

    @property
    def certificate(self) -> str | tuple[str, str] | None:
        """The option `cert` of requests: one file, or certificate and key."""
        if self.certificate_file is None:
            return None
        return str(self.certificate_file) if self.key_file is None else (str(self.certificate_file), str(self.key_file))

    @property
    def described(self) -> str:
        """The credentials for messages, without the secret."""
        if self.bearer_token_file is not None:
            return f"the token in {self.bearer_token_file} (--bearer-token-file)"
        if self.user is not None:
            return f"user {self.user!r} with the password in {self.password_file} (--user, --password-file)"
        return ""
