"""Self-managed serving certificates. Each is signed by a new authority whose private key is discarded at once.

A certificate is stored in a Secret shared by all replicas, then its authority in the webhook's configuration, then the
certificate in a file; each step only if something differs. So the API server trusts a certificate before it is used,
and replicas may do this concurrently (the Secret is written with optimistic locking). The manifest creates the Secret,
empty: permission to create Secrets would give access to the token of any service account in the namespace.
"""

from __future__ import annotations

import base64
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from extender.errors import BadCertificate
from extender.watches import PeriodicTask
from recommender.base.units import WallClock
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict
from recommender.cluster.paths import path_of

VALID_S = 90 * 86400.0
RENEW_BEFORE_S = 30 * 86400.0  # certificates are renewed this long before they expire
BACKDATED_S = 300.0  # certificates are backdated by this much, as clocks differ


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """A serving certificate with its key and the certificates of its authority and, while it is valid, of the previous
    one, so that old certificates stay trusted during a renewal; PEM."""

    certificate: bytes
    key: bytes
    authorities: bytes

    @classmethod
    def of_secret(cls, data: Mapping[str, str]) -> CertificateBundle:
        """Read `data` of a Secret; BadCertificate if a part is missing or not base64."""
        try:
            return cls(*(base64.b64decode(data[name], validate=True) for name in ("tls.crt", "tls.key", "ca.crt")))
        except (KeyError, ValueError) as error:
            raise BadCertificate("the secret holds no certificate") from error

    def secret_data(self) -> dict[str, str]:
        parts = {"tls.crt": self.certificate, "tls.key": self.key, "ca.crt": self.authorities}
        return {name: base64.b64encode(part).decode() for name, part in parts.items()}

    def needs_renewal(self, names: Sequence[str], now_s: float) -> bool:
        """Whether it expires soon, is not valid yet (made with a wrong clock) or lacks a name; BadCertificate if
        malformed."""
        shown = _read(self.certificate)[0]
        left_s = shown.not_valid_after_utc.timestamp() - now_s
        begun = shown.not_valid_before_utc.timestamp() <= now_s
        alternatives = [each.value for each in shown.extensions if isinstance(each.value, x509.SubjectAlternativeName)]
        known = {str(name.value) for listed in alternatives for name in listed}
        return left_s < RENEW_BEFORE_S or not begun or not set(names) <= known


def new_bundle(names: Sequence[str], now_s: float, former: CertificateBundle | None = None) -> CertificateBundle:
    """Create an authority, and a certificate for these host names and addresses, valid for `VALID_S`."""
    now = datetime.fromtimestamp(now_s, UTC)
    signing, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = f"phasewise authority {now:%Y-%m-%d %H:%M:%S}"
    authority = _builder(issuer, issuer, signing, now, authority=True).sign(signing, hashes.SHA256())
    shown = (
        _builder(names[0][:64], issuer, key, now, authority=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return CertificateBundle(_pem(shown), private, _pem(authority) + _still_valid(former, now))


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, now: datetime, *, authority: bool
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(seconds=BACKDATED_S))
        .not_valid_after(now + timedelta(seconds=VALID_S))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
    )


def _still_valid(former: CertificateBundle | None, now: datetime) -> bytes:
    """The newest previous authority, if it is still valid."""
    try:
        newest = _read(former.authorities)[:1] if former is not None else []
    except BadCertificate:
        newest = []
    return b"".join(_pem(each) for each in newest if each.not_valid_after_utc > now)


def _read(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise BadCertificate("not a certificate in PEM format") from error


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


log = logging.getLogger(__name__)

SECRETS = ("v1", "secrets")
CONFIGURATIONS = ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations")
PERIOD_S = 60.0

Json = Mapping[str, Any]


class CertificateKeeper:
    """Keeps the certificate valid: `loop` repeats `ensure`. The API server reaches us by `names`, and trusts us by the
    MutatingWebhookConfiguration `configuration`; a server reads certificate and key from `file`."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        secret: str,
        names: Sequence[str],
        configuration: str,
        file: Path,
        clock: WallClock = time.time,
    ) -> None:
        self._api, self._names, self._file, self._clock = api, names, file, clock
        self._secret_path = path_of(SECRETS, namespace, secret)
        self._configuration_path = path_of(CONFIGURATIONS, None, configuration)
        self.loop = PeriodicTask("certificate", self.ensure, lambda: PERIOD_S)

    def ensure(self) -> None:
        """Ensure that the certificate need not be renewed, and that Secret, configuration and file agree, or raise
        ApiError. The file is only written once the certificate is trusted."""
        configuration = self._api.get(self._configuration_path)
        bundle = self._shared_bundle()
        self._trust(bundle, configuration)
        self._write_file(bundle)

    def _shared_bundle(self) -> CertificateBundle:
        secret = self._api.get(self._secret_path)
        try:
            former: CertificateBundle | None = CertificateBundle.of_secret(secret.get("data") or {})
            if former is not None and not former.needs_renewal(self._names, self._clock()):
                return former
        except BadCertificate as error:
            log.warning("%s: %s: creating a new one", self._secret_path, error)
            former = None
        bundle = new_bundle(self._names, self._clock(), former)
        try:
            self._api.replace(self._secret_path, {**secret, "data": bundle.secret_data()})
        except Conflict:  # another replica was first
            return CertificateBundle.of_secret(self._api.get(self._secret_path).get("data") or {})
        log.info("the certificate was renewed")
        return bundle

    def _trust(self, bundle: CertificateBundle, configuration: Json) -> None:
        encoded = base64.b64encode(bundle.authorities).decode()
        changes = [
            change
            for number, hook in enumerate(configuration.get("webhooks") or ())
            if hook["clientConfig"].get("caBundle") != encoded
            for change in (
                {"op": "test", "path": f"/webhooks/{number}/name", "value": hook["name"]},
                {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": encoded},
            )
        ]
        if changes:
            self._api.patch(self._configuration_path, changes)

    def _write_file(self, bundle: CertificateBundle) -> None:
        """Write certificate and key to one file, atomically, as a server may read it at any time."""
        both = bundle.certificate + bundle.key
        if self._file.exists() and self._file.read_bytes() == both:
            return
        fresh = self._file.with_suffix(f".{os.getpid()}")  # other workers may write theirs
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(both)
        fresh.replace(self._file)
