"""The page itself: whole, of one file, with every text escaped, and small for any number of tablets."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.page.figures import in_bytes, in_rowset, in_seconds, in_share
from kudu_core.page.render.markup import text
from kudu_core.page.render.page_html import content_html, page_html
from kudu_core.page.render.tablets_html import DETAILED, detailed
from tests.support.inside import picture_of
from tests.support.page.reported import HOSTILE, table_of_everything, with_tablets
from tests.support.tables import Make

VOID = {"meta", "input", "rect", "line"}


class Page(HTMLParser):
    """Elements of a page; ``AssertionError`` where they do not close as they opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture
def data(make: Make) -> kc.ReportData:
    return table_of_everything(make).report().data


def test_nothing_of_the_table_becomes_html(data: kc.ReportData) -> None:
    maintenance = replace(
        data.maintenance,
        candidates=[
            replace(c, reason=HOSTILE, waits=HOSTILE, kind=HOSTILE) for c in data.maintenance.candidates
        ],
        done=[replace(d, error=HOSTILE, operation=HOSTILE) for d in data.maintenance.done],
    )
    assert maintenance.candidates and maintenance.done
    hostile = replace(
        data,
        maintenance=maintenance,
        history=replace(data.history, tags={HOSTILE: data.history.newest_ts}),
        path=f"/{HOSTILE}",
        partitioning=HOSTILE,
        unreplayed=HOSTILE,
        metrics={HOSTILE: 1.0},
        unknown=[HOSTILE],
        tablets=with_tablets(data, 3).tablets,
    )
    page = Page(page_html(hostile))
    assert len(page.all("script")) == 1
    assert page.texts.count(HOSTILE) > 10  # as text
    assert not [a for _, attributes in page.found for a in attributes if a.startswith("on")]
    assert not {"img", "iframe", "link", "object", "base"} & {tag for tag, _ in page.found}


def test_what_does_not_print_is_written_out() -> None:
    assert text("a\u202eb\x00\n<") == "a\\u{202e}b\\u{0}\\u{a}&lt;"
    assert text('"\'&') == "&quot;&#x27;&amp;"
    assert text("\ud800 \u00e9") == "\\u{d800} \u00e9"


def test_the_page_asks_for_nothing_from_elsewhere(data: kc.ReportData) -> None:
    html = page_html(data)
    page = Page(html)
    assert not re.search(r"https?://|url\(|@import|src=", html)
    [policy] = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None and "default-src 'none'" in policy and "connect-src 'none'" in policy
    links = {a["href"] for a in page.all("a")}
    ids = {f"#{attributes['id']}" for _, attributes in page.found if "id" in attributes}
    assert links <= ids and {"#tablets", "#time", "#columns", "#maintenance", "#memory", "#log"} <= links


def test_pictures_have_words_for_those_who_do_not_see_them(data: kc.ReportData) -> None:
    page = Page(page_html(with_tablets(data, 5)))
    pictures = page.all("svg")
    assert len(pictures) == 5 + 2 and all(p["role"] == "img" and p["aria-label"] for p in pictures)
    assert all(a.get("aria-label") for a in page.all("a") if "cell" in (a.get("class") or ""))
    headings = [tag for tag, _ in page.found if tag in ("h1", "h2", "h3")]
    assert headings[0] == "h1" and headings.count("h1") == 1
    assert page.all("html") == [{"lang": "en"}]


def test_numbers_of_the_table_are_on_the_page(data: kc.ReportData) -> None:
    shown = "".join(Page(content_html(data)).texts)
    [tablet] = data.tablets
    for told in ("403", in_bytes(tablet.disk_bytes), f"{tablet.height:.2f}", "tag <b>audit</b>"):
        assert told in shown


def test_a_thousand_tablets_fit_on_a_page(data: kc.ReportData) -> None:
    many = with_tablets(data, 1000)
    html = page_html(many)
    page = Page(html)
    assert len(html) < 3_000_000
    assert len([a for a in page.all("a") if "cell" in (a.get("class") or "")]) == 1000
    assert len([r for r in page.all("tr") if (r.get("id") or "").startswith("row-")]) == 1000
    shown = [d for d in page.all("details") if (d.get("id") or "").startswith("tablet-")]
    assert len(shown) == DETAILED
    worst = max(t.height for t in many.tablets)
    assert {t.height for t in detailed(many.tablets)} >= {worst}


def test_a_tablet_of_many_rowsets_is_drawn_as_a_profile(data: kc.ReportData) -> None:
    one = data.tablets[0]
    rowsets = [replace(one.rowsets[0], id=n, low=n / 5000, high=(n + 1) / 5000) for n in range(5000)]
    html = content_html(replace(data, tablets=[replace(one, rowsets=rowsets)]))
    assert len(html) < 200_000 and html.count("<rect") < 500
    assert "5,000 rowsets over its keys" in html


def test_the_page_is_written_whole_and_shown_in_a_frame(make: Make, tmp_path: Path) -> None:
    table = table_of_everything(make)
    target = tmp_path / "page.html"
    report = table.report(target)
    assert target.read_text() == report.html
    kc.report(table, target)
    assert target.read_text().startswith("<!DOCTYPE html>")
    frame = Page(picture_of(report))
    [attributes] = frame.all("iframe")
    assert attributes["srcdoc"] == report.html and attributes["sandbox"] == "allow-scripts"
    with pytest.raises(OSError):
        report.save(tmp_path / "no" / "folder.html")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (in_bytes(0), "0 B"),
        (in_bytes(1023), "1023 B"),
        (in_bytes(1 << 20), "1.0 MiB"),
        (in_bytes(1.5 * (1 << 40)), "1.5 TiB"),
        (in_seconds(0.25), "250 ms"),
        (in_seconds(90), "1.5 min"),
        (in_seconds(None), "for ever"),
        (in_seconds(-3), "-3.0 s"),
        (in_share(0.0001), "< 0.1 %"),
        (in_share(0.123), "12.3 %"),
        (in_rowset(2 << 32 | 17), "2-17"),
    ],
)
def test_figures_are_as_people_read_them(told: str, expected: str) -> None:
    assert told == expected
