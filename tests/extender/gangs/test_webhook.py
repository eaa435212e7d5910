"""The webhook's answers, and the certificate it keeps for itself."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
import yaml

from extender.errors import BadCertificate, BadRequest
from extender.gangs.member import GATE
from extender.pods.pod import GROUPS
from extender.webhook.certificates import VALID_S, CertificateBundle, CertificateKeeper, CertificateLocation, new_bundle
from extender.webhook.reviewing import handlers, review_response
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict
from tests.extender.gangs.herds import NOON_S, pod_json

ROOT = Path(__file__).parents[3]
NAMES = ("phasewise-webhook.kube-system.svc", "127.0.0.1")


def answer(scheduler: str = "phasewise", operation: str = "CREATE", **more: Any) -> Any:
    made = pod_json("p", **more)
    made["spec"] |= {"schedulerName": more.get("schedulerName", "default-scheduler")}
    review = {"request": {"uid": "1", "operation": operation, "object": made}}
    response = review_response(review, scheduler)["response"]
    assert (response["uid"], response["allowed"]) == ("1", True)
    return orjson.loads(base64.b64decode(response["patch"])) if "patch" in response else []


def test_a_member_gets_gate_and_scheduler() -> None:
    assert answer(gang="g", size=2, gates=[]) == [
        {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": GATE}]},
        {"op": "add", "path": "/spec/schedulerName", "value": "phasewise"},
    ]


def test_gates_of_others_and_a_scheduler_that_was_chosen_stay() -> None:
    assert answer(gang="g", size=2, gates=["other"], schedulerName="mine") == [
        {"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": GATE}}
    ]
    assert answer("", gang="g", size=2) == []


@pytest.mark.parametrize(
    "more", [{}, {"gang": "g", "on": "n0"}, {"gang": "g", "schedulingGroup": {"podGroupName": "native"}}]
)
def test_pods_without_a_gang_of_ours_are_left_as_they_are(more: dict[str, Any]) -> None:
    assert answer(gates=[], **more) == []


def test_only_pods_that_are_made_are_changed() -> None:
    assert answer(operation="UPDATE", gang="g", gates=[]) == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request": 3}', b'{"request": {"uid": "1", "object": []'])
def test_what_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        handlers("phasewise")["/mutate"](body)


def test_the_manifest_asks_about_every_label_that_names_a_group() -> None:
    documents = yaml.safe_load_all((ROOT / "manifests" / "extender" / "webhook.yaml").read_text())
    (hook,) = next(each for each in documents if each["kind"] == "MutatingWebhookConfiguration")["webhooks"]
    expression = hook["matchConditions"][0]["expression"]
    assert all(f"'{name}'" in expression for name, _ in GROUPS)
    assert expression.count("'") == 2 * len(GROUPS)


def test_the_certificate_is_trusted_by_its_authority_and_renewed_a_month_before_its_end(tmp_path: Path) -> None:
    papers = new_bundle(NAMES, NOON_S)
    assert CertificateBundle.of_secret(papers.secret_data()) == papers
    file = tmp_path / "serving.pem"
    file.write_bytes(papers.certificate + papers.key)
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(file)
    ssl.create_default_context(cadata=papers.authorities.decode())
    assert not papers.needs_renewal(NAMES, NOON_S + 59 * 86400)
    assert papers.needs_renewal(NAMES, NOON_S + 61 * 86400)
    assert papers.needs_renewal((*NAMES, "another.svc"), NOON_S)
    assert papers.needs_renewal(NAMES, NOON_S - 86400), "made by somebody whose clock was a day ahead"


def test_the_authority_of_before_is_trusted_while_it_is_valid() -> None:
    first = new_bundle(NAMES, NOON_S)
    second = new_bundle(NAMES, NOON_S + 61 * 86400, first)
    assert second.authorities.endswith(first.authorities)
    third = new_bundle(NAMES, NOON_S + 61 * 86400 + VALID_S + 1, second)
    assert third.authorities.count(b"BEGIN") == 1
    with pytest.raises(BadCertificate):
        CertificateBundle.of_secret({"tls.crt": "%"})
    with pytest.raises(BadCertificate):
        CertificateBundle(b"x", b"y", b"z").needs_renewal(NAMES, NOON_S)


class PlayedApi:
    """A secret and a webhook's configuration."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] = {"metadata": {"name": "phasewise-webhook"}, "type": "Opaque"}
        self.bundle = ""
        self.done: list[str] = []
        self.refuse = False

    def get(self, path: str) -> dict[str, Any]:
        if "secrets" in path:
            return self.secret
        hook = {"name": "gangs", "clientConfig": {"caBundle": self.bundle}}
        return {"webhooks": [hook]}

    def replace(self, path: str, body: dict[str, Any]) -> None:
        if self.refuse:
            self.secret = {**self.secret, "data": new_bundle(NAMES, NOON_S).secret_data()}
            raise Conflict("another was first")
        self.secret = body
        self.done.append("replace")

    def patch(self, path: str, body: list[dict[str, Any]]) -> None:
        self.bundle = body[-1]["value"]
        self.done.append("trust")


def test_the_keeper_fills_shares_renews_and_then_leaves_alone(tmp_path: Path) -> None:
    api, now = PlayedApi(), [NOON_S]
    kept = CertificateLocation("kube-system", "phasewise-webhook", NAMES, "phasewise-webhook", tmp_path / "serving.pem")
    keeper = CertificateKeeper(cast(Api, api), kept, lambda: now[0])
    keeper.ensure()
    first = kept.file.read_bytes()
    keeper.ensure()
    assert (api.done, kept.file.read_bytes()) == (["replace", "trust"], first)
    assert kept.file.stat().st_mode & 0o777 == 0o600
    now[0] += 61 * 86400
    keeper.ensure()
    assert api.done == ["replace", "trust"] * 2
    assert kept.file.read_bytes() != first
    api.secret = {**api.secret, "data": {}}
    keeper.ensure()
    assert api.done == ["replace", "trust"] * 3
    assert {**api.secret, "data": {}} == {**PlayedApi().secret, "data": {}}, "it stays what it was made as"


def test_of_two_keepers_at_once_the_first_is_right(tmp_path: Path) -> None:
    api = PlayedApi()
    api.refuse = True
    kept = CertificateLocation("kube-system", "phasewise-webhook", NAMES, "phasewise-webhook", tmp_path / "serving.pem")
    CertificateKeeper(cast(Api, api), kept, lambda: NOON_S).ensure()
    papers = CertificateBundle.of_secret(api.secret["data"])
    assert kept.file.read_bytes() == papers.certificate + papers.key
    assert base64.b64decode(api.bundle) == papers.authorities
