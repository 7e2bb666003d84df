"""The sections of memory, of the log, and of what the table is declared to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kudu_core.page.figures import counted, in_bytes, in_count, in_seconds, in_share, in_time
from kudu_core.page.render.markup import (
    TableCell,
    bar,
    cards,
    expandable,
    legend,
    number,
    paragraph,
    section,
    table,
    text,
    words,
)

if TYPE_CHECKING:
    from kudu_core.page.report_data import MemoryFacts, ReportData, SegmentFacts

SEGMENTS = 200


def memory_section(data: ReportData) -> str:
    memory = data.memory
    parts = [
        ("p0", "MemRowSets", memory.memrowset_bytes),
        ("p1", "DeltaMemStores", memory.deltamemstore_bytes),
        ("p2", "flushes and merges under way", memory.work_bytes),
        ("p3", "page cache", memory.cache_bytes),
    ]
    told = ", ".join(f"{label} {in_bytes(size)}" for _, label, size in parts)
    filled = "".join(
        f'<i class="part {kind}" style="width:{min(1.0, size / memory.limit_bytes) * 100:.3f}%" '
        f'title="{text(label)}: {text(in_bytes(size))}"></i>'
        for kind, label, size in parts
    )
    looks = memory.cache_hits + memory.cache_misses
    return section(
        "memory",
        "Memory of this process",
        f'<div class="stack framed" role="img" aria-label="{text(told)}">{filled}</div>',
        legend((kind, f"{label}: {in_bytes(size)}") for kind, label, size in parts),
        cards(
            [
                ("memory_limit_bytes", in_bytes(memory.limit_bytes), "stores, batches and cache together"),
                (
                    "stores may take",
                    in_bytes(memory.store_limit_bytes),
                    f"writers are slowed from {in_bytes(memory.slow_bytes)} on",
                ),
                ("a store is flushed at", in_bytes(memory.flush_threshold_bytes), "or by its age"),
                (
                    "page cache",
                    in_bytes(memory.cache_bytes),
                    f"of {in_bytes(memory.cache_limit_bytes)}, {counted(memory.cache_pages, 'page')}",
                ),
                (
                    "pages found there",
                    in_share(memory.cache_hits / looks) if looks else "-",
                    f"of {in_count(looks)} looks",
                ),
                ("writers made to wait", _throttled(memory), "since it was opened"),
            ]
        ),
    )


def _throttled(memory: MemoryFacts) -> str:
    return f"{in_count(memory.throttled_count)} times, {in_seconds(memory.throttled_s)}"


def log_section(data: ReportData) -> str:
    log = data.log
    retained = (
        "Nothing keeps it: all that it says is in files."
        if log.retained_since_ts is None
        else f"It is kept from {in_time(log.retained_since_ts)} (UTC) on, the oldest change that only "
        "memory and the log hold; a flush of that store lets it go."
    )
    facts = [
        ("durability", log.durability, "when a write returns"),
        ("to replay", "not known here" if log.bytes is None else in_bytes(log.bytes), "at the next open"),
        ("durable up to", in_time(log.committed_ts), "UTC"),
    ]
    if log.reader_lag_s is not None:
        facts.append(("age of this picture", in_seconds(log.reader_lag_s), "refresh() brings a newer one"))
    parts = [cards(facts), paragraph(text(retained))]
    if log.segments is None:
        parts.append(paragraph("The objects of the log are not listed for a reader.", "muted"))
    else:
        most = max((s.bytes for s in log.segments), default=0) or 1
        header = [("segment", ""), ("bytes", "wide"), ("newest record (UTC)", ""), ("kept for", "text")]
        shown = log.segments[-SEGMENTS:]
        caption = f"Segments, the oldest first: {in_count(len(log.segments))}"
        if len(shown) < len(log.segments):
            caption += f" (the newest {len(shown)} are listed)"
        parts.append(table(caption, header, ((None, _segment(s, most)) for s in shown)))
    return section("log", "Log", *parts)


def _segment(segment: SegmentFacts, most: int) -> list[TableCell]:
    holders = ", ".join(f"tablet {i}" for i in segment.held_by)
    if segment.held_by_count > len(segment.held_by):
        holders += f" and {in_count(segment.held_by_count - len(segment.held_by))} more"
    newest = "" if segment.newest_ts is None else in_time(segment.newest_ts)
    return [
        words(segment.name),
        TableCell(bar(segment.bytes / most, in_bytes(segment.bytes)), segment.bytes),
        words(newest),
        words(holders),
    ]


def schema_section(data: ReportData) -> str:
    changed = set(data.options_changed)
    options = table(
        "Options in force",
        [("option", ""), ("value", ""), ("", "")],
        (
            (None, [words(option), words(_option(option, value)), words("changed" if is_other else "")])
            for option, value in data.options.items()
            for is_other in (option in changed,)
        ),
    )
    metrics = table(
        "Metrics of this handle",
        [("metric", ""), ("value", "n")],
        ((None, [words(metric), number(value, in_count(value))]) for metric, value in data.metrics.items()),
    )
    return section(
        "schema",
        "Partitions, options and metrics",
        cards(
            [
                ("primary key", ", ".join(data.primary_key), f"schema version {data.schema_version}"),
                ("partitions", data.partitioning, counted(_living(data), "tablet")),
                ("lost/", in_bytes(data.lost_bytes), f"{in_count(data.lost_files)} files that nothing names"),
                ("writers known by txn", in_count(data.tokens), ""),
            ]
        ),
        expandable("options", options),
        expandable("metrics", metrics),
    )


def _living(data: ReportData) -> int:
    return sum(t.dropped_ts is None for t in data.tablets)


def _option(option: str, value: Any) -> str:
    if value is None:
        return "for ever" if option.endswith("retention_s") else "follows the machine"
    if option.endswith("_bytes"):
        return f"{in_bytes(value)} ({value:,})"
    if option.endswith("_s"):
        return in_seconds(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


__all__ = ["log_section", "memory_section", "schema_section"]
