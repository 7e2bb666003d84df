"""Columns: what they take, and how they are stored, by a look at a few files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kudu_core._ext.pages import blocks
from kudu_core.cfile.columns.reader import BLOCK_KINDS
from kudu_core.errors import shown
from kudu_core.page.report_data import ColumnFacts

if TYPE_CHECKING:
    from kudu_core.cfile.columns.reader import ColumnReader
    from kudu_core.common.schema.schema import Schema, StoredColumn
    from kudu_core.rowset.disk.diskrowset import DiskRowSet

SAMPLED_FILES = 8
"""Base files of which a page of each column is looked at."""
SAMPLED_COLUMNS = 200
"""Of one file."""
OFFSET_BYTES = 4
"""Of a string in Arrow, beside its text."""


@dataclass(slots=True)
class _Sample:
    """What sampled pages say of a column."""

    cells: int = 0
    plain_bytes: int = 0
    words: int | None = None
    blocks: Counter[str] = field(default_factory=Counter)


def column_facts(schema: Schema, rowsets: Sequence[DiskRowSet], most_files: int) -> list[ColumnFacts]:
    """``most_files``: how many base files may be opened.  ``FileMissing``: a writer has replaced one."""
    sizes: dict[int, tuple[int, int, int]] = {}
    """By column: bytes, nulls, rows."""
    for rowset in rowsets:
        for column_id, (size, nulls) in rowset.base.column_sizes().items():
            before = sizes.get(column_id, (0, 0, 0))
            sizes[column_id] = before[0] + size, before[1] + nulls, before[2] + rowset.meta.rows
    samples = _samples(schema, rowsets, most_files)
    return [
        _column(schema, column, sizes.get(column.id, (0, 0, 0)), samples.get(column.id))
        for column in schema.columns
    ]


def _column(
    schema: Schema, column: StoredColumn, sizes: tuple[int, int, int], sample: _Sample | None
) -> ColumnFacts:
    size, nulls, rows = sizes
    width = column.type.width
    plain: int | None = rows * width if width else None
    if not width and sample is not None and sample.cells:
        plain = rows * sample.plain_bytes // sample.cells
    return ColumnFacts(
        name=column.name,
        type=column.type.name,
        key=schema.key_ids.index(column.id) + 1 if column.id in schema.key_ids else None,
        nullable=column.nullable,
        default=None if column.write_default is None else shown(column.write_default),
        encoding=column.encoding,
        compression=column.compression,
        comment=column.comment,
        bytes=size,
        nulls=nulls,
        plain_bytes=plain if rows else None,
        plain_sampled=not width,
        blocks={} if sample is None else dict(sample.blocks.most_common()),
        words=None if sample is None else sample.words,
    )


def spaced(items: Sequence[DiskRowSet], most: int) -> list[DiskRowSet]:
    """At most ``most`` of them, evenly chosen."""
    if len(items) <= most:
        return list(items)
    return [items[number * len(items) // most] for number in range(most)]


def _samples(schema: Schema, rowsets: Sequence[DiskRowSet], most: int) -> dict[int, _Sample]:
    found: dict[int, _Sample] = {}
    for rowset in spaced(rowsets, most):
        columns = rowset.base.open().columns
        for column in schema.columns[:SAMPLED_COLUMNS]:
            stored = columns.get(column.id)
            if stored is not None and stored.rows:
                _look_at(stored.uncached(), found.setdefault(column.id, _Sample()))
    return found


def _look_at(column: ColumnReader, sample: _Sample) -> None:
    """At the first page of a column."""
    payload = column.payloads((0,))[0]
    sample.blocks.update(BLOCK_KINDS[block[0]] for block in blocks.describe(payload))
    if column.words is not None:
        sample.words = max(sample.words or 0, column.words)
    if not column.spec.type.width:
        cells = column.page_rows(0)
        read = column.read(0, cells)
        sample.cells += cells
        sample.plain_bytes += len(read.data) + OFFSET_BYTES * cells


__all__ = ["SAMPLED_COLUMNS", "SAMPLED_FILES", "column_facts", "spaced"]
