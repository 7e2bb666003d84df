"""The section of maintenance: what comes next and why, what could be done, and what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kudu_core.page.figures import in_bytes, in_count, in_rowset, in_seconds, in_share, of_micros
from kudu_core.page.render.markup import (
    TableCell,
    element,
    name,
    number,
    paragraph,
    section,
    table,
    text,
    words,
)

if TYPE_CHECKING:
    from kudu_core.page.report_data import Candidate, MaintenanceFacts, Performed, ReportData

ROWSETS_NAMED = 6


def maintenance_section(data: ReportData) -> str:
    facts = data.maintenance
    return section(
        "maintenance",
        "Maintenance",
        paragraph(text(_mode(facts)), "lead"),
        *(_next(facts, lane) for lane in ("flush", "compaction")),
        _candidates(facts),
        _done(facts),
    )


def _mode(facts: MaintenanceFacts) -> str:
    if facts.mode == "manual":
        by = 'maintenance="manual": nothing of it happens until flush, compact, gc or maintain is called.'
    else:
        by = f"It runs in the background: one thread flushes, {in_count(facts.threads)} compact."
    if not facts.here:
        by += " This is a reader's picture: the writer has the state that it decides by."
    return by


def _next(facts: MaintenanceFacts, lane: str) -> str:
    found = next((c for c in facts.candidates if c.lane == lane and c.is_next), None)
    waiting = sum(1 for c in facts.candidates if c.lane == lane and not c.is_next)
    if found is None:
        told = "nothing is worth it" if not waiting else "nothing now; what could be done is below"
        content = f"<b>Next in the {lane} lane:</b> {told}."
    else:
        where = "" if found.tablet is None else f" of tablet {found.tablet}"
        content = (
            f"<b>Next in the {lane} lane:</b> {text(found.kind)}{where}, since {text(found.reason)}."
        )
    return element("p", content, class_="next", data_lane=lane)


def _candidates(facts: MaintenanceFacts) -> str:
    header = [
        ("lane", ""), ("what", ""), ("tablet", "n"), ("rowsets", ""), ("when", "text"), ("why", "text"),
        ("due", "n"), ("gain", "n"), ("cost", "n"), ("score", "n"), ("frees", "n"),
    ]  # fmt: skip
    total = sum(facts.counts.values())
    if not total:
        return paragraph("There are no candidates.", "muted")
    counts = ", ".join(f"{in_count(n)} x {kind}" for kind, n in facts.counts.items())
    caption = f"Candidates, in the order of each lane, those that wait last: {counts}"
    if len(facts.candidates) < total:
        caption += f" (the first {len(facts.candidates)} are listed)"
    ready_first = sorted(facts.candidates, key=lambda c: c.waits is not None)
    return table(caption, header, ((None, _candidate(c)) for c in ready_first))


def _candidate(candidate: Candidate) -> list[TableCell]:
    rowsets = ", ".join(map(in_rowset, candidate.rowsets[:ROWSETS_NAMED]))
    if len(candidate.rowsets) > ROWSETS_NAMED:
        rowsets += f" and {len(candidate.rowsets) - ROWSETS_NAMED} more"
    when = '<span class="badge now">next</span>' if candidate.is_next else "in turn"
    if candidate.waits is not None:
        when = f"waits: {text(candidate.waits)}"
    freed = max(candidate.memory_bytes, candidate.freed_bytes)
    if candidate.tablet is None:  # that of a flush is what it keeps, of which others may keep as much
        freed = candidate.log_bytes
    return [
        words(candidate.lane),
        words(candidate.kind),
        number(candidate.tablet),
        words(rowsets),
        TableCell(when),
        words(candidate.reason),
        number(candidate.due, in_share(candidate.due) if candidate.due < 1e8 else "at once"),
        number(candidate.gain, f"{candidate.gain:.3f}"),
        number(candidate.cost_bytes, in_bytes(candidate.cost_bytes)),
        number(candidate.score, f"{candidate.score:.3g}"),
        number(freed, in_bytes(freed)),
    ]


def _done(facts: MaintenanceFacts) -> str:
    if not facts.done:
        told = "has done nothing since it was opened" if facts.here else "only reads; ask the writer's handle"
        return paragraph(f"What was done: this handle {told}.", "muted")
    header = [
        ("finished (UTC)", ""), ("what", ""), ("tablet", "n"), ("took", "n"), ("rows", "n"),
        ("rowsets read", "n"), ("written", "n"), ("read", "n"), ("wrote", "n"), ("freed", "n"),
        ("error", "text"),
    ]  # fmt: skip
    caption = f"The last {len(facts.done)} operations of this handle"
    return table(caption, header, ((None, _performed(done)) for done in facts.done))


def _performed(done: Performed) -> list[TableCell]:
    def size(count: int | None) -> TableCell:
        return number(count, None if count is None else in_bytes(count))

    return [
        TableCell(text(of_micros(done.finished_us)), done.finished_us),
        words(done.operation),
        number(done.tablet),
        number(done.elapsed_s, in_seconds(done.elapsed_s)),
        number(done.rows),
        number(done.rowsets_read),
        number(done.rowsets_written),
        size(done.input_bytes),
        size(done.output_bytes),
        size(done.freed_bytes),
        TableCell(name(done.error) if done.error is not None else ""),
    ]


__all__ = ["maintenance_section"]
