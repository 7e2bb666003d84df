"""The page in Chromium: it is whole, says nothing to the console, and does what it offers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.page.render.page_html import page_html
from kudu_core.web.server import page_server
from tests.support.page.browser import MISSING, Browser, is_there
from tests.support.page.reported import table_of_everything, with_tablets
from tests.support.tables import Make

pytestmark = pytest.mark.skipif(not is_there(), reason=MISSING)

SECTIONS = (
    "overview", "findings", "tablets", "time", "columns", "maintenance", "memory", "log", "schema", "unknown",
)  # fmt: skip

FAINT = """
function parts(color) { return color.match(/[\\d.]+/g).map(Number); }
function light(color) {
  var c = parts(color).slice(0, 3).map(function (v) {
    v /= 255;
    return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4);
  });
  return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
}
function ground(at) {
  for (; at; at = at.parentElement) {
    var color = getComputedStyle(at).backgroundColor, p = parts(color);
    if (p.length === 3 || p[3] > 0) return color;
  }
}
var faint = [];
document.querySelectorAll("body *").forEach(function (at) {
  var own = Array.prototype.some.call(at.childNodes, function (n) {
    return n.nodeType === 3 && n.data.trim();
  });
  if (!own || !at.getClientRects().length || at.closest("svg")) return;
  var a = light(getComputedStyle(at).color), b = light(ground(at));
  var contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) faint.push(at.tagName + " " + at.className + " " + contrast.toFixed(2));
});
return faint;
"""

CLIPPED = """
var clipped = [];
document.querySelectorAll("h1,h2,h3,p,dt,dd,summary,button,caption,li").forEach(function (at) {
  var inline = getComputedStyle(at).display === "inline";
  if (at.getClientRects().length && at.scrollWidth > at.clientWidth + 1 && !inline)
    clipped.push(at.tagName + " " + at.textContent.slice(0, 40));
});
if (document.documentElement.scrollWidth > document.documentElement.clientWidth)
  clipped.push("the page is wider than its window");
return clipped;
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as opened:
        yield opened


@pytest.fixture
def data(make: Make) -> kc.ReportData:
    return table_of_everything(make).report().data


def shown(browser: Browser, data: kc.ReportData, tmp_path: Path, scheme: str = "light") -> None:
    target = tmp_path / "page.html"
    target.write_text(page_html(data))
    browser.prefer(scheme)
    browser.open(target)


def test_all_is_there_and_nothing_is_said_to_the_console(
    browser: Browser, data: kc.ReportData, tmp_path: Path
) -> None:
    shown(browser, with_tablets(data, 12), tmp_path)
    assert browser.run("return document.title").endswith("/t")  # and not what a name of a column says
    assert [s for s in SECTIONS if not browser.count(f"section#{s} h2")] == []
    assert browser.count(".cell") == 12 and browser.count("svg.bars g") == 12 * 4
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        assert browser.run(FAINT) == [], scheme
        assert browser.run(CLIPPED) == [], scheme
    assert browser.console() == []


def test_what_it_offers_works(browser: Browser, data: kc.ReportData, tmp_path: Path) -> None:
    shown(browser, with_tablets(data, 12), tmp_path)
    first = "return document.querySelector('.tablets-table tbody tr').id"
    heads = ".tablets-table th:nth-child(1) button"
    browser.click(heads)
    assert browser.run(first) == "row-1"
    browser.click(heads)
    assert browser.run(first) == "row-12"  # by number, not by text: 9 would be the first
    assert browser.count("th[aria-sort=descending]") == 1

    browser.type("input[type=search]", "= 11 of")
    assert browser.count(".tablets-table tbody tr:not(.hidden)") == 1

    before = browser.run("return getComputedStyle(document.querySelector('.cell')).backgroundColor")
    browser.click("button[data-measure=bytes]")
    assert browser.run("return getComputedStyle(document.querySelector('.cell')).backgroundColor") != before

    assert browser.count("details[id][open]") == 0
    browser.click(".cell:nth-child(5)")
    assert browser.run("return document.querySelector('details[id][open]').id") == "tablet-5"
    browser.click("button[data-open=yes]")
    assert browser.count("details[id][open]") == 12

    ground = "return getComputedStyle(document.body).backgroundColor"
    seen = {browser.run(ground)}
    for _ in range(2):  # from "auto", which is light here, to light and to dark
        browser.click("#theme")
        seen.add(browser.run(ground))
    assert len(seen) == 2
    assert browser.run("return document.getElementById('theme').textContent") == "colours: dark"
    browser.click("#theme")
    assert browser.console() == []


def test_a_live_page_shows_what_was_written_since(browser: Browser, make: Make) -> None:
    table = make()
    table.insert({"k": [1]})
    with page_server(table, port=0, refresh_s=0.2) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            browser.open(server.url)
            rows = "return document.querySelector('.cards dd').textContent"
            assert browser.run(rows) == "1"
            browser.run("document.querySelector('#schema summary').click()")
            table.insert({"k": [2, 3]})
            for _ in range(100):
                if browser.run(rows) == "3":
                    break
                threading.Event().wait(0.1)
            assert browser.run(rows) == "3"
            assert browser.count("#schema details[open]") == 1  # it stayed open
            assert browser.console() == []
        finally:
            browser.open("about:blank")  # or it would ask a server that has gone
            server.close()
            thread.join()


@pytest.mark.parametrize("tablets", [1, 12, 1000])
def test_any_number_of_tablets_is_readable(
    browser: Browser, data: kc.ReportData, tmp_path: Path, tablets: int, long: bool
) -> None:
    if not long:
        pytest.skip("with --long")
    for scheme in ("light", "dark"):
        shown(browser, with_tablets(data, tablets), tmp_path, scheme)
        assert browser.run(FAINT) == [] and browser.run(CLIPPED) == []
        assert browser.console() == []
        browser.picture(tmp_path / f"{tablets}-{scheme}.png")
        assert (tmp_path / f"{tablets}-{scheme}.png").stat().st_size > 20_000
