"""Rows as their users see them, one at a time, of rows of stored columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.row.shape import RowShape
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.rowcodec import row_shape
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.common.types.nested.nested_row_values import row_value
from kudu_core.errors import InvalidArgument


class RowsSeen:
    """What reads stored columns, and makes of them those that users see.  Making it takes as long as reading
    some rows: it is kept."""

    def __init__(self, stored: Sequence[StoredColumn], seen: Sequence[StoredColumn | NestedColumn]) -> None:
        self._shape: RowShape | None = None
        self.stored, self._parts = stored, [(one.name, _value_of(one)) for one in seen]

    @property
    def shape(self) -> RowShape:
        """Of the rows of stored columns.  ``InvalidArgument`` for a default that Python has no value for."""
        if self._shape is None:
            self._shape = row_shape(self.stored)
        return self._shape

    def row(self, stored: dict[str, Any]) -> dict[str, Any]:
        """``NeedsGeneralPath`` where that is no row as the package writes it, or has what Python has not."""
        made = {}
        try:
            for name, value in self._parts:  # no comprehension, which takes as long again
                made[name] = value(stored)
            return made
        except (InvalidArgument, OverflowError, ValueError):
            raise NeedsGeneralPath from None


def _value_of(column: StoredColumn | NestedColumn) -> Callable[[dict[str, Any]], Any]:
    if isinstance(column, NestedColumn):
        return row_value(column.layout.root)
    return itemgetter(column.name)


__all__ = ["RowsSeen"]
