"""Rows as their user declared them, made of rows as they are stored."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from kudu_core.common.schema.schema import StoredColumn, arrow_schema, declared_field
from kudu_core.common.types.stored_arrays import outward


class Shown:
    """Some columns, in the order in which they are read, and what their user sees of them."""

    __slots__ = ("_columns", "_converted", "arrow")

    def __init__(
        self, columns: Sequence[StoredColumn], coded: Collection[int] = (), *, stored: bool = False
    ) -> None:
        """``coded``: ids of the columns that come as Arrow dictionaries, because a reader asked for that or
        because they were declared so.  ``stored``: they are seen as they are stored."""
        self._columns = columns
        self._converted = [
            place
            for place, column in enumerate(columns)
            if not stored
            and column.type.is_converted
            and (column.type.is_dictionary or column.id not in coded)
        ]
        fields = list(arrow_schema(columns))
        for place, column in enumerate(columns):
            if column.id in coded:
                fields[place] = fields[place].with_type(pa.dictionary(pa.int32(), column.type.arrow))
        for place in self._converted:
            fields[place] = declared_field(columns[place])
        self.arrow = pa.schema(fields)
        """What the user sees."""

    @property
    def is_plain(self) -> bool:
        """Whether the columns are seen as they are stored."""
        return not self._converted

    def arrays(self, stored: list[pa.Array]) -> list[pa.Array]:
        """Arrays of the columns as they are seen."""
        for place in self._converted:
            stored[place] = outward(stored[place], self._columns[place].type)
        return stored

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the columns as it is seen; one of no columns has its number of rows."""
        if not self._converted:
            return batch
        return pa.RecordBatch.from_arrays(self.arrays(batch.columns), schema=self.arrow)


__all__ = ["Shown"]
