"""What is missed of the webhook when it may not do something."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kubernetes.client.exceptions import ApiException

from extender.webhook.certificates import CertificateKeeper, CertificateLocation
from recommender.cluster.errors import Forbidden
from tests.extender.missing.stage import Stage, Symptom


@contextlib.contextmanager
def not_trusted(stage: Stage) -> Iterator[Symptom]:
    """It does not start, and shows no certificate that is not trusted."""
    secret = ("phasewise-webhook", "kube-system")
    kept = CertificateLocation(secret[1], secret[0], ["127.0.0.1"], "phasewise-webhook", stage.tmp_path / "serving.pem")
    with contextlib.suppress(ApiException):
        stage.cluster.core.delete_namespaced_secret(*secret)
    stage.cluster.core.create_namespaced_secret(secret[1], {"metadata": {"name": secret[0]}})
    keeper = CertificateKeeper(stage.api, kept, lambda: 1.9e9)

    def does_not_start() -> bool:
        try:
            keeper.ensure()
        except Forbidden as error:
            assert not kept.file.exists()
            return stage.refused in str(error)
        assert kept.file.exists()
        return False

    yield does_not_start
