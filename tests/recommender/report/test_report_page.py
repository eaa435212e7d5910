"""The HTML of the page: complete, self-contained, and safe against any container name."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import numpy as np
import orjson
import pytest

from recommender.base.nodes import NodeUse
from recommender.base.records import ContainerReplay, ReplayResult, RunTally, Tally
from recommender.report import page as page_module
from recommender.report.page import render_page, script_json
from recommender.report.page_words import fact_pairs
from recommender.report.summary import Prices
from recommender.report.timeline_data import MAX_POINTS, timeline_data
from tests.recommender.report.simulation import HOSTILE, Simulated, page_of, simulated_run

WHEN = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
VOID = {"meta", "input", "link", "br"}


class Reader(HTMLParser):
    """Collects elements, and fails if one is closed out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def page(run: Simulated) -> str:
    return page_of(run)


def test_the_page_opens_with_the_headline_and_shows_date_and_version(page: str) -> None:
    heading = re.search(r"<h1>(.*?)</h1>", page)
    assert heading and heading[1].startswith("phasewise would have reserved 46\u00a0% less CPU")
    assert "2026-11-21 08:00 UTC" in page and "version 0.1.0" in page


def test_the_table_of_nodes_leaves_out_what_no_row_has_and_names_larger_pods(run: Simulated) -> None:
    use = NodeUse(2.0, 5.0, 3, 0.0, 4.0, 0, math.nan, (HOSTILE,), ())
    result = replace(run.result, nodes={"static": use, "phasewise": replace(use, node_hours=3.0, displaced=7)})
    text = page_of(replace(run, result=result))
    table = text[text.index('id="node-table"') :].partition("</table>")[0]
    headers = re.findall(r'class="sort">([^<]+?) ?<', table)
    assert headers == ["Requests", "node-", "mean", "peak", "pods", "cost/"]
    assert [row.split("</td>")[0][-4:] for row in table.split("</th>")[-2:]] == ["5.00", "3.00"]
    assert "larger than every node type" in table and HOSTILE not in text
    read(text)


def test_every_element_is_closed_and_every_id_is_unique(page: str) -> None:
    ids = [attributes["id"] for _, attributes in read(page).elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_nothing_is_fetched_from_anywhere(page: str) -> None:
    elements = read(page).elements
    assert not [tag for tag, _ in elements if tag in {"link", "img", "iframe", "object", "embed", "base", "form"}]
    for _, attributes in elements:
        assert not {"src", "srcset", "onclick", "onload"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
    assert "@import" not in page
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= {"#hatch", "#tip"}
    assert set(re.findall(r"https?://[^\s\"'<]*", page)) <= {"http://www.w3.org/2000/svg"}


def test_markup_in_a_container_name_is_escaped_in_the_page_and_in_its_data(page: str) -> None:
    reader = read(page)
    assert page.count("<script") == 2 and "<script>alert" not in page
    assert HOSTILE in "".join(reader.text)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data and "<" not in data[1]
    assert orjson.loads(data[1])["timelines"][0]["container"] == HOSTILE


def test_embedded_json_parses_to_the_same_value() -> None:
    value = {"</script><!--": "\u2028&<>\u2029"}
    text = script_json(value)
    assert not set("<>&\u2028\u2029") & set(text) and orjson.loads(str(text)) == value


def test_table_headers_have_a_scope_and_charts_have_a_label(page: str) -> None:
    elements = read(page).elements
    assert all("scope" in attributes for tag, attributes in elements if tag == "th")
    for tag, attributes in elements:
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"


def test_money_and_its_formula_appear_only_with_prices(run: Simulated, page: str) -> None:
    priced = page_of(run, prices=Prices(0.04, 0.005, 1.0, 0.1))
    assert "Net saving" in priced and "net saving = cost of the baseline" in priced
    assert "0.04 per core-hour" in priced and "Net saving" not in page


def test_containers_left_out_and_limits_of_the_report_are_stated(page: str) -> None:
    assert "3 containers could not be judged" in page and "fewer than 5 samples" in page
    for words in ("Contention.", "Real kills and restarts.", "flowcon was left out", "cross-fitted, 5 folds"):
        assert words in page


def test_policies_run_in_a_simulated_cluster_are_distinguished_from_decisions_by_cycle() -> None:
    """What kills lose is shown next to what is reserved, and subtracted from savings."""
    tallies = {name: Tally(samples=10, judged_s=36_000, allocated=(36_000, 0)) for name in ("static", "phasewise")}
    tallies["histogram"] = tallies["static"]
    runs = {"static": RunTally(1), "phasewise": RunTally(1, 1, 1, lost=(9_000, 0))}
    container = ContainerReplay("a", None, tallies, runs)
    result = ReplayResult(60, 600, tuple(tallies), frozenset(), (container,), (), {})
    text = " ".join(read(render_page(result, (), generated_at=WHEN, version="0")).text)
    assert "static, phasewise: run in a simulated cluster" in text
    assert "histogram: one decision per cycle of 10 min, in force at once" in text
    assert "10.0 + 2.50" in text and "−2.50 (−25\xa0%)" in text and "reserved and lost minus" in text
    assert "take effect at once" not in text


def test_the_number_of_containers_is_capped_with_a_notice_and_the_most_harmed_stay(
    run: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "MAX_CONTAINERS", 6)
    capped = page_of(run)
    assert "6 of 16 containers are shown" in capped
    most_harmed = max(run.result.containers, key=lambda c: c.tallies["phasewise"].oom_events)
    table = capped[capped.index('id="container-table"') : capped.index('id="timelines"')]
    assert table.count("<tr") == 7
    assert most_harmed.container.replace("<", "&lt;").replace(">", "&gt;").split("'")[0] in table


def test_the_page_of_long_recordings_stays_small() -> None:
    big = simulated_run(containers=3, samples=(9_000, 9_001))
    text = page_of(big)
    assert len(text) < 700_000
    data = timeline_data(big.timelines[0], big.result.policies)
    for resource, line in enumerate(data["usage"]):
        assert len(line["t"]) <= MAX_POINTS
        peak = np.nanmax(big.timelines[0].usage[:, resource]) / (1 if resource == 0 else 2**30)
        assert max(v for v in line["v"] if v is not None) == pytest.approx(peak, rel=1e-3)


def test_the_page_renders_without_model_timelines_or_baseline() -> None:
    tally = Tally(samples=10, judged_s=150, used=(1, 1), allocated=(2, 2), slack=(1, 1))
    bare = ReplayResult(0, 600, ("mine",), frozenset(), (ContainerReplay("a", None, {"mine": tally}),), (), {})
    text = render_page(bare, (), generated_at=WHEN, version="0")
    read(text)
    assert "No container was left out." in text and 'id="timelines"' not in text and 'id="phases"' not in text


def test_what_a_policy_adds_is_a_share_without_a_minus() -> None:
    tallies = {"static": Tally(samples=10, allocated=(3600, 1e12)), "phasewise": Tally(samples=10, allocated=(5400, 0))}
    policies = tuple(tallies)
    worse = ReplayResult(15, 600, policies, frozenset(), (ContainerReplay("a", None, tallies),), (), {})
    text = render_page(worse, (), generated_at=WHEN, version="0")
    assert 'CPU added</dt><dd><b>0.50</b> core-hours</dd><dd class="sub">50\u00a0% of 1.00 under static' in text
    assert "Memory saved" in text and ">100\u00a0% of" in text


def test_with_no_judged_container_the_page_says_so() -> None:
    empty = ReplayResult(15, 600, ("static",), frozenset(), (), (("a", "too short"),), {})
    text = render_page(empty, (), generated_at=WHEN, version="0")
    read(text)
    assert "No container could be judged." in text and "too short" in text


def test_timelines_without_phases_or_reasons_are_drawn(run: Simulated) -> None:
    plain = [replace(timeline, labels=None, explanations={}, reasons={}) for timeline in run.timelines[:1]]
    text = render_page(run.result, plain, generated_at=WHEN, version="0")
    read(text)
    assert '"phases":[]' in text


def test_explanations_are_written_with_units() -> None:
    facts = {
        "rule": "quantile", "cpu_cores": 1.5, "memory_bytes": 3 * 2**30, "lead_s": 90.0, "q": np.float64(0.97312),
        "n": 4200, "price": math.inf, "own": math.nan,
        "cpu": {"context": [2, 3], "unknown": None, "kept": True},
    }  # fmt: skip
    assert fact_pairs(facts) == [
        ("rule", "quantile"), ("cpu", "1.5 cores"), ("memory", "3.00 GiB"), ("lead", "1m30s"), ("q", "0.9731"),
        ("n", "4,200"), ("price", "inf"), ("own", "nan"),
        ("cpu: context", "2, 3"), ("cpu: unknown", "–"), ("cpu: kept", "yes"),
    ]  # fmt: skip


def test_model_facts_are_flattened() -> None:
    facts = {"origin": "bundled", "training": {"step_s": 15, "features": ["a", "b"]}}
    assert fact_pairs(facts) == [("origin", "bundled"), ("training: step", "15s"), ("training: features", "a, b")]
