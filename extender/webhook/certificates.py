"""Certificates of a server's own: an authority that signs once and is forgotten; no key of one lies anywhere.

Kept in a Secret that replicas share, in the webhook's configuration, in a file: in this order, and each step only where
something differs. So the API server trusts a certificate before anyone shows it, and replicas may do this at the same
time (the Secret is written by the version it was read at). The Secret is there already, empty at first: who may make
one may make one that gets the token of any account of its namespace.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
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
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict
from recommender.cluster.paths import path_of

VALID_S = 90 * 86400.0
RENEW_BEFORE_S = 30 * 86400.0
"""A certificate that is valid for less than this is renewed."""

BACKDATED_S = 300.0
"""Certificates begin so long ago: clocks differ."""


@dataclass(frozen=True, slots=True)
class CertificateBundle:
    """What a server shows, and by what it is trusted; PEM.

    Attributes
    ----------
    authorities
        Certificates of the authority, and of the one before while that is valid: those who have not heard of the new
        one yet still trust, and are still trusted.
    """

    certificate: bytes
    key: bytes
    authorities: bytes

    @classmethod
    def of_secret(cls, data: Mapping[str, str]) -> CertificateBundle:
        """From `data` of a Secret; BadCertificate where a part is missing or no base64."""
        try:
            return cls(*(base64.b64decode(data[name], validate=True) for name in ("tls.crt", "tls.key", "ca.crt")))
        except (KeyError, ValueError) as error:
            raise BadCertificate("the secret holds no certificate") from error

    def secret_data(self) -> dict[str, str]:
        parts = {"tls.crt": self.certificate, "tls.key": self.key, "ca.crt": self.authorities}
        return {name: base64.b64encode(part).decode() for name, part in parts.items()}

    def needs_renewal(self, names: Sequence[str], now_s: float) -> bool:
        """Whether they must be renewed: they expire soon, begin later, or are not for all these names. BadCertificate.

        Those that begin later were made by somebody whose clock was wrong.
        """
        shown = _read(self.certificate)[0]
        left_s = shown.not_valid_after_utc.timestamp() - now_s
        begun = shown.not_valid_before_utc.timestamp() <= now_s
        return left_s < RENEW_BEFORE_S or not begun or not set(names) <= _names_of(shown)


def new_bundle(names: Sequence[str], now_s: float, former: CertificateBundle | None = None) -> CertificateBundle:
    """A new authority and a certificate of it for these host names and addresses, valid for `VALID_S`."""
    now = datetime.fromtimestamp(now_s, UTC)
    signing, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"phasewise authority {now:%Y-%m-%d %H:%M:%S}")])
    authority = (
        _builder(issuer, issuer, signing, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(signing, hashes.SHA256())
    )
    shown = (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]), issuer, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return CertificateBundle(_pem(shown), private, _pem(authority) + _still_valid(former, now))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(seconds=BACKDATED_S))
        .not_valid_after(now + timedelta(seconds=VALID_S))
    )


def _still_valid(former: CertificateBundle | None, now: datetime) -> bytes:
    """The newest authority of before, while it is valid."""
    try:
        newest = _read(former.authorities)[:1] if former is not None else []
    except BadCertificate:
        newest = []
    return b"".join(_pem(each) for each in newest if each.not_valid_after_utc > now)


def _read(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise BadCertificate("this is no certificate in PEM form") from error


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(certificate: x509.Certificate) -> set[str]:
    try:
        listed = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(each.value) for each in listed}


log = logging.getLogger(__name__)

SECRETS = ("v1", "secrets")
CONFIGURATIONS = ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations")
PERIOD_S = 60.0

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CertificateLocation:
    """Where the certificate is kept.

    Attributes
    ----------
    names
        Host names and addresses by which the API server reaches us.
    configuration
        The MutatingWebhookConfiguration that shall trust it.
    file
        Certificate and key, as a server reads them.
    """

    namespace: str
    secret: str
    names: Sequence[str]
    configuration: str
    file: Path


class CertificateKeeper:
    """`ensure` is one look, which `loop` repeats."""

    def __init__(
        self, api: Api, location: CertificateLocation, clock: Callable[[], float], period_s: float = PERIOD_S
    ) -> None:
        self._api, self._location, self._clock = api, location, clock
        self.loop = PeriodicTask("certificate", self.ensure, lambda: period_s)

    def ensure(self) -> None:
        """See to it that secret, configuration and file agree, and that the certificate is valid for a while.

        Raises
        ------
        ApiError
            The server could not be asked or refuses. Nothing is shown before it is trusted.
        """
        configuration = self._api.get(path_of(CONFIGURATIONS, None, self._location.configuration))
        bundle = self._shared_bundle()
        self._trust(bundle, configuration)
        self._write_file(bundle)

    def _shared_bundle(self) -> CertificateBundle:
        path = path_of(SECRETS, self._location.namespace, self._location.secret)
        secret = self._api.get(path)
        try:
            former: CertificateBundle | None = CertificateBundle.of_secret(secret.get("data") or {})
            if former is not None and not former.needs_renewal(self._location.names, self._clock()):
                return former
        except BadCertificate as error:
            log.warning("%s/%s: %s: made anew", self._location.namespace, self._location.secret, error)
            former = None
        bundle = new_bundle(self._location.names, self._clock(), former)
        try:
            self._api.replace(path, {**secret, "data": bundle.secret_data()})
        except Conflict:  # another replica was first
            return CertificateBundle.of_secret(self._api.get(path).get("data") or {})
        log.info("the certificate was renewed")
        return bundle

    def _trust(self, bundle: CertificateBundle, configuration: Json) -> None:
        path = path_of(CONFIGURATIONS, None, self._location.configuration)
        encoded = base64.b64encode(bundle.authorities).decode()
        hooks = configuration.get("webhooks") or []
        changes = [
            change
            for number, hook in enumerate(hooks)
            if hook["clientConfig"].get("caBundle") != encoded
            for change in (
                {"op": "test", "path": f"/webhooks/{number}/name", "value": hook["name"]},
                {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": encoded},
            )
        ]
        if changes:
            self._api.patch(path, changes)

    def _write_file(self, bundle: CertificateBundle) -> None:
        """Both in one file, put in place at once: a server reads it at every connection."""
        file, both = self._location.file, bundle.certificate + bundle.key
        with contextlib.suppress(FileNotFoundError):
            if file.read_bytes() == both:
                return
        fresh = file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(both)
        fresh.replace(file)
