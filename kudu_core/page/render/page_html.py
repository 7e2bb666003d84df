"""The page as a whole: one file, which asks for nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from kudu_core.page.figures import in_bytes, in_count, in_time, of_micros
from kudu_core.page.render.columns_html import columns_section
from kudu_core.page.render.findings import findings_section, unknown_section
from kudu_core.page.render.maintenance_html import maintenance_section
from kudu_core.page.render.markup import cards, name, section, text
from kudu_core.page.render.script import SCRIPT
from kudu_core.page.render.storage_html import log_section, memory_section, schema_section
from kudu_core.page.render.style import STYLE
from kudu_core.page.render.tablets_html import tablets_section
from kudu_core.page.render.time_html import time_section

if TYPE_CHECKING:
    from kudu_core.page.report_data import ReportData, ReportedTablet

SECTIONS = (
    ("tablets", "tablets"),
    ("time", "time"),
    ("columns", "columns"),
    ("maintenance", "maintenance"),
    ("memory", "memory"),
    ("log", "log"),
    ("schema", "schema"),
    ("unknown", "not known"),
)

_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()


def policy(*, live: bool) -> str:
    """What a browser may do for the page: run its one script, by its hash; ``live``: and ask where it came
    from.  So a text that were not escaped could not run either."""
    asks = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src 'sha256-{_HASH}'; style-src 'unsafe-inline'; connect-src {asks}; "
        "base-uri 'none'; form-action 'none'"
    )


def page_html(data: ReportData, *, live_s: float | None = None) -> str:
    """One self-contained page; ``live_s``: it asks for newer content so often, in seconds."""
    live = "" if live_s is None else f' data-live="{live_s:g}"'
    again = ""
    if live_s is not None:
        again = f'<noscript><meta http-equiv="refresh" content="{max(1, live_s):.0f}"></noscript>'
    links = "".join(f'<li><a href="#{id_}">{text(told)}</a></li>' for id_, told in SECTIONS)
    return (
        f'<!DOCTYPE html><html lang="en"{live}><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{text(policy(live=live_s is not None))}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{again}<title>{text(data.path)}</title><style>{STYLE}</style></head><body>"
        '<p class="alarm" id="alarm" role="alert" hidden></p>'
        f'<header><div class="top"><div><h1>{name(data.path)}</h1></div>'
        '<button type="button" id="theme" class="theme" hidden></button></div></header>'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>'
        f"<main>{content_html(data)}</main>"
        f"<footer>kudu_core {text(data.version)}, table {text(data.uuid)}</footer>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def content_html(data: ReportData) -> str:
    """What a live page exchanges."""
    return "".join(
        [
            _overview(data),
            findings_section(data),
            tablets_section(data),
            time_section(data),
            columns_section(data),
            maintenance_section(data),
            memory_section(data),
            log_section(data),
            schema_section(data),
            unknown_section(data),
        ]
    )


def _overview(data: ReportData) -> str:
    there = [t for t in data.tablets if t.dropped_ts is None]
    mode = "open for writing" if data.mode == "rw" else "open for reading"
    told = (
        f"{mode}, epoch {data.epoch}, {'in an object store' if data.in_store else 'in a folder'}; "
        f"seen {of_micros(data.made_us)} UTC, state of {in_time(data.history.newest_ts)}"
    )
    gone = len(data.tablets) - len(there)
    return section(
        "overview",
        "At a glance",
        f'<p class="muted">{text(told)}</p>',
        cards(
            [
                (
                    "rows stored",
                    in_count(sum(t.rows_stored for t in data.tablets)),
                    "with deleted ones that history keeps",
                ),
                ("on disk", in_bytes(sum(t.disk_bytes for t in data.tablets)), "files of rows and changes"),
                ("tablets", in_count(len(there)), f"{gone} more have ended" if gone else data.partitioning),
                ("rowsets", in_count(sum(len(t.rowsets) for t in data.tablets)), "on disk"),
                ("average height", f"{_height(data.tablets):.2f}", "rowsets to look into for a key"),
                (
                    "deltas",
                    in_bytes(sum(t.redo_bytes + t.undo_bytes for t in data.tablets)),
                    "of the bytes on disk",
                ),
                (
                    "in memory",
                    in_bytes(sum(t.memory_bytes for t in data.tablets)),
                    f"{in_count(sum(t.memory_rows for t in data.tablets))} new rows",
                ),
                (
                    "log",
                    "not known" if data.log.bytes is None else in_bytes(data.log.bytes),
                    "that an open would replay",
                ),
            ]
        ),
    )


def _height(tablets: list[ReportedTablet]) -> float:
    """Averaged over the data of all tablets."""
    total = sum(t.disk_bytes for t in tablets)
    return sum(t.height * t.disk_bytes for t in tablets) / total if total else 0.0


__all__ = ["content_html", "page_html", "policy"]
