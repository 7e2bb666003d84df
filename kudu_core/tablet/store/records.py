"""The payloads of WRITE and INGEST records: net changes by key, as columns.

A payload is a list of *sections*; each holds rows of one operation with one set of columns, in
Arrow's layout, so that writing copies no cell and reading copies none either.  docs/format-log.md,
"Record payloads", has the bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE
from kudu_core.common.format.members import parsed
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.errors import Corruption, InvalidArgument

RECORD_UPDATE = 1
RECORD_DELETE = 2
RECORD_INSERT = 3
"""Operations of sections."""
assert (RECORD_UPDATE, RECORD_DELETE) == (REDO_UPDATE, REDO_DELETE), "they are laid into stores as they are"

PAYLOAD = struct.Struct("<IIII")
"""Sections, tablets, bytes of JSON, zero."""
SECTION = struct.Struct("<BBHIII")
"""Operation, flags (bit 0: a tablet number per row), columns, rows, tablet number, zero."""
COLUMN = struct.Struct("<IBBHQQ")
"""Column id, width, flags (bit 0: nulls), zero, bytes of values, bytes of offsets."""
assert (PAYLOAD.size, SECTION.size, COLUMN.size) == (16, 16, 24)

MAX_EXTRA_BYTES = 256 << 20
"""Of a record's JSON, for writer and reader: some 300,000 files of an ingest."""

_PAD = bytes(8)


@dataclass(slots=True)
class Section:
    """Net changes of one operation: INSERT has every column, UPDATE the key's and those set,
    DELETE the key's."""

    op: int
    block: RowBlock
    tablets: np.ndarray
    """(n,) int32: for each row a position in the payload's list of tablets."""


@dataclass(slots=True)
class Payload:
    tablets: tuple[int, ...]
    sections: list[Section]
    extra: dict[str, Any]
    """What else the record says: token and counts of a write, files of an ingest."""


def encode(payload: Payload) -> list[Any]:
    """The payload as buffers to be written one after the other.

    ``InvalidArgument``: it names more than a reader takes.
    """
    extra = json.dumps(payload.extra, separators=(",", ":")).encode() if payload.extra else b""
    if len(extra) > MAX_EXTRA_BYTES:
        raise InvalidArgument(
            f"what one write would name takes {len(extra)} bytes in the log, {MAX_EXTRA_BYTES} are the "
            "most; nothing was written: give the rows in several calls, or let rowsets be larger "
            "(rowset_target_bytes)"
        )
    head = [
        PAYLOAD.pack(len(payload.sections), len(payload.tablets), len(extra), 0),
        struct.pack(f"<{len(payload.tablets)}I", *payload.tablets),
        bytes(-4 * len(payload.tablets) % 8),
        extra,
        bytes(-len(extra) % 8),
    ]
    parts: list[Any] = [b"".join(head)]
    one = len(payload.tablets) == 1
    for section in payload.sections:
        columns = section.block.columns
        rows = section.block.rows
        head = [SECTION.pack(section.op, 0 if one else 1, len(columns), rows, 0, 0)]
        buffers: list[Any] = []
        if not one:
            _add(buffers, np.ascontiguousarray(section.tablets, np.int32).view(np.uint8))
        for column_id, column in columns.items():
            values, offsets = _rebased(column)
            has_nulls = column.validity is not None
            head.append(
                COLUMN.pack(
                    column_id,
                    column.width,
                    int(has_nulls),
                    0,
                    len(values),
                    0 if offsets is None else len(offsets) * 4,
                )
            )
            if column.validity is not None:
                _add(buffers, column.validity[: (rows + 7) // 8])
            if offsets is not None:
                _add(buffers, offsets.view(np.uint8))
            _add(buffers, values)
        parts.append(b"".join(head))
        parts.extend(buffers)
    return parts


def _add(buffers: list[Any], data: np.ndarray) -> None:
    if len(data):
        buffers.append(data)
        if len(data) % 8:
            buffers.append(_PAD[len(data) % 8 :])


def _rebased(column: ColumnBuffers) -> tuple[np.ndarray, np.ndarray | None]:
    """Values and offsets that start at zero."""
    if column.offsets is None:
        return column.values[: column.length * column.width], None
    first, last = int(column.offsets[0]), int(column.offsets[column.length])
    offsets = column.offsets[: column.length + 1]
    if first:
        offsets = offsets - np.int32(first)
    return column.values[first:last], np.ascontiguousarray(offsets)


class _PayloadReader:
    """Bounded reads from a record's payload."""

    def __init__(self, data: memoryview, path: str, offset: int) -> None:
        self.data = data
        self.at = 0
        self._path = path
        self._offset = offset

    def fail(self, reason: str) -> Corruption:
        return Corruption(self._path, self._offset + self.at, f"record payload: {reason}")

    def take(self, count: int, *, padded: bool = True) -> memoryview:
        if count < 0 or count > len(self.data) - self.at:
            raise self.fail(f"{count} bytes are promised, {len(self.data) - self.at} are left")
        piece = self.data[self.at : self.at + count]
        self.at += count + (-count % 8 if padded else 0)
        return piece

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))


def decode(data: memoryview, path: str, offset: int) -> Payload:
    """Read a payload; arrays are views of ``data``.  Broken rules raise ``Corruption``."""
    cursor = _PayloadReader(data, path, offset)
    section_count, tablets, extra = _head(cursor)
    sections = [_section(cursor, len(tablets)) for _ in range(section_count)]
    return Payload(tablets, sections, extra)


def decode_extra(data: memoryview, path: str, offset: int) -> dict[str, Any]:
    """What a payload says beside its rows."""
    return _head(_PayloadReader(data, path, offset))[2]


def _head(cursor: _PayloadReader) -> tuple[int, tuple[int, ...], dict[str, Any]]:
    """(sections, tablets, extra) of a payload."""
    section_count, tablet_count, extra_bytes, _ = cursor.unpack(PAYLOAD)
    if extra_bytes > MAX_EXTRA_BYTES:
        raise cursor.fail(f"{extra_bytes} bytes of JSON, {MAX_EXTRA_BYTES} are the most")
    tablets = struct.unpack(f"<{tablet_count}I", cursor.take(4 * tablet_count))
    raw = bytes(cursor.take(extra_bytes))
    try:
        extra = parsed(raw) if raw else {}
    except ValueError as exc:
        raise cursor.fail(str(exc)) from exc
    return section_count, tablets, extra


def _section(cursor: _PayloadReader, tablet_count: int) -> Section:
    op, flags, column_count, rows, _, _ = cursor.unpack(SECTION)
    if op not in (RECORD_INSERT, RECORD_UPDATE, RECORD_DELETE) or flags & ~1:
        raise cursor.fail(f"operation {op}, flags {flags}")
    heads = [cursor.unpack(COLUMN) for _ in range(column_count)]
    if flags & 1:
        tablets = np.frombuffer(cursor.take(4 * rows), np.int32)
        if rows and not 0 <= int(tablets.min()) <= int(tablets.max()) < tablet_count:
            raise cursor.fail("a row names a tablet that the record does not")
    else:
        if tablet_count != 1:
            raise cursor.fail(f"rows without tablet numbers in a record of {tablet_count} tablets")
        tablets = np.zeros(rows, np.int32)
    columns: dict[int, ColumnBuffers] = {}
    for column_id, width, column_flags, _, value_bytes, offset_bytes in heads:
        validity = offsets = None
        if column_flags & 1:
            validity = np.frombuffer(cursor.take((rows + 7) // 8), np.uint8)
        if width == 0:
            if offset_bytes != 4 * (rows + 1):
                raise cursor.fail(f"{offset_bytes} bytes of offsets for {rows} rows")
            offsets = np.frombuffer(cursor.take(offset_bytes), np.int32)
            if int(offsets[0]) != 0 or int(offsets[-1]) != value_bytes or (np.diff(offsets) < 0).any():
                raise cursor.fail("offsets do not ascend from 0 to the end of the data")
        elif width not in (1, 2, 4, 8, 16) or value_bytes != rows * width or offset_bytes:
            raise cursor.fail(f"{value_bytes} bytes for {rows} values of {width} bytes")
        values = np.frombuffer(cursor.take(value_bytes), np.uint8)
        columns[column_id] = ColumnBuffers(width, rows, values, offsets, validity)
    return Section(op, RowBlock(columns, rows), tablets)


def split(sections: Sequence[Section], tablets: int) -> list[list[tuple[int, RowBlock]]]:
    """(operation, rows) of each tablet, by its position in the payload's list.

    Each section is put in the order of its tablets once, and cut: not looked through for each of them.
    """
    out: list[list[tuple[int, RowBlock]]] = [[] for _ in range(tablets)]
    for section in sections:
        of_rows = section.tablets
        if not len(of_rows):
            continue
        if (of_rows == of_rows[0]).all():
            out[int(of_rows[0])].append((section.op, section.block))
            continue
        block = section.block.take(np.argsort(of_rows, kind="stable"))
        ends = np.cumsum(np.bincount(of_rows, minlength=tablets)).tolist()
        for position, (begin, end) in enumerate(pairwise([0, *ends])):
            if begin < end:
                out[position].append((section.op, block.slice(begin, end)))
    return out
