"""The policy that refuses slips of the pen knows the annotations that the programs read, and no others."""

from __future__ import annotations

import re

import yaml

from extender.gangs.names import RESERVED_NODE
from extender.pods.groups import GANG_LABEL, SIZE
from extender.pods.pod import (
    DATA_ANNOTATION,
    EXPLAIN_ANNOTATION,
    PLACEMENT_ANNOTATION,
    SIZE_ANNOTATION,
    WEIGHTS_ANNOTATION,
)
from recommender.cluster.objects.pods import CHECKPOINTABLE, INPUT_SIZE
from recommender.cluster.objects.vpa import SHARES
from recommender.cluster.progress.annotations import PROGRESS, STAGE
from recommender.cluster.progress.logs import ASKS
from recommender.live.auto.settings import MAX_CPU, MAX_MEMORY, MIN_CPU, MIN_MEMORY, MODE, MODES
from tests.manifests.reading import MANIFESTS

READ = {
    MODE, MIN_CPU, MAX_CPU, MIN_MEMORY, MAX_MEMORY, PROGRESS, ASKS, STAGE, WEIGHTS_ANNOTATION, PLACEMENT_ANNOTATION,
    INPUT_SIZE, SHARES, DATA_ANNOTATION, SIZE_ANNOTATION, EXPLAIN_ANNOTATION, GANG_LABEL, SIZE, RESERVED_NODE,
    CHECKPOINTABLE,
}  # fmt: skip

POLICY, BINDING = yaml.safe_load_all((MANIFESTS / "recommender" / "annotations.yaml").read_text())
RULES = [each["expression"] for each in POLICY["spec"]["validations"]]
(KNOWN,) = (each["expression"] for each in POLICY["spec"]["variables"] if each["name"] == "known")


def test_it_knows_the_annotations_that_are_read() -> None:
    assert set(re.findall(r"'(phasewise\.dev/[\w-]+)'", KNOWN)) == READ


def test_it_knows_the_modes() -> None:
    (modes,) = (rule for rule in RULES if MODE in rule and "Initial" in rule)
    assert tuple(re.findall(r"'(\w+)'", modes)) == MODES


def test_it_is_bound_and_denies() -> None:
    assert BINDING["spec"] == {"policyName": POLICY["metadata"]["name"], "validationActions": ["Deny"]}
