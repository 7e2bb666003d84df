"""What a table is made of, in numbers and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.errors import InvalidArgument
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.table.lifecycle.lost import lost_usage

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine


def stats(engine: Engine, by: str) -> pa.Table:
    """One row for each table, tablet, rowset or column."""
    if by == "table":
        return pa.Table.from_pylist([_table(engine)], schema=_TABLE_SCHEMA)
    if by == "tablet":
        return pa.Table.from_pylist([_tablet(t) for t in engine.tablets], schema=_TABLET_SCHEMA)
    if by == "rowset":
        return pa.Table.from_pylist([r for t in engine.tablets for r in _rowsets(t)], schema=_ROWSET_SCHEMA)
    if by == "column":
        return pa.Table.from_pylist(_columns(engine))
    raise InvalidArgument(f'by is "table", "tablet", "rowset" or "column", not {by!r}')


_TABLE_SCHEMA = pa.schema(
    [
        ("tablets", pa.int64()),
        ("tablets_dropped", pa.int64()),
        ("rowsets", pa.int64()),
        ("rows_stored", pa.int64()),
        ("memory_rows", pa.int64()),
        ("memory_bytes", pa.int64()),
        ("disk_bytes", pa.int64()),
        ("log_bytes", pa.int64()),
        ("lost_bytes", pa.int64()),
        ("log_segments", pa.int64()),
        ("oldest_ts", pa.uint64()),
        ("newest_ts", pa.uint64()),
        ("snapshots_pinned", pa.int64()),
    ]
)
_TABLET_SCHEMA = pa.schema(
    [
        ("tablet", pa.int64()),
        ("partition", pa.int64()),
        ("rowsets", pa.int64()),
        ("rows_stored", pa.int64()),
        ("memory_rows", pa.int64()),
        ("memory_bytes", pa.int64()),
        ("disk_bytes", pa.int64()),
        ("created_ts", pa.uint64()),
        ("dropped_ts", pa.uint64()),
    ]
)
_ROWSET_SCHEMA = pa.schema(
    [
        ("tablet", pa.int64()),
        ("rowset", pa.int64()),
        ("rows", pa.int64()),
        ("base_bytes", pa.int64()),
        ("redo_files", pa.int64()),
        ("redo_bytes", pa.int64()),
        ("undo_files", pa.int64()),
        ("undo_bytes", pa.int64()),
        ("memory_changes", pa.int64()),
        ("durable_ts", pa.uint64()),
    ]
)


def _rowsets(tablet: Any) -> list[dict[str, Any]]:
    return [
        {
            "tablet": tablet.id,
            "rowset": r.id,
            "rows": r.meta.rows,
            "base_bytes": r.meta.base.size,
            "redo_files": len(r.meta.redo),
            "redo_bytes": sum(d.file.size for d in r.meta.redo),
            "undo_files": len(r.meta.undo),
            "undo_bytes": sum(d.file.size for d in r.meta.undo),
            "memory_changes": sum(len(s) for s in r.memory_stores),
            "durable_ts": r.meta.durable,
        }
        for r in tablet.view.rowsets
    ]


def _tablet(tablet: Any) -> dict[str, Any]:
    view = tablet.view
    memory = (view.active, *view.frozen)
    return {
        "tablet": tablet.id,
        "partition": tablet.partition.ordinal,
        "rowsets": len(view.rowsets),
        "rows_stored": sum(r.meta.rows for r in view.rowsets) + sum(len(m) for m in memory),
        "memory_rows": sum(len(m) for m in memory),
        "memory_bytes": view.memory_bytes,
        "disk_bytes": sum(r.meta.size_bytes for r in view.rowsets),
        "created_ts": tablet.created_ts,
        "dropped_ts": tablet.dropped_ts,
    }


def _table(engine: Engine) -> dict[str, Any]:
    tablets = [_tablet(t) for t in engine.tablets]
    log = None if not engine.writer else engine.log
    return {
        "tablets": sum(t["dropped_ts"] is None for t in tablets),
        "tablets_dropped": sum(t["dropped_ts"] is not None for t in tablets),
        "rowsets": sum(t["rowsets"] for t in tablets),
        "rows_stored": sum(t["rows_stored"] for t in tablets),
        "memory_rows": sum(t["memory_rows"] for t in tablets),
        "memory_bytes": sum(t["memory_bytes"] for t in tablets),
        "disk_bytes": sum(t["disk_bytes"] for t in tablets),
        "log_bytes": 0 if log is None else log.bytes_retained,
        "lost_bytes": lost_usage(engine.fs, engine.path)[1],
        "log_segments": 0 if log is None else len(log.segments),
        "oldest_ts": engine.oldest_ts,
        "newest_ts": engine.visible_ts,
        "snapshots_pinned": len(engine.pins),
    }


def _columns(engine: Engine) -> list[dict[str, Any]]:
    out = []
    sizes: dict[int, tuple[int, int]] = {}
    for tablet in engine.tablets:
        for rowset in tablet.view.rowsets:
            for column_id, (size, nulls) in rowset.base.column_sizes().items():
                before = sizes.get(column_id, (0, 0))
                sizes[column_id] = before[0] + size, before[1] + nulls
    for column in engine.schema.columns:
        size, nulls = sizes.get(column.id, (0, 0))
        out.append(
            {
                "column": column.name,
                "type": column.type.name,
                "key": column.id in engine.schema.key_ids,
                "nullable": column.nullable,
                "bytes": size,
                "nulls": nulls,
            }
        )
    return out


def layout(engine: Engine) -> str:
    """The stores of every tablet, oldest data last."""
    lines = []
    for tablet in engine.tablets:
        dropped = "" if tablet.dropped_ts is None else f", dropped at {tablet.dropped_ts}"
        scheme = engine.partitions.scheme_of(tablet.partition.ordinal)
        lines.append(f"tablet {tablet.id}  {scheme.describe(tablet.partition)}{dropped}")
        for store in tablet.view.stores:
            if isinstance(store, DiskRowSet):
                lines.append(
                    f"  rowset {store.id}: {store.meta.rows} rows, D={store.meta.durable}, "
                    f"insert time {store.meta.insert_ts or 'column'}"
                )
                lines += [f"    undo {d.entries} entries ts {d.min_ts}..{d.max_ts}" for d in store.meta.undo]
                lines += [f"    redo {d.entries} entries ts {d.min_ts}..{d.max_ts}" for d in store.meta.redo]
                lines += [
                    f"    dms  {len(s)} changes{'' if s.frozen_at is None else f' frozen at {s.frozen_at}'}"
                    for s in store.memory_stores
                ]
            else:
                frozen = "" if store.frozen_at is None else f", frozen at {store.frozen_at}"
                lines.append(f"  memrowset: {len(store)} rows, {sum(map(len, store.logs))} changes{frozen}")
    files, size = (0, 0) if engine.in_store else lost_usage(engine.fs, engine.path)
    if files:
        lines.append(f"lost: {files} files, {size} bytes")
    return "\n".join(lines)
