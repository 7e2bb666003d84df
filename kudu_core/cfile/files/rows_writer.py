"""Writing ``.rows`` files, of rows that lie in memory in key order.

What is in such a file, and why, says ``rows_file``; the layout is in docs/format.md, "Rows files".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kudu_core._ext.base.crc32c import crc32c
from kudu_core._ext.index import bloom as bloom_kernel
from kudu_core._ext.keys import keys as key_kernel
from kudu_core.cfile.columns.column_list import ColumnEntry, pack_entries
from kudu_core.cfile.columns.specs import KEY_INDEX_HEAD, ColumnSpec, check_rows
from kudu_core.cfile.columns.statistics import INLINE_BYTES, StatisticsBlock, StatisticsRef, spans_of
from kudu_core.cfile.columns.writer import write_column
from kudu_core.cfile.files.rows_format import INSERT_TIME_ID, KEYS_ID, RowsMeta, rows_meta, statistics_of
from kudu_core.cfile.pages.container import (
    CONTAINER_ROWS,
    SECTION_BLOOM,
    SECTION_FRAME,
    SECTION_KEY_INDEX,
    SECTION_STATISTICS,
    Extent,
)
from kudu_core.cfile.pages.container_writer import FileWriter
from kudu_core.cfile.pages.page import BLOCK_ROWS
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    from kudu_core.common.rows.keys import EncodedKeys
    from kudu_core.fs.api import FileSystem

    U8 = npt.NDArray[np.uint8]
    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class RowsFileSpec:
    """What is to be in a file of rows, and how it is stored."""

    columns: Iterable[tuple[ColumnSpec, ColumnBuffers]]
    """All of one length, taken one after the other, each when it is written.  Key columns are never
    delta-encoded, but for the last."""
    key_ids: Sequence[int] = ()
    keys: EncodedKeys | None = None
    """The rows' encoded keys, strictly ascending; None for a file of rewritten columns only (``key_ids`` is
    then empty)."""
    hashes: U64 | None = None
    """(rows,) uint64, or None for no bloom."""
    insert_times: U64 | None = None
    """(rows,) uint64, or None: constant or the record's, which the manifest knows."""
    bloom_bits_per_key: int = 12
    prefix_key: bool | None = None
    """Whether encoded keys are stored besides the columns; None: where needed, see ``rows_file``."""
    file_id: bytes | None = None
    """None: a random one."""
    durable: bool = True
    """False: the file is not synced, for one that a crash may take."""


def write_rows_file(fs: FileSystem, path: str, spec: RowsFileSpec) -> RowsMeta:
    """Write and sync a file; the directory is the caller's.  An exception leaves no file behind."""
    keys = spec.keys
    assert (keys is None) == (not spec.key_ids)
    if keys is not None and len(keys.offsets) > 1:
        assert key_kernel.order(keys.data, keys.offsets) == 2, "rows are not in strictly ascending key order"
    writer = FileWriter(fs, path, CONTAINER_ROWS, file_id=spec.file_id)
    try:
        rows, entries = _write_columns(writer, path, spec)
        key_index = bloom = None
        bounds = (b"", b"")
        key_bytes = 0
        if keys is not None:
            if _stores_keys(spec, entries):
                entries.append(_write_keys(writer, keys))
                key_bytes += entries[-1].stored_bytes
            key_index = _write_key_index(writer, keys)
            key_bytes += key_index.length
            if rows:
                bounds = _key(keys, 0), _key(keys, rows - 1)
        if spec.insert_times is not None:
            assert len(spec.insert_times) == rows
            entries.append(_write_insert_times(writer, spec.insert_times))
        if spec.hashes is not None and spec.bloom_bits_per_key:
            assert len(spec.hashes) == rows
            filled = bloom_kernel.build(spec.hashes, spec.bloom_bits_per_key)
            bloom = writer.add_section(SECTION_BLOOM, [filled])
        block = statistics_of(rows, entries)
        statistics = _write_statistics(writer, block) if len(block.data) > INLINE_BYTES else block
        footer = {
            "rows": rows,
            "key_ids": list(spec.key_ids),
            "key_index": None if key_index is None else list(key_index),
            "bloom": None if bloom is None else list(bloom),
            "min_key": bounds[0].hex(),
            "max_key": bounds[1].hex(),
        }
        if isinstance(statistics, StatisticsRef):
            footer["statistics"] = [statistics.offset, statistics.length]
        file = writer.finish(footer, pack_entries(entries), sync=spec.durable)
    except BaseException:
        writer.abort()
        raise
    bloom_bytes = 0 if bloom is None else bloom.length
    inserts = entries[-1].zone if spec.insert_times is not None else None
    return rows_meta(rows, inserts, file, bounds, statistics, bloom_bytes, key_bytes)


def _write_columns(writer: FileWriter, path: str, spec: RowsFileSpec) -> tuple[int, list[ColumnEntry]]:
    """How many rows there are, and the columns' entries in the footer."""
    rows = -1 if spec.keys is None else len(spec.keys.offsets) - 1
    entries = []
    for column_spec, column in spec.columns:
        rows = column.length if rows < 0 else rows
        assert column.length == rows
        check_rows(path, rows)
        delta = column_spec.id not in spec.key_ids or column_spec.id == spec.key_ids[-1]
        entries.append(write_column(writer, column_spec, column, allow_delta=delta))
    return rows, entries


def _stores_keys(spec: RowsFileSpec, entries: Sequence[ColumnEntry]) -> bool:
    if spec.prefix_key is not None:
        return spec.prefix_key
    by_id = {entry.id: entry for entry in entries}
    return len(spec.key_ids) > 1 and any(
        by_id[id_].words is None and by_id[id_].type in ("string", "binary") for id_ in spec.key_ids
    )


def _write_statistics(writer: FileWriter, block: StatisticsBlock) -> StatisticsRef:
    length = SECTION_FRAME.size + len(block.data)
    rest = SECTION_FRAME.pack(0, SECTION_STATISTICS, 0, len(block.data))[4:]
    crc = crc32c(block.data, crc32c(rest, writer.place_crc(SECTION_STATISTICS)))
    extent = writer.add_section(SECTION_STATISTICS, [block.data])
    assert extent.length == length
    return StatisticsRef(extent.offset, length, crc, spans_of(block.column_ids))


def _key(keys: EncodedKeys, row: int) -> bytes:
    return keys.data[int(keys.offsets[row]) : int(keys.offsets[row + 1])].tobytes()


def _write_keys(writer: FileWriter, keys: EncodedKeys) -> ColumnEntry:
    spec = ColumnSpec(KEYS_ID, ColumnType.parse("binary"), False, "keys", encoding="prefix")
    base = int(keys.offsets[0])
    if int(keys.offsets[-1]) - base > 0x7FFFFFFF:
        raise InvalidArgument("the keys of one rowset exceed 2 GiB")
    offsets = (keys.offsets - base).astype(np.int32)
    data = np.ascontiguousarray(keys.data[base : int(keys.offsets[-1])])
    return write_column(writer, spec, ColumnBuffers(0, len(offsets) - 1, data, offsets, None))


def _write_key_index(writer: FileWriter, keys: EncodedKeys) -> Extent:
    firsts = np.arange(0, len(keys.offsets) - 1, BLOCK_ROWS, dtype=np.int64)
    data, offsets = key_kernel.take(keys.data, keys.offsets, firsts)
    head = KEY_INDEX_HEAD.pack(len(firsts), 0)
    return writer.add_section(SECTION_KEY_INDEX, [head, offsets.astype("<u8").tobytes(), data], copied=True)


def _write_insert_times(writer: FileWriter, insert_times: U64) -> ColumnEntry:
    spec = ColumnSpec(INSERT_TIME_ID, ColumnType.parse("uint64"), False, "insert_time")
    values = np.ascontiguousarray(insert_times, "<u8").view(np.uint8)
    column = ColumnBuffers(8, len(insert_times), values, None, None)
    return write_column(writer, spec, column, allow_delta=False)  # `get` reads single cells


__all__ = ["RowsFileSpec", "write_rows_file"]
