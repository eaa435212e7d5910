"""The page in a real browser: it draws, reacts to every control, fetches nothing, and fits a phone.

One page is opened for all tests; each sets what it needs. Clicks are made inside the page where there are many, since
every step of a browser that is driven from outside costs a round trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from recommender.report.summary import Prices
from tests.browser import ARGUMENTS, CHROMIUM, PATIENCE_MS, WHY_NOT
from tests.recommender.report.simulation import HOSTILE, Simulated, page_of

if TYPE_CHECKING:  # it takes a third of a second to import, and every worker would, though one at most opens the page
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=PATIENCE_MS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(run: Simulated, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_of(run, prices=Prices(0.04, 0.005, 1.0, 0.1)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def open_page(browser: Browser, report: Path) -> Iterator[Page]:
    """The page; at the end nothing but the file may have been fetched, and nothing logged."""
    requests: list[str] = []
    errors: list[str] = []
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme="light", offline=True)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    yield page
    context.close()
    assert errors == []
    assert requests == [report.as_uri()]


@pytest.fixture
def page(open_page: Page) -> Page:
    """The page in a desktop window."""
    open_page.set_viewport_size({"width": 1200, "height": 900})
    open_page.emulate_media(media="screen", color_scheme="light")
    return open_page


def test_the_chart_shows_use_phases_and_the_checked_policies_of_the_first_container(page: Page) -> None:
    found = page.evaluate("""() => {
        const all = (query) => [...document.querySelectorAll(query)];
        return {
            container: document.querySelector('#which').selectedOptions[0].textContent,
            usage: all('#drawing path.usage').length,
            checked: all('#lines input[value]:not(#bands)').filter((box) => box.checked).length,
            lines: all('#drawing path.alloc').length,
            bands: all('#drawing rect').length,
            label: document.querySelector('#drawing svg').getAttribute('aria-label'),
            why: all('#why h4').map((heading) => heading.textContent),
        };
    }""")
    assert found["container"] == HOSTILE and "phasewise" in found["label"]
    assert (found["usage"], found["checked"], found["lines"]) == (2, 3, 6) and found["bands"] > 10
    assert found["why"] == ["phasewise", "histogram"]


def test_samples_with_a_gap_on_either_side_are_drawn_as_dots(browser: Browser, run: Simulated, tmp_path: Path) -> None:
    usage = run.timelines[0].usage.copy()
    usage[1::2] = np.nan
    sparse = Simulated(run.result, (replace(run.timelines[0], usage=usage),))
    (tmp_path / "sparse.html").write_text(page_of(sparse), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "sparse.html").as_uri())
    inked = page.evaluate("""() => {
        const path = document.querySelector('#drawing path.usage');
        const [, x, y] = /^M([\\d.]+),([\\d.]+)/.exec(path.getAttribute('d'));
        return path.isPointInStroke(new DOMPoint(x, y));
    }""")
    page.close()
    assert inked


def test_every_policy_checkbox_adds_and_removes_its_lines(page: Page) -> None:
    steps = page.evaluate("""() => [...document.querySelectorAll('#lines input[value]:not(#bands)')].flatMap((box) =>
        [1, 2].map(() => {
            box.click();
            return [box.checked, document.querySelectorAll(`#drawing path.alloc.p${box.value}`).length];
        }))""")
    assert len(steps) == 16 and all(lines == (2 if checked else 0) for checked, lines in steps)
    assert {checked for checked, _ in steps} == {True, False}


def test_resizes_and_kills_are_marked_below_the_charts_while_their_policy_is_drawn(page: Page) -> None:
    found = page.evaluate("""() => {
        const count = () => ['asked', 'applied', 'deferred', 'killed'].map(
            (what) => document.querySelectorAll(`#drawing path.mark.${what}`).length);
        const labels = [...document.querySelectorAll('#lines label')];
        const box = labels.find((label) => label.textContent.includes('phasewise'));
        const title = document.querySelector('#drawing path.mark.killed title').textContent;
        const drawn = count();
        box.click();
        const without = count();
        box.click();
        return {drawn, without, title, legend: document.querySelectorAll('#mark-legend > span').length};
    }""")
    asked, applied, deferred, killed = found["drawn"]
    assert asked == applied > 3 and (deferred, killed) == (0, 1)
    assert found["without"] == [0, 0, 0, 0] and found["legend"] == 4
    assert found["title"].startswith("phasewise, ") and found["title"].endswith(": OOM-killed")


def test_the_reason_for_a_target_is_shown_for_the_time_pointed_at(page: Page) -> None:
    page.locator("#which").select_option("1")
    card = page.locator("#why > div", has=page.get_by_role("heading", name="phasewise"))
    assert "80% that phase 2 starts within 40 s" in card.inner_text(), "until a time is chosen, the last one"
    page.locator("#drawing svg").focus()
    page.keyboard.press("Home")
    assert card.locator("dd").count() == 0, "nothing was published by then"
    for _ in range(3):
        page.keyboard.press("PageDown")
    assert card.locator("dd").all_inner_texts()[1:] == ["phase.plan"]
    page.keyboard.press("End")
    assert "80% that phase 2 starts within 40 s" in card.inner_text()


def test_the_bands_of_phases_can_be_switched_off_with_a_mouse_click(page: Page) -> None:
    page.locator("#bands").click()
    assert page.locator("#drawing rect").count() == 0
    page.locator("#bands").click()
    assert page.locator("#drawing rect").count() > 10


def test_choosing_another_container_draws_it_and_its_reasons(page: Page) -> None:
    drawn = page.evaluate("""() => {
        const which = document.querySelector('#which');
        return [...which.options].map((option) => {
            which.value = option.value;
            which.dispatchEvent(new Event('change'));
            return [option.textContent, document.querySelector('#drawing svg').getAttribute('aria-label'),
                    document.querySelector('#drawing path.usage').getAttribute('d')];
        });
    }""")
    assert len(drawn) == 12 and len({line for _, _, line in drawn}) == 12
    assert all(label.startswith(f"{name}: use") for name, label, _ in drawn)
    page.locator("#which").select_option("0")
    assert str(page.locator("#drawing svg").get_attribute("aria-label")).startswith(HOSTILE)


def test_pointing_and_arrow_keys_read_values(page: Page) -> None:
    drawing, readout = page.locator("#drawing svg"), page.locator("#readout")
    drawing.hover(position={"x": 600, "y": 100})
    pointed = readout.inner_text()
    assert "used" in pointed and "cores" in pointed and "phasewise" in pointed
    drawing.focus()
    page.keyboard.press("ArrowRight")
    assert readout.inner_text() != pointed
    page.keyboard.press("Home")
    assert readout.inner_text().startswith("0, phase unknown: used")
    times = page.evaluate("""() => Array.from({length: 100}, () => {
        const [drawn, read] = [document.querySelector('#drawing svg'), document.querySelector('#readout')];
        drawn.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
        return read.textContent.split(',')[0];
    })""")
    assert len(set(times)) == 100 and not [time for time in times if " 60 s" in time]


@pytest.mark.parametrize(
    ("table", "columns"), [("workload-table", 15), ("policy-table", 12), ("money-table", 6), ("container-table", 10)]
)
def test_every_heading_sorts_both_ways(page: Page, table: str, columns: int) -> None:
    steps: list[dict[str, Any]] = page.evaluate(
        """(id) => {
            const table = document.getElementById(id), headings = [...table.tHead.rows[0].cells];
            return headings.flatMap((heading, i) => [1, 2].map(() => {
                heading.querySelector('button').click();
                return {
                    sorted: heading.getAttribute('aria-sort'), numeric: heading.className === 'n',
                    marked: table.querySelectorAll('[aria-sort]').length,
                    values: [...table.tBodies[0].rows].map((row) => row.cells[i].dataset.v),
                };
            }));
        }""",
        table,
    )
    assert len(steps) == 2 * columns
    for number, step in enumerate(steps):
        down = number % 2 == 1
        assert step["sorted"] == ("descending" if down else "ascending") and step["marked"] == 1
        if step["numeric"]:
            numbers = [float(value) for value in step["values"] if value]
            assert numbers == sorted(numbers, reverse=down)
        assert sorted(step["values"]) == sorted(steps[number - number % 2]["values"])


def test_a_heading_sorts_by_mouse_and_by_keyboard(page: Page) -> None:
    button = page.locator("#research-table thead button").nth(1)
    button.click()
    assert page.locator("#research-table tbody th").first.inner_text().startswith("ground.truth")
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("#research-table thead th").nth(1).get_attribute("aria-sort") == "descending"
    assert page.locator("#research-table tbody th").first.inner_text().startswith("histogram")


def test_search_and_filter_show_only_matching_rows(page: Page) -> None:
    rows = page.locator("#container-table tbody tr:visible")
    page.locator("#find").fill("TRAIN-2")
    assert rows.count() == 3 and page.locator("#found").inner_text() == "3 of 16 shown"
    page.locator("#find").fill("<script>")
    assert rows.count() == 1
    page.locator("#find").fill("")
    assert rows.count() == 16
    page.locator("#harmed").click()
    assert 0 < rows.count() < 16
    page.locator("#harmed").click()
    assert rows.count() == 16


def test_folded_sections_open_and_links_lead_to_existing_sections(page: Page) -> None:
    heights = page.evaluate("""() => [...document.querySelectorAll('details:not(.part)')].map((part) => {
        const folded = part.clientHeight;
        part.querySelector('summary').click();
        return [folded, part.clientHeight];
    })""")
    assert len(heights) == 4 and all(opened > folded + 20 for folded, opened in heights)
    targets = page.evaluate("[...document.links].map((a) => document.querySelectorAll(a.getAttribute('href')).length)")
    assert len(targets) == 8 and set(targets) == {1}


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (768, "dark"), (1920, "dark")])
def test_no_width_scrolls_sideways_and_the_colours_follow_the_scheme(page: Page, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.wait_for_function(
        """() => document.querySelector('#drawing svg').viewBox.baseVal.width
                 === document.querySelector('#drawing').clientWidth"""
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert shade == ("rgb(20, 23, 26)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_on_a_phone_a_few_screens_come_first_and_the_rest_when_it_is_asked_for(browser: Browser, report: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, offline=True)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollHeight") < 3000
    assert page.locator("details.part[open]").count() == 0
    page.locator("nav a[href='#timelines']").click()
    page.locator("#drawing path.usage").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_no_text_of_a_scatter_plot_is_cut_off(page: Page) -> None:
    boxes = page.evaluate("""() => [...document.querySelectorAll('.pair svg')].flatMap((svg) => {
        const frame = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].map((text) => {
            const box = text.getBoundingClientRect();
            return [box.left - frame.left, frame.right - box.right, box.top - frame.top, frame.bottom - box.bottom];
        });
    })""")
    assert len(boxes) > 40 and min(min(box) for box in boxes) > -12


def test_the_page_prints_dark_on_white_and_without_controls(page: Page) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#find").is_visible() and page.locator("#research-table").is_visible()


def test_without_scripts_the_results_are_still_shown(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    context.set_default_timeout(PATIENCE_MS)
    plain = context.new_page()
    plain.goto(report.as_uri())
    assert plain.locator("#policy-table tbody tr:visible, #research-table tbody tr:visible").count() == 9
    assert plain.locator(".pair svg").count() == 2
    assert plain.get_by_text("need JavaScript").is_visible()
    context.close()
