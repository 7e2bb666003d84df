"""What of a table asks for somebody's attention, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kudu_core.page.figures import counted, in_bytes, in_count, in_seconds, in_share, in_time
from kudu_core.page.render.markup import element, name, section, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kudu_core.page.report_data import ReportData

HIGH = 4.0
"""An average height from which on looks by key are dear."""
DELTAS = 0.5
"""A share of deltas from which on a tablet is mostly that."""
LONG_LOG_BYTES = 128 << 20
OLD_PIN_S = 7 * 86_400
FEW_HITS = 0.5
LOOKS = 1000
"""Of the page cache, before its hits say something."""


def findings(data: ReportData) -> list[tuple[str, str]]:
    """(id of the section, what was found) of each."""
    return [*_of_tablets(data), *_of_time(data), *_of_work(data)]


def _of_tablets(data: ReportData) -> Iterator[tuple[str, str]]:
    high = [t for t in data.tablets if t.height >= HIGH]
    if high:
        worst = max(high, key=lambda t: t.height)
        yield (
            "tablets",
            (
                f"{counted(len(high), 'tablet')} with an average height of {HIGH:g} or more: a key of "
                f"tablet {worst.id} is looked for in {worst.height:.1f} rowsets. compact() merges them."
            ),
        )
    heavy = [t for t in data.tablets if t.delta_share >= DELTAS]
    if heavy:
        yield (
            "tablets",
            f"In {counted(len(heavy), 'tablet')} deltas take {in_share(DELTAS)} of the bytes or more.",
        )


def _of_time(data: ReportData) -> Iterator[tuple[str, str]]:
    history = data.history
    if data.unreplayed is not None:
        yield "time", f"A record of the log cannot be replayed: {data.unreplayed}"
    pin = history.oldest_pin_ts
    if pin is not None and (history.now_us - (pin >> 12)) / 1e6 > OLD_PIN_S:
        yield "time", f"A snapshot or a tag keeps all history since {in_time(pin)}."
    if history.collectable_bytes:
        yield "time", f"{in_bytes(history.collectable_bytes)} of history could be dropped now."


def _of_work(data: ReportData) -> Iterator[tuple[str, str]]:
    memory, log = data.memory, data.log
    stores = memory.memrowset_bytes + memory.deltamemstore_bytes
    if stores >= memory.slow_bytes:
        yield "memory", f"Memory stores hold {in_bytes(stores)}: writers are slowed."
    if memory.throttled_s >= 1:
        yield "memory", f"Writers were made to wait {in_seconds(memory.throttled_s)} for memory."
    looks = memory.cache_hits + memory.cache_misses
    if looks >= LOOKS and memory.cache_hits < FEW_HITS * looks:
        cached = in_share(memory.cache_hits / looks)
        yield "memory", f"Of {in_count(looks)} pages asked for, {cached} were cached."
    if log.bytes is not None and log.bytes >= LONG_LOG_BYTES:
        yield "log", f"An open would replay {in_bytes(log.bytes)} of log."
    failed = [done for done in data.maintenance.done if done.error is not None]
    if failed:
        yield "maintenance", f"{in_count(len(failed))} operations failed, the last with {failed[0].error}"
    if data.lost_files:
        yield "schema", f"{in_count(data.lost_files)} files that nothing names lie in lost/."


def findings_section(data: ReportData) -> str:
    found = findings(data)
    items = "".join(f'<li><a href="#{id_}">{text(id_)}</a> {name(told)}</li>' for id_, told in found)
    body = f'<ul class="findings">{items}</ul>' if found else '<p class="muted">Nothing stands out.</p>'
    return section("findings", "What to look at", body)


def unknown_section(data: ReportData) -> str:
    items = "".join(element("li", text(told)) for told in data.unknown)
    return section("unknown", "What this page does not know", f'<ul class="muted">{items}</ul>')


__all__ = ["findings", "findings_section", "unknown_section"]
