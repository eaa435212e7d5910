"""Samples held against what containers have: by hand, and all together as one by one."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import read_pod
from recommender.live.advice.book import Book, tells
from recommender.live.owners.judging import uses_all
from recommender.live.view.present import NOTHING
from tests.recommender.live.test_round import Records, a_pod, a_vpa, recommender, rounds

amount = st.one_of(st.floats(0.0, 100.0), st.just(math.nan))


def test_a_container_at_its_request_or_its_limit_uses_all_that_it_has() -> None:
    cases = [
        (0.95, 1.0, math.nan, True), (1.05, 1.0, math.nan, True), (0.9, 1.0, math.nan, False),
        (1.5, 1.0, 2.0, False), (1.9, 1.0, 2.0, True), (3.0, math.nan, math.nan, False), (3.0, math.nan, 3.0, True),
    ]  # fmt: skip
    *amounts, wanted = map(np.array, zip(*cases, strict=True))
    assert uses_all(*amounts).tolist() == wanted.tolist()


@given(st.lists(st.tuples(st.floats(0.0, 100.0), amount, amount), min_size=1, max_size=20))
def test_all_together_as_one_by_one(cases: list[tuple[float, float, float]]) -> None:
    alone = [had * 0.95 <= used <= had * 1.05 or used >= limit * 0.95 for used, had, limit in cases]
    assert uses_all(*np.array(cases).T).tolist() == alone


def test_what_tells_of_one_resource_tells() -> None:
    assert [tells(amounts) for amounts in ((1.0, 2.0), (math.nan, 2.0), (1.0, math.nan), NOTHING)] == [True] * 3 + [
        False
    ]
    book = Book()
    assert not book.speaks
    book.stand((math.nan, 2.0))
    assert book.speaks
    book.stand((math.nan, math.nan))
    assert not book.speaks and book.published is NOTHING


def test_nobody_is_judged_before_a_target_is_published_nor_without_a_request() -> None:
    cluster = Records()
    cluster.raw["job"], nothing = a_vpa(), {"metadata": {"namespace": "ns", "name": "asks-nothing", "uid": "u"}}
    bare = read_pod({**nothing, "spec": {"containers": [{"name": "main"}]}, "status": {"phase": "Running"}})
    cluster.pods["job"] = [a_pod("job-1"), bare]
    ours = recommender(cluster)
    judged = [rounds(ours, cluster, 1, cpu_cores=2.5).judged for _ in range(40)]
    assert judged[0] == 0 and judged[-1] == 1
    book = ours.workloads[ObjectKey("ns", "job")].books["main"]
    assert book.violation_ratio == (1.0, 0.0)
