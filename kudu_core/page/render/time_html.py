"""The section of time: which past can be read and what it takes, and how much changed when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kudu_core.page.figures import counted, in_bytes, in_count, in_seconds, in_time, of_micros
from kudu_core.page.render.markup import (
    TableCell,
    cards,
    legend,
    name,
    number,
    paragraph,
    section,
    table,
    text,
    words,
)

if TYPE_CHECKING:
    from kudu_core.page.report_data import HistoryFacts, ReportData

CHART_PIXELS = 120
TAGS_DRAWN = 8
TAGS_LISTED = 200


def time_section(data: ReportData) -> str:
    return section(
        "time",
        "Versions, retention and changes",
        _facts(data.history),
        _versions(data.history),
        _marks_table(data.history),
        _activity(data),
    )


def _facts(history: HistoryFacts) -> str:
    readable_s = (history.newest_ts - history.oldest_ts) / 4096e6 if history.oldest_ts else None
    pinned = "nothing" if history.oldest_pin_ts is None else f"from {in_time(history.oldest_pin_ts)} on"
    return cards(
        [
            (
                "readable past",
                "all of it" if readable_s is None else in_seconds(max(0.0, readable_s)),
                "no history was dropped yet" if readable_s is None else f"since {in_time(history.oldest_ts)}",
            ),
            ("history_retention_s", in_seconds(history.retention_s), "what is older may be dropped"),
            (
                "older states (UNDO)",
                in_bytes(history.undo_bytes),
                f"{in_count(history.undo_entries)} entries",
            ),
            (
                "newer states (REDO)",
                in_bytes(history.redo_bytes),
                f"{in_count(history.redo_entries)} entries not yet in bases",
            ),
            ("could be dropped now", in_bytes(history.collectable_bytes), "by gc(), or in the background"),
            (
                "pinned",
                pinned,
                f"{counted(history.snapshots_pinned, 'snapshot')} here, {counted(len(history.tags), 'tag')}",
            ),
        ]
    )


# ---- charts


def _versions(history: HistoryFacts) -> str:
    bins = history.bins
    most = max((b.undo_entries + b.redo_entries for b in bins), default=0.0)
    start_us, width_us = bins[0].start_us, history.bin_s * 1e6
    end_us = start_us + width_us * len(bins)
    columns = [
        (
            (b.undo_entries, b.redo_entries),
            (
                f"{of_micros(b.start_us)}: {in_count(round(b.undo_entries))} entries of older states, "
                f"{in_count(round(b.redo_entries))} of newer ones"
            ),
        )
        for b in bins
    ]
    marks = "".join(
        _mark((at_us - start_us) / (end_us - start_us), told)
        for at_us, told, _ in _marks(history)
        if start_us <= at_us <= end_us
    )
    gone = min(1.0, max(0.0, (micros(history.oldest_ts) - start_us) / (end_us - start_us)))
    band = (
        f'<rect class="gone" x="0" y="{CHART_PIXELS - 6}" width="{gone:.2%}" height="6"/>'
        f'<rect class="readable" x="{gone:.2%}" y="{CHART_PIXELS - 6}" width="{1 - gone:.2%}" height="6"/>'
    )
    label = f"Entries of older and newer states by time, at most {in_count(round(most))} in a bin"
    return (
        "<h3>Versions that are stored, by their time</h3>"
        + _chart(label, columns, most, ("undo u4", "redo"), CHART_PIXELS - 8, band + marks)
        + _axis(start_us, end_us, f"most: {in_count(round(most))} in {in_seconds(history.bin_s)}")
        + legend(
            [
                ("undo u4", "UNDO: older states"),
                ("redo", "REDO: newer states"),
                ("readable", "can be read"),
                ("gone", "cannot"),
            ]
        )
    )


def _activity(data: ReportData) -> str:
    activity = data.activity
    minutes = activity.bin_s / 60
    most = max((b.exact + b.spread for b in activity.bins), default=0.0)
    start_us = activity.bins[0].start_us
    end_us = start_us + activity.bin_s * 1e6 * len(activity.bins)
    columns = [
        (
            (float(b.exact), b.spread),
            (
                f"{of_micros(b.start_us)}: {in_count(round(b.exact / minutes, 1))} a minute of known time, "
                f"{in_count(round(b.spread / minutes, 1))} spread evenly"
            ),
        )
        for b in activity.bins
    ]
    notes = []
    if activity.older:
        older = in_count(activity.older)
        notes.append(f"{older} changes are older than the chart or the oldest readable state.")
    if activity.unplaced_until_ts is not None:
        notes.append(
            f"Of {in_count(activity.unplaced_rows)} rows only is known that they were inserted by "
            f"{in_time(activity.unplaced_until_ts)}; they are not in the chart."
        )
    rate = f"most: {in_count(round(most / minutes, 1))} a minute"
    label = f"Inserts, updates and deletions over time, {rate}"
    return (
        "<h3>Changes per minute, as far as it is stored</h3>"
        + _chart(label, columns, most, ("exact", "spread"), CHART_PIXELS, "")
        + _axis(start_us, end_us, rate)
        + legend([("exact", "at a known time"), ("spread", "some time in a file's span: spread evenly")])
        + (paragraph(text(" ".join(notes)), "muted") if notes else "")
    )


def _chart(
    label: str,
    columns: Sequence[tuple[tuple[float, float], str]],
    most: float,
    kinds: tuple[str, str],
    room: int,
    more: str,
) -> str:
    """Stacked columns: (the two heights, what is told) of each."""
    width = 100 / len(columns)
    out = []
    for place, ((first, second), told) in enumerate(columns):
        if not first + second:
            continue
        heights = [value / most * (room - 4) for value in (first, second)]
        tops = room - heights[0], room - heights[0] - heights[1]
        rects = "".join(
            f'<rect class="{kind}" x="{place * width + 0.08:.3f}%" y="{top:.1f}" '
            f'width="{width - 0.16:.3f}%" height="{max(1.0, height):.1f}"/>'
            for kind, top, height in zip(kinds, tops, heights, strict=True)
            if height
        )
        out.append(f"<g><title>{text(told)}</title>{rects}</g>")
    if not out:
        middle = f'x="50%" y="{room // 2}" text-anchor="middle"'
        out.append(f'<text class="nothing" {middle}>nothing is stored</text>')
    return (
        f'<svg class="chart" role="img" aria-label="{text(label)}" width="100%" height="{CHART_PIXELS}">'
        f"{''.join(out)}{more}</svg>"
    )


def _axis(start_us: float, end_us: float, note: str) -> str:
    times = of_micros(int(start_us)), note, f"{of_micros(int(end_us))} UTC"
    return f'<div class="ends">{"".join(f"<span>{text(t)}</span>" for t in times)}</div>'


# ---- what is marked in time


def micros(timestamp: int) -> int:
    return timestamp >> 12


def _marks(history: HistoryFacts) -> list[tuple[int, str, int | None]]:
    """(microseconds, what it is, timestamp)."""
    found: list[tuple[int, str, int | None]] = [
        (history.now_us, "now", None),
        (micros(history.newest_ts), "newest state that is readable here", history.newest_ts),
    ]
    if history.oldest_ts:
        told = "oldest readable state (ancient history mark)"
        found.append((micros(history.oldest_ts), told, history.oldest_ts))
    if history.horizon_ts:
        told = "horizon: a collection of history would drop what is older"
        found.append((micros(history.horizon_ts), told, history.horizon_ts))
    if history.oldest_pin_ts is not None:
        found.append((micros(history.oldest_pin_ts), "oldest pin or tag", history.oldest_pin_ts))
    for tag, ts in list(history.tags.items())[-TAGS_DRAWN:]:
        found.append((micros(ts), f"tag {tag}", ts))
    return found


def _mark(place: float, told: str) -> str:
    x = min(99.6, max(0.2, place * 100))
    return (
        f'<g class="mark"><title>{text(told)}</title>'
        f'<line x1="{x:.3f}%" x2="{x:.3f}%" y1="0" y2="{CHART_PIXELS}"/></g>'
    )


def _marks_table(history: HistoryFacts) -> str:
    marks = _marks(history)
    drawn = {told for _, told, _ in marks}
    rows: list[tuple[str, int, int | None]] = [(told, us, ts) for us, told, ts in marks]
    for tag, ts in list(history.tags.items())[:TAGS_LISTED]:
        if f"tag {tag}" not in drawn:
            rows.append((f"tag {tag}", micros(ts), ts))
    return table(
        "Moments, marked as lines above",
        [("what", ""), ("time (UTC)", ""), ("ago", "n"), ("timestamp", "n")],
        _rows(sorted(rows, key=lambda row: -row[1]), history.now_us),
    )


def _rows(rows: Iterable[tuple[str, int, int | None]], now_us: int) -> Iterable[tuple[None, list[TableCell]]]:
    for told, us, ts in rows:
        ago_s = (now_us - us) / 1e6
        yield (
            None,
            [
                TableCell(name(told)),
                words(of_micros(us)),
                number(ago_s, in_seconds(ago_s)),
                number(ts, None if ts is None else str(ts)),
            ],
        )


__all__ = ["time_section"]
