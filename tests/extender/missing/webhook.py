"""What fails in the webhook without one of its rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kubernetes.client.exceptions import ApiException

from extender.webhook.certificates import CertificateKeeper
from recommender.cluster.errors import Forbidden
from tests.extender.missing.stage import Stage, Symptom


@contextlib.contextmanager
def not_trusted(stage: Stage) -> Iterator[Symptom]:
    """It does not start, and writes no certificate that would not be trusted."""
    secret = ("phasewise-webhook", "kube-system")
    file = stage.tmp_path / "serving.pem"
    with contextlib.suppress(ApiException):
        stage.cluster.core.delete_namespaced_secret(*secret)
    stage.cluster.core.create_namespaced_secret(secret[1], {"metadata": {"name": secret[0]}})
    names = ["127.0.0.1"]
    keeper = CertificateKeeper(stage.api, secret[1], secret[0], names, "phasewise-webhook", file, lambda: 1.9e9)

    def does_not_start() -> bool:
        try:
            keeper.ensure()
        except Forbidden as error:
            assert not file.exists()
            return stage.refused in str(error)
        assert file.exists()
        return False

    yield does_not_start
