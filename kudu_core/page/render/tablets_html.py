"""The section of tablets: all of them at a glance, as a table, and those that need it most one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kudu_core.page.figures import counted, in_bytes, in_rowset, in_share, in_time
from kudu_core.page.render.markup import (
    TableCell,
    expandable,
    name,
    number,
    paragraph,
    section,
    table,
    text,
    words,
)
from kudu_core.page.render.rowset_bars import DRAWN, bars_legend, grid, rowset_bars

if TYPE_CHECKING:
    from kudu_core.page.report_data import ReportData, ReportedTablet, RowSetFacts

DETAILED = 150
"""Tablets whose rowsets are drawn: of more, those that reads find in the worst state."""
DRAWN_IN_ALL = 6000
"""Rowsets that are drawn of all tablets together; the page stays some megabytes."""
ROWSETS_LISTED = 40
"""Of one tablet, in words."""
OPEN = 4
"""With so few tablets all of them are open from the start."""


def tablets_section(data: ReportData) -> str:
    tablets = data.tablets
    chosen = detailed(tablets)
    ids = {tablet.id for tablet in chosen}
    parts = [
        paragraph(
            "A bar is a rowset. Its place and width are what share of the tablet's data lies below its "
            "first and its last key, as the policy of merges estimates it from the bounds and sizes of "
            "rowsets; rowsets that lie over each other stand in lanes. The average height is in how many "
            "of them a key has to be looked for: 1 is best, and a merge lowers it.",
            "lead",
        )
    ]
    if len(tablets) > 1:
        parts += [grid(tablets, ids), _filter(), _overview(tablets, ids)]
    if len(chosen) < len(tablets):
        parts.append(
            paragraph(
                f"Below are the {len(chosen)} of {len(tablets):,} tablets in the worst state, by height and "
                "then by their share of deltas; the table has all.",
                "muted",
            )
        )
    parts.append(bars_legend())
    if len(chosen) > OPEN:
        parts.append(
            '<div class="tools"><button type="button" data-open="yes">expand all</button>'
            '<button type="button" data-open="no">collapse all</button></div>'
        )
    parts += [_tablet(tablet, is_open=len(chosen) <= OPEN) for tablet in chosen]
    return section("tablets", "Tablets and rowsets", *parts)


def detailed(tablets: Sequence[ReportedTablet]) -> list[ReportedTablet]:
    """The tablets that are shown one by one, in the order of ids."""
    worst = sorted(tablets, key=lambda t: (-t.height, -t.delta_share, t.id))
    chosen: list[ReportedTablet] = []
    drawn = 0
    for tablet in worst[:DETAILED]:
        drawn += min(DRAWN, len(tablet.rowsets))
        if chosen and drawn > DRAWN_IN_ALL:
            break
        chosen.append(tablet)
    return sorted(chosen, key=lambda t: t.id)


def _filter() -> str:
    return (
        '<div class="tools"><label>Find <input type="search" data-filter="tablets-table" '
        'placeholder="partition, key or number"></label></div>'
    )


def _overview(tablets: Sequence[ReportedTablet], detailed_ids: set[int]) -> str:
    header = [
        ("tablet", "n"), ("partition", ""), ("rowsets", "n"), ("height", "n"), ("most", "n"), ("rows", "n"),
        ("on disk", "n"), ("deltas", "n"), ("in memory", "n"), ("first key", ""), ("last key", ""),
    ]  # fmt: skip
    return table(
        "All tablets",
        header,
        ((f"row-{t.id}", _row(t, t.id in detailed_ids)) for t in tablets),
        class_="tablets-table",
    )


def _row(tablet: ReportedTablet, is_detailed: bool) -> list[TableCell]:
    shown = f'<a href="#tablet-{tablet.id}">{tablet.id}</a>' if is_detailed else str(tablet.id)
    gone = ' <span class="badge">dropped</span>' if tablet.dropped_ts is not None else ""
    return [
        TableCell(shown, tablet.id),
        TableCell(name(tablet.partition_text) + gone, tablet.partition),
        number(len(tablet.rowsets)),
        number(tablet.height, f"{tablet.height:.2f}"),
        number(tablet.most_height),
        number(tablet.rows_stored),
        number(tablet.disk_bytes, in_bytes(tablet.disk_bytes)),
        number(tablet.delta_share, in_share(tablet.delta_share)),
        number(tablet.memory_bytes, in_bytes(tablet.memory_bytes)),
        TableCell(name(tablet.first_key) if tablet.first_key is not None else ""),
        TableCell(name(tablet.last_key) if tablet.last_key is not None else ""),
    ]


def _tablet(tablet: ReportedTablet, *, is_open: bool) -> str:
    gone = (
        ""
        if tablet.dropped_ts is None
        else f' <span class="badge">dropped {text(in_time(tablet.dropped_ts))}</span>'
    )
    summary = (
        f"<b>Tablet {tablet.id}</b> {name(tablet.partition_text)}{gone}"
        f'<span class="figures">height {tablet.height:.2f}, {counted(len(tablet.rowsets), "rowset")}, '
        f"{text(in_bytes(tablet.disk_bytes))}, deltas {text(in_share(tablet.delta_share))}</span>"
    )
    return expandable(
        summary,
        rowset_bars(tablet) + _memory(tablet) + _rowsets(tablet),
        id_=f"tablet-{tablet.id}",
        is_open=is_open,
    )


def _memory(tablet: ReportedTablet) -> str:
    told = [
        f"MemRowSet with {counted(m.rows, 'row')} and {counted(m.changes, 'change')} of them, "
        f"{in_bytes(m.bytes)}"
        + ("" if m.frozen_ts is None else f", frozen at {in_time(m.frozen_ts)} for a flush")
        for m in tablet.memrowsets
    ]
    changed = [r for r in tablet.rowsets if r.memory_changes]
    if changed:
        told.append(
            f"DeltaMemStores of {counted(len(changed), 'rowset')} with "
            f"{counted(sum(r.memory_changes for r in changed), 'change')}, "
            f"{in_bytes(sum(r.memory_bytes for r in changed))}"
        )
    return paragraph(f"In memory: {text('; '.join(told) or 'nothing')}.", "muted")


def _rowsets(tablet: ReportedTablet) -> str:
    if not tablet.rowsets:
        return ""
    header = [
        ("rowset", "n"), ("rows", "n"), ("bytes", "n"), ("data below", "n"), ("to", "n"), ("REDO", "n"),
        ("REDO bytes", "n"), ("in memory", "n"), ("UNDO", "n"), ("UNDO bytes", "n"),
        ("rows that can go", "n"), ("durable up to", ""), ("first key", ""), ("last key", ""),
    ]  # fmt: skip
    largest = {r.id for r in sorted(tablet.rowsets, key=lambda r: -r.bytes)[:ROWSETS_LISTED]}
    shown = [r for r in tablet.rowsets if r.id in largest]
    caption = f"Rowsets of tablet {tablet.id}"
    if len(shown) < len(tablet.rowsets):
        caption += f": the {len(shown)} largest of {len(tablet.rowsets):,}"
    whole = table(caption, header, ((None, _rowset(r)) for r in shown))
    return expandable("rowsets in numbers", whole)


def _rowset(rowset: RowSetFacts) -> list[TableCell]:
    return [
        TableCell(f'<span title="{rowset.id}">{in_rowset(rowset.id)}</span>', rowset.id),
        number(rowset.rows),
        number(rowset.bytes, in_bytes(rowset.bytes)),
        number(rowset.low, in_share(rowset.low)),
        number(rowset.high, in_share(rowset.high)),
        number(rowset.redo_entries),
        number(rowset.redo_bytes, in_bytes(rowset.redo_bytes)),
        number(rowset.memory_changes),
        number(rowset.undo_entries),
        number(rowset.undo_bytes, in_bytes(rowset.undo_bytes)),
        number(rowset.droppable_rows),
        words(in_time(rowset.durable_ts)),
        TableCell(name(rowset.first_key)),
        TableCell(name(rowset.last_key)),
    ]


__all__ = ["detailed", "tablets_section"]
