"""The responses of the webhook, and the serving certificate that it manages itself."""

from __future__ import annotations

import base64
import contextlib
import ssl
import time
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from extender.errors import BadCertificate, BadRequest
from extender.gangs.member import GATE
from extender.webhook.certificates import VALID_S, CertificateBundle, CertificateKeeper, new_bundle
from extender.webhook.reviewing import handlers, review_response
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict
from tests.extender.gangs.herds import NOON_S, pod_json

ROOT = Path(__file__).parents[3]
NAMES = ("phasewise-webhook.kube-system.svc", "127.0.0.1")


def patch_of(scheduler: str = "phasewise", operation: str = "CREATE", **fields: Any) -> Any:
    pod = pod_json("p", **fields)
    pod["spec"] |= {"schedulerName": fields.get("schedulerName", "default-scheduler")}
    review = {"request": {"uid": "1", "operation": operation, "object": pod}}
    response = review_response(review, scheduler)["response"]
    assert (response["uid"], response["allowed"]) == ("1", True)
    return orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else []


def test_a_member_gets_gate_and_scheduler() -> None:
    assert patch_of(gang="g", size=2, gates=[]) == [
        {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]},
        {"op": "add", "path": "/spec/schedulerName", "value": "phasewise"},
    ]


def test_other_gates_and_a_chosen_scheduler_are_kept() -> None:
    assert patch_of(gang="g", size=2, gates=["other"], schedulerName="mine") == [
        {"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}}
    ]
    assert patch_of("", gang="g", size=2) == []


@pytest.mark.parametrize(
    "fields", [{}, {"gang": "g", "on": "n0"}, {"gang": "g", "schedulingGroup": {"podGroupName": "native"}}]
)
def test_pods_without_a_gang_bound_pods_and_native_pod_groups_are_not_patched(fields: dict[str, Any]) -> None:
    assert patch_of(gates=[], **fields) == []


def test_pods_of_a_jobset_that_wait_until_the_first_of_them_has_a_node_are_not_patched() -> None:
    """With the gate it would never get one. A gang that the pods name themselves is up to their owner."""
    jobset, exclusive = (
        {"jobset.sigs.k8s.io/jobset-name": "llm"},
        {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"},
    )
    by_labels = {"alpha.jobset.sigs.k8s.io/node-selector": "true"}
    assert patch_of(gates=[], labels=jobset, annotations=exclusive) == []
    assert patch_of(gates=[], labels=jobset, annotations={**exclusive, **by_labels}) != []
    assert patch_of(gates=[], gang="first", labels=jobset, annotations=exclusive) != []


def test_only_created_pods_are_patched() -> None:
    assert patch_of(operation="UPDATE", gang="g", gates=[]) == []


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"request": 3}', b'{"request": {"uid": "1", "operation": "CREATE", "object": []}}']
)
def test_a_body_that_is_not_an_admission_review_is_rejected(body: bytes) -> None:
    with pytest.raises(BadRequest):
        handlers("phasewise")["/mutate"](body)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_that_trusts_the_authority_accepts_the_certificate_for_each_name(tmp_path: Path, name: str) -> None:
    bundle, file = new_bundle(NAMES, time.time()), tmp_path / "serving.pem"
    file.write_bytes(bundle.certificate + bundle.key)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(file)
    trusting = ssl.create_default_context(cadata=bundle.authorities.decode())
    trusting.verify_flags &= ~ssl.VERIFY_X509_STRICT
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(one, other, server_hostname=name)
    for end in (client, serving.wrap_bio(other, one, server_side=True), client):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert client.version() is not None


def test_a_certificate_is_renewed_a_month_before_it_expires() -> None:
    bundle = new_bundle(NAMES, NOON_S)
    assert CertificateBundle.of_secret(bundle.secret_data()) == bundle
    assert not bundle.needs_renewal(NAMES, NOON_S + 59 * 86400)
    assert bundle.needs_renewal(NAMES, NOON_S + 61 * 86400)
    assert bundle.needs_renewal((*NAMES, "another.svc"), NOON_S)
    assert bundle.needs_renewal(NAMES, NOON_S - 86400), "made with a clock that was a day ahead"


def test_the_previous_authority_is_trusted_while_it_is_valid() -> None:
    first = new_bundle(NAMES, NOON_S)
    second = new_bundle(NAMES, NOON_S + 61 * 86400, first)
    assert second.authorities.endswith(first.authorities)
    third = new_bundle(NAMES, NOON_S + 61 * 86400 + VALID_S + 1, second)
    assert third.authorities.count(b"BEGIN") == 1


def test_a_secret_or_certificate_that_is_malformed_is_an_error() -> None:
    valid = new_bundle(NAMES, NOON_S).secret_data()
    for data in ({}, {**valid, "tls.crt": "%"}):
        with pytest.raises(BadCertificate, match="holds no certificate"):
            CertificateBundle.of_secret(data)
    with pytest.raises(BadCertificate, match="not a certificate in PEM format"):
        CertificateBundle(b"x", b"y", b"z").needs_renewal(NAMES, NOON_S)


HOOK = "phasewise-webhook"


class FakeApi:
    """A Secret and a webhook configuration."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] = {"metadata": {"name": "phasewise-webhook"}, "type": "Opaque"}
        self.bundle = ""
        self.writes: list[str] = []
        self.conflicts = False

    def get(self, path: str) -> dict[str, Any]:
        if "secrets" in path:
            return self.secret
        hook = {"name": "gangs", "clientConfig": {"caBundle": self.bundle}}
        return {"webhooks": [hook]}

    def replace(self, path: str, body: dict[str, Any]) -> None:
        if self.conflicts:
            self.secret = {**self.secret, "data": new_bundle(NAMES, NOON_S).secret_data()}
            raise Conflict("another was first")
        self.secret = body
        self.writes.append("replace")

    def patch(self, path: str, body: list[dict[str, Any]]) -> None:
        self.bundle = body[-1]["value"]
        self.writes.append("trust")


def test_the_keeper_creates_publishes_and_renews_the_certificate_only_when_needed(tmp_path: Path) -> None:
    api, now, file = FakeApi(), [NOON_S], tmp_path / "serving.pem"
    keeper = CertificateKeeper(cast(Api, api), "kube-system", HOOK, NAMES, HOOK, file, lambda: now[0])
    keeper.ensure()
    first, inode = file.read_bytes(), file.stat().st_ino
    keeper.ensure()
    assert (api.writes, file.read_bytes(), file.stat().st_ino) == (["replace", "trust"], first, inode)
    assert file.stat().st_mode & 0o777 == 0o600
    now[0] += 61 * 86400
    keeper.ensure()
    assert api.writes == ["replace", "trust"] * 2
    assert file.read_bytes() != first
    api.secret = {**api.secret, "data": {}}
    keeper.ensure()
    assert api.writes == ["replace", "trust"] * 3
    assert {**api.secret, "data": {}} == {**FakeApi().secret, "data": {}}, "only its data is changed"


def test_a_keeper_that_loses_a_race_uses_the_certificate_of_the_winner(tmp_path: Path) -> None:
    api = FakeApi()
    api.conflicts = True
    file = tmp_path / "serving.pem"
    CertificateKeeper(cast(Api, api), "kube-system", HOOK, NAMES, HOOK, file, lambda: NOON_S).ensure()
    bundle = CertificateBundle.of_secret(api.secret["data"])
    assert file.read_bytes() == bundle.certificate + bundle.key
    assert base64.b64decode(api.bundle) == bundle.authorities
