"""The scripts of the pages, in a real browser that the application in this process answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser import ARGUMENTS, CHROMIUM, PATIENCE_MS, WHY_NOT
from tests.extender.dashboard import scenes
from tests.extender.dashboard.scenes import HTML, client, view_of

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = [pytest.mark.real, pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)]


@pytest.fixture
def page() -> Iterator[Page]:
    """The page of a class whose three runs had peaks of 1, 2 and 2.5 GiB."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    pages = client(view_of(profiles=[scenes.class_profile()]))
    responses = {path: pages.get(path, **HTML) for path in ("/classes", "/page.css", "/page.js")}

    def answer(route: Route) -> None:
        response = responses["/" + route.request.url.split("/", 3)[3]]
        route.fulfill(status=response.status_code, headers=dict(response.headers), body=response.text)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=PATIENCE_MS)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.route("**/*", answer)
        yield page
        browser.close()


def test_a_margin_over_earlier_peaks_shows_the_chance_that_the_next_run_exceeds_it(page: Page) -> None:
    """Two of three runs needed more than 70 % of 2.5 GiB: the next one does with a chance of at most 3 in 4."""
    page.goto("http://web.example/classes")
    text, margin = page.locator("output"), page.locator("input[type=range]")
    untouched = "100 %, 2.50Gi: 0 of 3 runs needed more; the next one does with a chance of at most 25 %"
    assert text.inner_text() == untouched

    margin.fill("70")
    assert text.inner_text() == "70 %, 1.75Gi: 2 of 3 runs needed more; the next one does with a chance of at most 75 %"

    margin.fill("100")
    assert text.inner_text() == untouched
