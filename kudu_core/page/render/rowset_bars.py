"""The rowsets of a tablet as bars over its keys, and tablets as a grid of cells."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kudu_core.page.figures import counted, in_bytes, in_count, in_rowset, in_share
from kudu_core.page.render.markup import legend, text

if TYPE_CHECKING:
    from kudu_core.page.report_data import ReportedTablet, RowSetFacts

DRAWN = 300
"""Rowsets that are drawn one by one; of more, how many lie over each part of the keys."""
FEW = 200
"""Cells of a grid that are large."""
PARTS = 100
"""Of the keys, then."""
_MOST_PIXELS, _BAR_PIXELS, _LEAST_PIXELS = 320, 18, 5
_PROFILE_PIXELS, _STRIP_PIXELS = 160, 12
_LEAST_PERCENT = 0.25
"""Of a bar's width: a narrower one would not be seen."""

CHANGED = (0.0, 0.01, 0.1, 0.5)
UNDONE = (0.0, 0.1, 0.3, 0.6)
HEIGHTS = (0.0, 1.05, 2.0, 4.0, 8.0)
DELTAS = (0.0, 0.05, 0.2, 0.5, 0.8)
"""Upper ends of the colours; what is above the last one has the last colour."""


def level(ends: Sequence[float], value: float) -> int:
    """The number of the colour."""
    return bisect_left(ends, value)


def rowset_bars(tablet: ReportedTablet) -> str:
    """A picture of some pixels in height and any width."""
    rowsets = tablet.rowsets
    if not rowsets:
        return '<p class="muted">Nothing is in files.</p>'
    if len(rowsets) > DRAWN:
        drawn, height = _profile(rowsets)
    else:
        drawn, height = _bars(rowsets, tablet.most_height)
    label = (
        f"Tablet {tablet.id}: {counted(len(rowsets), 'rowset')} over its keys, average height "
        f"{tablet.height:.2f}, at most {tablet.most_height} over one key"
    )
    ends = f"<span>{text(tablet.first_key)}</span><span>{text(tablet.last_key)}</span>"
    size = f'width="100%" height="{height}"'
    return (
        f'<svg class="bars" role="img" aria-label="{text(label)}" {size}>{drawn}</svg>'
        f'<div class="ends" aria-hidden="true">{ends}</div>'
    )


def _bars(rowsets: Sequence[RowSetFacts], lanes: int) -> tuple[str, int]:
    step = max(_LEAST_PIXELS, min(_BAR_PIXELS, _MOST_PIXELS // lanes))
    size = step - (1 if step < 8 else 2)
    out = []
    for rowset in rowsets:
        width = max(_LEAST_PERCENT, (rowset.high - rowset.low) * 100)
        x = min(rowset.low * 100, 100 - width)
        y = (lanes - 1 - rowset.lane) * step + 1
        marks = " chosen" if rowset.chosen else ""
        marks += " busy" if rowset.busy else ""
        out.append(
            f'<g class="s{level(CHANGED, rowset.changed_share)}{marks}"><title>{_told(rowset)}</title>'
            f'<rect class="base" x="{x:.3f}%" y="{y}" width="{width:.3f}%" height="{size}" rx="1.5"/>'
        )
        undo = level(UNDONE, rowset.undo_share)
        if undo:
            strip = max(2, size // 3)
            out.append(
                f'<rect class="undo u{undo}" x="{x:.3f}%" y="{y + size - strip}" width="{width:.3f}%" '
                f'height="{strip}"/>'
            )
        out.append("</g>")
    return "".join(out), lanes * step + 2


def _profile(rowsets: Sequence[RowSetFacts]) -> tuple[str, int]:
    """How many rowsets lie over each part of the keys, with the colours of what they are on the average."""
    over: list[list[RowSetFacts]] = [[] for _ in range(PARTS)]
    for rowset in rowsets:
        first = min(PARTS - 1, int(rowset.low * PARTS))
        for part in range(first, max(first, min(PARTS - 1, int(rowset.high * PARTS))) + 1):
            over[part].append(rowset)
    most = max(map(len, over))
    return "".join(_part(n, found, most) for n, found in enumerate(over) if found), _PROFILE_PIXELS


def _part(part: int, found: Sequence[RowSetFacts], most: int) -> str:
    changed = sum(r.redo_entries + r.memory_changes for r in found) / max(1, sum(r.rows for r in found))
    undone = sum(r.undo_bytes for r in found) / max(1, sum(r.bytes for r in found))
    size = _PROFILE_PIXELS * len(found) / most
    place = f'x="{part * 100 / PARTS:.2f}%" width="{100 / PARTS - 0.1:.2f}%"'
    told = (
        f"{counted(len(found), 'rowset')} over this part; changes of {in_share(changed)} of their rows, "
        f"older states {in_share(undone)} of their bytes"
    )
    strip = ""
    if level(UNDONE, undone):
        kind, height = f"undo u{level(UNDONE, undone)}", min(size, _STRIP_PIXELS)
        strip = f'<rect class="{kind}" {place} y="{_PROFILE_PIXELS - height:.1f}" height="{height:.1f}"/>'
    return (
        f'<g class="s{level(CHANGED, changed)}"><title>{told}</title>'
        f'<rect class="base" {place} y="{_PROFILE_PIXELS - size:.1f}" height="{size:.1f}"/>{strip}</g>'
    )


def _told(rowset: RowSetFacts) -> str:
    parts = [
        f"rowset {in_rowset(rowset.id)}: {counted(rowset.rows, 'row')}, {in_bytes(rowset.bytes)}",
        f"keys {rowset.first_key} to {rowset.last_key}",
        f"over {in_share(rowset.high - rowset.low)} of the data",
        (
            f"{counted(rowset.redo_entries, 'change')} in {counted(rowset.redo_files, 'file')}, "
            f"{in_count(rowset.memory_changes)} in memory ({in_share(rowset.changed_share)} of the rows)"
        ),
        f"older states: {in_count(rowset.undo_entries)} entries, {in_bytes(rowset.undo_bytes)}",
    ]
    if rowset.chosen:
        parts.append("the next merge takes it")
    if rowset.busy:
        parts.append("a compaction is at work on it")
    return "\n".join(map(text, parts))


def bars_legend() -> str:
    return legend(
        [
            ("h0", "no changes beside the base"),
            ("h1", "changes of up to 1 % of the rows"),
            ("h2", "10 %"),
            ("h3", "50 %"),
            ("h4", "more"),
            ("undo u4", "older states (strip: the darker, the more of the bytes)"),
            ("outline", "the next merge takes it"),
            ("busy", "a compaction is at work"),
        ]
    )


def grid(tablets: Sequence[ReportedTablet], detailed: set[int]) -> str:
    """A cell for each tablet, in the order of their ranges; the measure by which cells are coloured can
    be switched."""
    most_bytes = max((t.disk_bytes for t in tablets), default=0) or 1
    most_memory = max((t.memory_bytes for t in tablets), default=0) or 1
    cells = []
    for tablet in sorted(tablets, key=lambda t: t.place):
        told = (
            f"tablet {tablet.id}, {tablet.partition_text}: {counted(len(tablet.rowsets), 'rowset')}, "
            f"height {tablet.height:.2f}, {in_bytes(tablet.disk_bytes)}, "
            f"deltas {in_share(tablet.delta_share)}, memory {in_bytes(tablet.memory_bytes)}"
        )
        target = f"tablet-{tablet.id}" if tablet.id in detailed else f"row-{tablet.id}"
        gone = " gone" if tablet.dropped_ts is not None else ""
        cells.append(
            f'<a class="cell{gone}" href="#{target}" title="{text(told)}" aria-label="{text(told)}" '
            f'data-height="{level(HEIGHTS, tablet.height)}" '
            f'data-deltas="{level(DELTAS, tablet.delta_share)}" '
            f'data-bytes="{_fifth(tablet.disk_bytes / most_bytes)}" '
            f'data-memory="{_fifth(tablet.memory_bytes / most_memory)}"></a>'
        )
    switches = "".join(
        f'<button type="button" data-measure="{measure}" '
        f'aria-pressed="{str(measure == "height").lower()}">{label}</button>'
        for measure, label in (
            ("height", "height"), ("deltas", "share of deltas"), ("bytes", "bytes"), ("memory", "memory"),
        )
    )  # fmt: skip
    scale = legend([("h0", "none"), *((f"h{n}", "") for n in range(1, 5)), ("h5", "much")])
    kind = "grid many" if len(tablets) > FEW else "grid"
    return (
        f'<div class="tools" role="group" aria-label="Colours of the grid">{switches}{scale}</div>'
        f'<div class="{kind}" data-measure="height">{"".join(cells)}</div>'
    )


def _fifth(share: float) -> int:
    return 0 if share <= 0 else min(5, 1 + int(share * 5))


__all__ = ["bars_legend", "grid", "level", "rowset_bars"]
