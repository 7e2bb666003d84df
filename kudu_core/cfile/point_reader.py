"""Point reads of a ``.rows`` file: the kernel ``_ext.pointread`` set up for one open file.

What the kernel says cannot be done cell by cell goes to ``key_reader`` and ``column_reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core._ext.pointcolumn import PointColumn
from kudu_core._ext.pointread import PointFile
from kudu_core.common.types import KIND_BINARY, KIND_UNSIGNED

if TYPE_CHECKING:
    from kudu_core.cfile.column_reader import ColumnReader
    from kudu_core.cfile.container import FileReader
    from kudu_core.cfile.key_reader import KeyReader

_NUMBER, _WORDS, _STRING = range(3)


def open_points(
    file: FileReader, rows: int, columns: Mapping[int, ColumnReader], keys: KeyReader
) -> PointFile:
    """The file's columns, key index and bloom for point reads; pages come when they are asked for."""
    holds = _Holds(file)
    points = {id_: _column(column, holds) for id_, column in columns.items()}
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
    out = PointFile(rows, points, order, encoded, index, keys.bloom())
    holds.watched = file.watch(out)
    return out


class _Holds:
    """Whether pages may be held: only where the cache tells when it drops them."""

    def __init__(self, file: FileReader) -> None:
        self.file = file
        self.watched = False


def _column(column: ColumnReader, holds: _Holds) -> PointColumn:
    words = None
    if column.words is not None:
        dictionary = column.dictionary()
        assert dictionary.offsets is not None
        words = (np.ascontiguousarray(dictionary.offsets, np.int32), dictionary.values)
    return PointColumn(_loader(column, holds), column.page_count, column.width, words)


def _loader(column: ColumnReader, holds: _Holds) -> Callable[[int], tuple[Any, int | None]]:
    def load(number: int) -> tuple[Any, int | None]:
        """The payload of a page, and its place in the cache, None where that does not keep it."""
        if not holds.watched:
            return None, None
        payload = column.payloads((number,))[0]
        if column.file is not holds.file:
            return payload, None  # of a file of rewritten columns: the cache does not tell us of its pages
        place = column.page_offset(number)
        return payload, place if holds.file.cached((place,))[0] is payload else None

    return load


def _order(column: ColumnReader, alone: bool) -> tuple[int, int, int] | None:
    """How the cells of a key column compare, its width in the key, and its sign bit."""
    type_ = column.spec.type
    if type_.kind == KIND_BINARY:
        if column.words is not None:
            return _WORDS, 0, 0
        return (_STRING, 0, 0) if alone else None
    if type_.width not in (1, 2, 4, 8):
        return None
    return _NUMBER, type_.width, 0 if type_.kind == KIND_UNSIGNED else 1 << 8 * type_.width - 1
