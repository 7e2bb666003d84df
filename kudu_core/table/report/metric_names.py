"""The metrics of a table: their names, kinds, units and meanings.  docs/observability.md shows the list.

Each has two names.  By its key ``Table.metrics()`` answers with a number; by its name, which follows
Prometheus' rules, monitoring knows it.  Metrics that differ by a label alone share their name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kudu_core.common.run.measure.histogram import Times

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
"""What only grows while a table is open; what is so now; how often something took how long."""
PREFIX = "kudu_core"


@dataclass(frozen=True, slots=True)
class MetricName:
    """What there is to know of a metric before its value."""

    key: str
    """In ``Table.metrics()``; of a histogram, what its keys begin with: ``_count`` and ``_elapsed_s``."""
    name: str
    kind: str
    unit: str
    """"bytes", "seconds", "ratio", or what is counted."""
    help: str
    labels: tuple[tuple[str, str], ...] = ()
    in_store: bool = False
    """Only of a table in an object store."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with its value."""

    key: str
    name: str
    kind: str
    unit: str
    help: str
    labels: dict[str, str]
    value: float | Times = field(default=0.0)
    """Of a histogram ``Times``: counts, seconds together, and quantiles."""


_SUMS = {
    "count": ("operations_total", "operations", "Operations of maintenance, and bulk loads, that are done."),
    "elapsed_s": ("operation_seconds_total", "seconds", "Seconds that these operations took."),
    "rows": ("operation_rows_total", "rows", "Rows, or changes, that these operations wrote."),
    "input_bytes": ("operation_input_bytes_total", "bytes", "Bytes of files that these operations read."),
    "output_bytes": ("operation_output_bytes_total", "bytes", "Bytes of files that they wrote."),
    "freed_bytes": ("operation_freed_bytes_total", "bytes", "Bytes of files that they made unnecessary."),
}
_OPERATIONS = {
    "flush": ("count", "elapsed_s", "rows", "output_bytes"),
    "delta_flush": ("count", "elapsed_s", "rows", "output_bytes"),
    "minor": ("count", "elapsed_s", "rows", "output_bytes"),
    "major": ("count", "elapsed_s", "rows", "output_bytes"),
    "merge": ("count", "elapsed_s", "rows", "input_bytes", "output_bytes"),
    "history_gc": ("count", "elapsed_s", "freed_bytes"),
    "log_gc": ("count", "freed_bytes"),
    "file_gc": ("count", "freed_bytes"),
    "purge": ("count",),
    "ingest": ("count", "elapsed_s", "rows", "output_bytes"),
}
"""By operation: of its sums (``Journal.sums``) those that it has."""
LATENCIES = ("get", "scan", "write", "fsync", "flush", "merge")


def _gauge(key: str, unit: str, help: str, name: str | None = None) -> MetricName:
    return MetricName(key, f"{PREFIX}_{name or key}", GAUGE, unit, help)


def _counter(
    key: str, unit: str, help: str, name: str | None = None, *, in_store: bool = False
) -> MetricName:
    return MetricName(key, f"{PREFIX}_{name or key}_total", COUNTER, unit, help, in_store=in_store)


def _of_operations() -> Iterator[MetricName]:
    for suffix, (name, unit, says) in _SUMS.items():
        for operation, has in _OPERATIONS.items():
            if suffix in has:
                labels = (("operation", operation),)
                yield MetricName(f"{operation}_{suffix}", f"{PREFIX}_{name}", COUNTER, unit, says, labels)


def _latencies() -> Iterator[MetricName]:
    says = "Seconds that calls, fsyncs of the log, flushes and merges took."
    for operation in LATENCIES:
        labels = (("operation", operation),)
        yield MetricName(operation, f"{PREFIX}_latency_seconds", HISTOGRAM, "seconds", says, labels)


METRIC_NAMES: tuple[MetricName, ...] = (
    _gauge("tablets", "tablets", "Tablets that take rows."),
    _gauge("rowsets", "rowsets", "Rowsets on disk."),
    _gauge("disk_bytes", "bytes", "Bytes of the files of rowsets."),
    _gauge("memory_store_bytes", "bytes", "Bytes of rows and changes that lie in memory and the log alone."),
    _gauge("memory_work_bytes", "bytes", "Bytes that flushes and merges under way hold beside the stores."),
    _gauge("memory_limit_bytes", "bytes", "Bytes that stores, work and the page cache may take together."),
    _gauge("log_bytes", "bytes", "Bytes of the log that are kept."),
    _gauge("lost_files", "files", "Files in lost/, which nothing names."),
    _gauge("lost_bytes", "bytes", "Bytes of the files in lost/."),
    _gauge("tokens", "tokens", "Writers that are known by their txn."),
    _gauge("snapshots_pinned", "snapshots", "Snapshots that somebody holds, and whose history stays."),
    _gauge("page_cache_bytes", "bytes", "Bytes of pages that the page cache holds."),
    _gauge("page_cache_kept_bytes", "bytes", "Bytes of those pages that were used more than once."),
    _gauge("page_cache_pages", "pages", "Pages that the page cache holds."),
    _gauge("page_cache_limit_bytes", "bytes", "Bytes that the page cache may hold."),
    _gauge("height", "ratio", "Rowsets in which a key lies, averaged over the data.", "height_ratio"),
    _gauge("height_most", "rowsets", "Rowsets that lie over each other at the place where most do."),
    _gauge("merge_debt_bytes", "bytes", "Bytes of rowsets whose keys lie in other rowsets too."),
    _gauge("delta_bytes", "bytes", "Bytes of changes that every read of their rowsets lays over them."),
    _gauge("delta_share", "ratio", "Of the bytes of rowsets, the share that is such changes.", "delta_ratio"),
    _gauge("history_bytes", "bytes", "Bytes of files that only reads of the past need."),
    _gauge("history_s", "seconds", "Seconds back from now that can be read.", "history_seconds"),
    _counter("throttled_count", "waits", "Times that a writer was made to wait for memory.", "throttled"),
    _counter("throttled_s", "seconds", "Seconds that writers waited for memory.", "throttled_seconds"),
    _counter("tokens_dropped", "tokens", "Writers that are known by their txn no more."),
    _counter("page_cache_hits", "pages", "Pages that were found in the page cache."),
    _counter("page_cache_misses", "pages", "Pages that were not, and were read."),
    _counter("page_cache_evicted", "pages", "Pages that the page cache let go of to make room."),
    _counter("maintenance_errors", "operations", "Operations of maintenance that failed, to be tried again."),
    *_of_operations(),
    *_latencies(),
    _counter("requests_get", "requests", "Reads that were sent to the object store.", in_store=True),
    _counter("requests_put", "requests", "Writes that were sent to the object store.", in_store=True),
    _counter("requests_delete", "requests", "Deletions that were sent to it.", in_store=True),
    _counter("requests_list", "requests", "Lists that were asked of it.", in_store=True),
    _counter("bytes_get", "bytes", "Bytes that were read from the object store.", "get_bytes", in_store=True),
    _counter("bytes_put", "bytes", "Bytes that were written to it.", "put_bytes", in_store=True),
    _counter(
        "repeated", "requests", "Requests that were sent again, as the first had no answer.",
        "requests_repeated", in_store=True,
    ),
)  # fmt: skip
"""All that there are.  A table in a folder has none of those of object stores."""

__all__ = ["COUNTER", "GAUGE", "HISTOGRAM", "LATENCIES", "METRIC_NAMES", "Metric", "MetricName"]
