"""The columns of a scan's batches: as Arrow has them, and as the kernel for few rows wants them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kudu_core._ext.row.shape import RowShape
from kudu_core.common.rows.shown import Seen, Shown
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.rowcodec import raw_shape
from kudu_core.common.schema.schema import StoredColumn, arrow_schema
from kudu_core.common.types.types import TYPE_BOOL


class ScanColumns:
    """What is made of the columns of a scan when it is first asked for, and shared by all scans of a plan."""

    def __init__(
        self, columns: Sequence[StoredColumn], dictionary: frozenset[int], seen: Sequence[Seen] | None = None
    ) -> None:
        """``dictionary``: ids of the columns that come as Arrow dictionaries.  ``seen``: as of ``Shown``."""
        self._columns, self._seen = columns, seen
        self._dictionary = dictionary

    @cached_property
    def arrow(self) -> pa.Schema:
        """Of the batches."""
        schema = arrow_schema(self._columns)
        for place, column in enumerate(self._columns):
            if column.id in self._dictionary:
                coded = schema.field(place).with_type(pa.dictionary(pa.int32(), column.type.arrow))
                schema = schema.set(place, coded)
        return schema

    @cached_property
    def shown(self) -> Shown:
        """The batches as their user sees them."""
        return Shown(self._columns, self._seen, self._dictionary)

    @cached_property
    def shape(self) -> RowShape:
        """How cells become bytes."""
        return raw_shape(self._columns)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Of the cells; 0: strings."""
        return tuple(column.type.width for column in self._columns)

    @cached_property
    def bits(self) -> tuple[bool, ...]:
        """Which of the columns Arrow has as bits."""
        return tuple(column.type.kind == TYPE_BOOL for column in self._columns)


__all__ = ["ScanColumns"]
