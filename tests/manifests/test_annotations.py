"""The admission policy for annotations knows exactly those that the programs read and write."""

from __future__ import annotations

import re

import yaml

from extender.moves.store import BARRED
from extender.pods.pod import WEIGHTS_ANNOTATION
from extender.scoring.scorers import SCORERS
from recommender.cluster.model_map import PUBLISHED_AT
from recommender.cluster.objects.vpa import PAUSE
from recommender.cluster.profiles import MOVE, PROFILES
from recommender.cluster.vpas.auto_created import DIGEST_ANNOTATION, PROBLEM_ANNOTATION, RECOMMENDER_LABEL
from recommender.cluster.workloads.workload_class import WORKLOAD_LABEL
from recommender.live.auto.settings import AUTO, MODE, MODES
from tests.manifests.reading import MANIFESTS, ROOT

LABELS = {AUTO, WORKLOAD_LABEL, RECOMMENDER_LABEL}
ON_OTHER_OBJECTS = {DIGEST_ANNOTATION, PROBLEM_ANNOTATION, PUBLISHED_AT, MOVE, BARRED, PAUSE}
"""Annotations of VPAs, ConfigMaps and PhaseProfiles."""

NAME = re.compile(r"""["'](?:phasewise\.dev/|\{PREFIX\})([a-z][\w-]*\w)["']""")

POLICY, BINDING = yaml.safe_load_all((MANIFESTS / "recommender" / "annotations.yaml").read_text())
RULES = [each["expression"] for each in POLICY["spec"]["validations"]]
(KNOWN,) = (each["expression"] for each in POLICY["spec"]["variables"] if each["name"] == "known")


def named_in_the_code() -> set[str]:
    """Every name with our prefix that a program reads or writes."""
    files = [file for program in ("recommender", "extender") for file in (ROOT / program).rglob("*.py")]
    return {f"phasewise.dev/{name}" for file in files for name in NAME.findall(file.read_text())}


def test_the_policy_knows_exactly_the_annotations_of_pods_that_the_programs_use() -> None:
    known = set(re.findall(r"'(phasewise\.dev/[\w-]+)'", KNOWN))
    assert known == named_in_the_code() - LABELS - ON_OTHER_OBJECTS - {PROFILES[0]}


def test_the_policy_knows_the_modes() -> None:
    (modes,) = (rule for rule in RULES if MODE in rule and "Initial" in rule)
    assert tuple(re.findall(r"'(\w+)'", modes)) == MODES


def test_the_policy_knows_the_scorers() -> None:
    (weights,) = (rule for rule in RULES if WEIGHTS_ANNOTATION in rule)
    (names,) = re.findall(r"\(([a-z|]+)\)", weights)
    assert set(names.split("|")) == set(SCORERS)


def test_the_policy_is_bound_and_denies() -> None:
    assert BINDING["spec"] == {"policyName": POLICY["metadata"]["name"], "validationActions": ["Deny"]}
