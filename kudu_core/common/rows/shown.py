"""Rows as their user declared them, made of rows as they are stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.base.status import PageError
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.column_names import first_repeated
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.schema import Schema, StoredColumn, arrow_schema, declared_field
from kudu_core.common.types.stored_arrays import dictionary_values, outward
from kudu_core.errors import Corruption, InvalidArgument

Seen = StoredColumn | NestedColumn


class Shown:
    """Some stored columns, in the order in which they are read, and what their user sees of them."""

    def __init__(
        self,
        columns: Sequence[StoredColumn],
        seen: Sequence[Seen] | None = None,
        coded: Collection[int] = (),
        *,
        stored: bool = False,
    ) -> None:
        """
        Parameters
        ----------
        seen : columns as users see them, all of whose stored ones are among ``columns``; None: each of those
        coded : ids of the columns that come as Arrow dictionaries, because a reader asked for that or because
            they were declared so
        stored : they are seen as they are stored
        """
        self._columns, self._coded, self._stored = columns, coded, stored
        self._seen: Sequence[Seen] = columns if seen is None or stored else seen
        self._places = {column.id: place for place, column in enumerate(columns)}
        self.is_plain = stored or (
            not any(isinstance(one, NestedColumn) or self._is_converted(one) for one in self._seen)
            and (self._seen is columns or list(self._seen) == list(columns))
        )
        """Whether the columns are seen as they are stored."""

    def _is_converted(self, column: StoredColumn) -> bool:
        type_ = column.type
        return type_.is_converted and (type_.is_dictionary or column.id not in self._coded)

    @cached_property
    def arrow(self) -> pa.Schema:
        """What the user sees."""
        return pa.schema([self._field(one) for one in self._seen])

    def _field(self, column: Seen) -> pa.Field:
        if not self._stored and (isinstance(column, NestedColumn) or self._is_converted(column)):
            return declared_field(column)
        assert isinstance(column, StoredColumn)
        [field] = arrow_schema([column])
        if column.id in self._coded:
            return field.with_type(pa.dictionary(pa.int32(), column.type.arrow))
        return field

    def arrays(
        self, stored: Sequence[pa.Array], absent: npt.NDArray[np.bool_] | None = None
    ) -> list[pa.Array]:
        """Arrays of the stored columns as they are seen.

        ``absent``: (rows,) bool, rows that are not there: nested columns are NULL, whatever is stored."""
        if self.is_plain:
            return list(stored)
        if absent is not None and not absent.any():
            absent = None
        return [self._array(one, stored, absent) for one in self._seen]

    def _array(
        self, column: Seen, stored: Sequence[pa.Array], absent: npt.NDArray[np.bool_] | None
    ) -> pa.Array:
        if isinstance(column, NestedColumn):
            leaves = [
                dictionary_values(array) if id_ in self._coded else array
                for id_, array in ((id_, stored[self._places[id_]]) for id_ in column.ids)
            ]
            if absent is None:
                return column.layout.assemble(leaves)
            present = pa.array(~absent)
            made = column.layout.assemble([array.filter(present) for array in leaves])
            return made.take(pa.array(np.cumsum(~absent) - 1, pa.int64(), mask=absent))
        array = stored[self._places[column.id]]
        return outward(array, column.type) if self._is_converted(column) and not self._stored else array

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the columns as it is seen; one of no columns has its number of rows."""
        if self.is_plain:
            return batch
        return pa.RecordBatch.from_arrays(self.arrays(batch.columns), schema=self.arrow)


@contextmanager
def damage_in(path: str) -> Iterator[None]:
    """``Corruption`` of a table for stored cells that do not make the values that their columns were declared
    to have."""
    try:
        yield
    except PageError as error:
        raise Corruption(path, 0, str(error)) from None


def stored_of(schema: Schema, seen: Iterable[Seen]) -> tuple[StoredColumn, ...]:
    """The stored columns of some that users see, each once."""
    found: dict[int, StoredColumn] = {}
    for one in seen:
        for id_ in one.ids if isinstance(one, NestedColumn) else (one.id,):
            found[id_] = schema.by_id[id_]
    return tuple(found.values())


def picked(
    schema: Schema, names: Sequence[str] | None, *, stored: bool = False
) -> tuple[tuple[StoredColumn, ...], Sequence[Seen]]:
    """Columns by the names that users give, None for all: the stored ones, and those that are seen.

    ``InvalidArgument`` as ``Schema.project``.  ``stored``: the names are those of stored columns.
    """
    if stored or not schema.nested:
        columns = schema.project(names)
        return columns, columns
    if names is None:
        return schema.columns, schema.declared
    if isinstance(names, str) or any(not isinstance(name, str) for name in names):
        return schema.project(names), ()  # says what is wrong
    seen = tuple(schema.seen(name) for name in names)
    repeated = first_repeated(one.name for one in seen)
    if repeated is not None:
        raise InvalidArgument(f"column {repeated!r} is asked for twice")
    return stored_of(schema, seen), seen


__all__ = ["Seen", "Shown", "damage_in", "picked", "stored_of"]
