"""Point reads of a ``.rows`` or ``.delta`` file: the kernels set up for one open file.

What they say cannot be done cell by cell goes to ``key_reader``, ``column_reader`` and ``delta_file``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core._ext.files.page_loader import PageLoader
from kudu_core._ext.pages.holder import PageHolder
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.delta_file import DecodedColumn, DeltaPoints
from kudu_core._ext.row.file import PointFile
from kudu_core.cfile.columns.asking import ask_extents, ask_sections
from kudu_core.common.types.types import TYPE_BINARY, TYPE_UNSIGNED

if TYPE_CHECKING:
    from kudu_core.cfile.columns.reader import ColumnReader
    from kudu_core.cfile.pages.container import FileReader
    from kudu_core.cfile.readers.key_reader import KeyReader

MOST_ASKED = 64
"""Columns of a file in a store of which page indexes and dictionaries are asked for together, when the first
key is looked for: most reads of a row want all."""
_NUMBER, _WORDS, _STRING = range(3)
_RISING, _STRICTLY = 1, 2


def open_points(
    file: FileReader, rows: int, columns: Mapping[int, ColumnReader], keys: KeyReader
) -> PointFile:
    """The file's columns, key index and bloom for point reads; columns and pages come when they are asked
    for."""
    if file.ask is not None:
        ask_extents(file, keys.unread_sections())
        ask_sections(keys.columns)
        if len(columns) <= MOST_ASKED:
            ask_sections(columns[column_id] for column_id in columns)
    holds = _Holds(file)
    files: dict[FileReader, tuple[_Holds, PageHolder]] = {}  # of rewritten columns
    others: list[PageHolder] = []

    def make(column_id: int) -> PointColumn | None:
        if column_id not in columns:
            return None
        column = columns[column_id]
        if column.file is file:
            return _column(column, holds)
        return _column(column, *_other(column.file, files, others))

    points = {column.spec.id: _column(column, holds) for column in keys.columns}
    encoded = None
    order: list[tuple[PointColumn, int, int, int]] | None = []
    if keys.keys_column is not None:
        encoded = _column(keys.keys_column, holds)
    for column in keys.columns:
        found = _order(column, len(keys.columns) == 1)
        if found is None:
            order = None
            break
        # A column of its own: how its cells compare is set in it.
        order.append((points[column.spec.id], *found))  # type: ignore[union-attr]
    index = keys.key_index() if keys.has_index else None
    bloom = keys.bloom() if file.ask is None else keys.bloom_once_near
    out = PointFile(rows, points, order, encoded, index, bloom, others, make)
    holds.watched = file.watch(out)
    return out


def open_delta_points(
    file: FileReader,
    rowids: ColumnReader,
    ops: ColumnReader,
    times: ColumnReader | None,
    columns: Mapping[int, tuple[ColumnReader, ColumnReader]],
) -> DeltaPoints:
    """The entries of a delta file for reads of one row; ``columns``: (ordinals of entries, values) by id."""
    holds = _Holds(file)
    places = count(-1, -1)  # in the cache, beside the pages' offsets
    count_ = rowids.rows
    out = DeltaPoints(
        _decoded(rowids, next(places), holds, ascends=_RISING),
        _decoded(ops, next(places), holds),
        None if times is None else _decoded(times, next(places), holds),
        [
            (
                id_,
                _decoded(entries, next(places), holds, ascends=_STRICTLY, below=count_),
                _column(values, holds),
            )
            for id_, (entries, values) in columns.items()
        ],
    )
    holds.watched = file.watch(out)
    return out


def _decoded(
    column: ColumnReader, place: int, holds: _Holds, *, ascends: int = 0, below: int = 1 << 32
) -> DecodedColumn:
    """Numbers that are decoded as a whole and kept in the cache at ``place``.

    ``ascends``: they must rise, by at least so much less one, and stay below ``below``; others are the
    general path's to refuse.
    """

    def load() -> tuple[Any, int | None]:
        if not holds.watched:
            return None, None
        found = holds.file.cached_page(place)
        if found is None:
            found = column.read(0, column.rows).values
            if ascends:
                numbers = found.view("<u4").astype(np.int64)
                if numbers[-1] >= below or bool((np.diff(numbers) < ascends - 1).any()):
                    return None, None
        return found, place

    return DecodedColumn(load, column.spec.type.width, column.rows, holds.file.remember)


class _Holds:
    """Whether pages may be held: only where the cache tells when it drops them."""

    def __init__(self, file: FileReader) -> None:
        self.file = file
        self.watched = False


def _other(
    file: FileReader, files: dict[FileReader, tuple[_Holds, PageHolder]], others: list[PageHolder]
) -> tuple[_Holds, PageHolder]:
    """One holder of pages for each file, in ``others`` before it may hold one."""
    found = files.get(file)
    if found is None:
        found = files.setdefault(file, (_Holds(file), PageHolder()))
    holds, holder = found
    if not holds.watched:  # also where an interrupt ended what follows
        if holder not in others:
            others.append(holder)
        holds.watched = file.watch(holder)
    return found


def _column(column: ColumnReader, holds: _Holds, holder: PageHolder | None = None) -> PointColumn:
    words = None
    if column.words is not None:
        dictionary = column.dictionary()
        assert dictionary.offsets is not None
        words = (np.ascontiguousarray(dictionary.offsets, np.int32), dictionary.values)
    load = PageLoader(column, holds, column.file.reader)
    return PointColumn(load, column.page_count, column.width, words, holder, None, column.page_bits)


def _order(column: ColumnReader, alone: bool) -> tuple[int, int, int] | None:
    """How the cells of a key column compare, its width in the key, and its sign bit."""
    type_ = column.spec.type
    if type_.kind == TYPE_BINARY:
        if column.words is not None:
            return _WORDS, 0, 0
        return (_STRING, 0, 0) if alone else None
    if type_.width not in (1, 2, 4, 8):
        return None
    return _NUMBER, type_.width, 0 if type_.kind == TYPE_UNSIGNED else 1 << 8 * type_.width - 1
