"""Writing ``.delta`` files, of entries that lie in memory in their order.

What is in such a file, and why, says ``delta_file``; the layout is in docs/format.md, "Delta files".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kudu_core.cfile.columns.column_list import ColumnEntry, pack_entries
from kudu_core.cfile.columns.specs import ColumnSpec, check_rows
from kudu_core.cfile.columns.writer import write_column
from kudu_core.cfile.files.delta_codes import REDO_DELETE, UNDO_ALIVE
from kudu_core.cfile.files.delta_format import OP_ID, REDO, ROWID_ID, TIMESTAMP_ID, UNDO, DeltaMeta, in_order
from kudu_core.cfile.pages.container import CONTAINER_DELTA
from kudu_core.cfile.pages.container_writer import FileWriter
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

    U8 = npt.NDArray[np.uint8]
    U32 = npt.NDArray[np.uint32]
    U64 = npt.NDArray[np.uint64]


def write_delta_file(
    fs: FileSystem,
    path: str,
    kind: str,
    rowids: U32,
    ts: U64 | None,
    ops: U8,
    columns: Mapping[int, tuple[ColumnSpec, U32, ColumnBuffers]],
    *,
    file_id: bytes | None = None,
) -> DeltaMeta:
    """Write and sync a file of at least one entry; the directory is the caller's.

    Parameters
    ----------
    kind : "redo" or "undo"
    rowids : (entries,) uint32, ascending
    ts : (entries,) uint64, within a rowid strictly ascending (REDO) or descending (UNDO);
        None: the record's, rowids are then strictly ascending
    ops : (entries,) uint8
    columns
        By column id: its spec, the ordinals of the entries that change it (strictly ascending), and
        as many values.

    An exception leaves no file behind.
    """
    entries = len(rowids)
    assert kind in (REDO, UNDO) and entries and len(ops) == entries
    check_rows(path, entries)
    assert in_order(kind, rowids, ts), "entries are not sorted by rowid and time"
    delete_count = int(np.count_nonzero(ops == REDO_DELETE))
    reinsert_count = int(np.count_nonzero(ops == UNDO_ALIVE))
    writer = FileWriter(fs, path, CONTAINER_DELTA, file_id=file_id)
    try:
        stored = [
            _write_numbers(writer, ROWID_ID, "rowid", "uint32", rowids),
            _write_numbers(writer, OP_ID, "op", "uint8", ops),
        ]
        if ts is not None:
            assert len(ts) == entries
            stored.append(_write_numbers(writer, TIMESTAMP_ID, "timestamp", "uint64", ts))
        stats: dict[int, dict[str, Any]] = {}
        for id_, (spec, positions, column) in columns.items():
            assert spec.id == id_ and spec.role in ("key", "value")
            assert len(positions) == column.length > 0 and positions[-1] < entries
            assert len(positions) == 1 or bool((positions[1:] > positions[:-1]).all())
            stored.append(_write_numbers(writer, id_, "entry", "uint32", positions))
            stored.append(write_column(writer, spec, column))
            stats[id_] = {"bytes": stored[-1].stored_bytes, **stored[-1].zone.to_json()}
        meta = {
            "kind": kind,
            "entries": entries,
            "delete_count": delete_count,
            "reinsert_count": reinsert_count,
        }
        file = writer.finish(meta, pack_entries(stored))
    except BaseException:
        writer.abort()
        raise
    return DeltaMeta(
        kind,
        entries,
        file.size,
        file.footer_crc,
        file.tail,
        None if ts is None else int(ts.min()),
        None if ts is None else int(ts.max()),
        int(rowids[0]),
        int(rowids[-1]),
        delete_count,
        reinsert_count,
        {id_: len(positions) for id_, (_, positions, _) in columns.items()},
        stats,
    )


def _write_numbers(
    writer: FileWriter, id_: int, role: str, type_name: str, values: npt.NDArray[Any]
) -> ColumnEntry:
    type_ = ColumnType.parse(type_name)
    raw = np.ascontiguousarray(values, type_.dtype).view(np.uint8)
    column = ColumnBuffers(type_.width, len(values), raw, None, None)
    return write_column(writer, ColumnSpec(id_, type_, False, role), column)
