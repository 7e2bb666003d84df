"""The numbers of an open table, by the names that ``metric_names`` has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from kudu_core.common.run.clock import micros_of
from kudu_core.common.run.measure.histogram import Histogram, Times
from kudu_core.table.lifecycle.lost import lost_usage
from kudu_core.table.report.debt import debt_of
from kudu_core.table.report.metric_names import HISTOGRAM, METRIC_NAMES, Metric

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine


class Metrics(dict[str, float]):
    """Numbers by key, and ``described`` with what each is."""

    def __init__(self, described: tuple[Metric, ...]) -> None:
        super().__init__(_numbers(described))
        self.described = described
        """Each with its name, kind, unit, meaning and labels; histograms whole."""

    def __reduce__(self) -> tuple[type[Metrics], tuple[tuple[Metric, ...]]]:
        return Metrics, (self.described,)


def _numbers(described: tuple[Metric, ...]) -> Iterator[tuple[str, float]]:
    for metric in described:
        if not isinstance(metric.value, Times):
            yield metric.key, metric.value
        else:
            yield f"{metric.key}_count", metric.value.count
            yield f"{metric.key}_elapsed_s", metric.value.total_s


def metrics(engine: Engine) -> Metrics:
    """See ``Table.metrics``."""
    values = _values(engine)
    times = _times(engine)
    return Metrics(
        tuple(
            Metric(
                known.key, known.name, known.kind, known.unit, known.help, dict(known.labels),
                times[known.key] if known.kind == HISTOGRAM else values.get(known.key, 0),
            )
            for known in METRIC_NAMES
            if engine.in_store or not known.in_store
        )
    )  # fmt: skip


def _times(engine: Engine) -> dict[str, Times]:
    """The histograms."""
    fsyncs = engine.log.sync_times if engine.writer else Histogram()
    return {**engine.call_times.now(), **engine.journal.times(), "fsync": fsyncs.now()}


def _values(engine: Engine) -> dict[str, float]:
    """What is known; what has not happened may be left out."""
    cache = engine.cache.statistics()
    lost_files, lost_bytes = (0, 0) if engine.in_store else lost_usage(engine.fs, engine.path)
    log = engine.log if engine.writer else None
    return {
        **engine.journal.sums(),
        **asdict(debt_of(engine)),
        "tablets": sum(tablet.dropped_ts is None for tablet in engine.tablets),
        "rowsets": sum(len(tablet.view.rowsets) for tablet in engine.tablets),
        "memory_store_bytes": sum(tablet.memory_bytes for tablet in engine.tablets),
        "memory_work_bytes": engine.tablet_context.work.held_bytes,
        "memory_limit_bytes": engine.options.memory_bytes,
        "throttled_count": engine.memory.throttle.waits,
        "throttled_s": engine.memory.throttle.waited_s,
        "tokens": len(engine.writers.applied_writes),
        "tokens_dropped": engine.writers.dropped,
        "snapshots_pinned": len(engine.pins),
        "log_bytes": 0 if log is None else log.bytes_retained,
        "lost_files": lost_files,
        "lost_bytes": lost_bytes,
        "history_s": _history_s(engine),
        **engine.table_file.requests(),
        **{f"page_cache_{field.name}": getattr(cache, field.name) for field in fields(cache)},
    }


def _history_s(engine: Engine) -> float:
    """How far back from now a read may look; where nothing was dropped yet, to the oldest rows, about."""
    begins_ts = engine.oldest_ts
    if not begins_ts:
        known = [rowset.meta.max_insert_ts for tablet in engine.tablets for rowset in tablet.view.rowsets]
        known += [tablet.first_ts or 0 for tablet in engine.tablets]
        begins_ts = min((ts for ts in known if ts), default=0)
    return max(0, engine.clock.now_us() - micros_of(begins_ts)) / 1e6 if begins_ts else 0.0


__all__ = ["Metrics", "metrics"]
