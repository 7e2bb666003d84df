"""A table as a Polars ``LazyFrame``: ``Table.lazy``.

Polars asks a source for columns, a predicate, and how many rows.  Columns and rows become those of a scan of
ours, and of the predicate what ``polars_predicates`` knows to mean the same; Polars applies the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types.nested.nested_nodes import is_nested, storage_of
from kudu_core.common.types.types import STORED_DIGITS
from kudu_core.engines.arrow.dataset_rows import DatasetMoment
from kudu_core.engines.arrow.polars_predicates import translated
from kudu_core.errors import NotSupported
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.plan import UNIT_ROWS, ScanRequest

if TYPE_CHECKING:
    import polars as pl


def lazy_frame(handle: Handle, at: Any) -> pl.LazyFrame:
    """What ``Table.lazy`` returns."""
    try:
        from polars.io.plugins import register_io_source
    except ImportError as missing:
        raise NotSupported("lazy() needs Polars, 1.20 or newer: pip install polars") from missing
    held = DatasetMoment(handle, at)
    source = PolarsSource(held)
    return register_io_source(source.read, schema=source.types, is_pure=True)  # one snapshot


def _no_rows(schema: pa.Schema) -> pa.Table:
    """``schema.empty_table()``, which pyarrow does not make of extension types inside of others."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


class PolarsSource:
    """The rows of a snapshot, pinned as long as a frame over it lives."""

    def __init__(self, held: DatasetMoment) -> None:
        self._held = held
        for field in held.arrow_schema:
            if not _is_known(field.type):
                raise NotSupported(
                    f"Polars has no type for column {field.name!r}, {field.type}; read the others: "
                    "pl.from_arrow(table.scan(columns).to_table())"
                )
        self.types = _frame(_no_rows(held.arrow_schema)).schema

    def read(
        self, columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """As Polars calls a source.  By the predicate, whose columns are asked for, it chooses among the
        first ``rows``."""
        names = list(self._held.schema.declared_names) if columns is None else columns
        where, all_of_it = self._pushed(predicate, rows)
        left = None if all_of_it else predicate
        request = ScanRequest(names, where, limit=rows, batch_rows=UNIT_ROWS)
        for batch in self._held.scan(self._held.planned(request)):
            frame = _frame(pa.Table.from_batches([batch]))
            yield frame if left is None else frame.filter(left)

    def _pushed(self, predicate: pl.Expr | None, rows: int | None) -> tuple[pc.Expression | None, bool]:
        """(What the scan is asked for, whether that is the whole predicate.)"""
        if predicate is None:
            return None, True
        if rows is not None:
            return None, False
        return translated(predicate, self._held.schema, self.types)


def _is_known(type_: pa.DataType) -> bool:
    """Whether Polars takes such a column; from one that it does not it panics."""
    if pa.types.is_decimal256(type_):
        return bool(type_.precision <= STORED_DIGITS)  # ``_frame`` makes it one of 128 bits
    storage = storage_of(type_)
    parts = [storage.field(place).type for place in range(storage.num_fields)] if is_nested(storage) else []
    if pa.types.is_dictionary(storage):
        parts = [storage.value_type]
    if any(pa.types.is_decimal256(part) or not _is_known(part) for part in parts):
        return False
    return not (pa.types.is_interval(storage) or pa.types.is_decimal256(storage))


def _frame(table: pa.Table) -> pl.DataFrame:
    import polars

    for place, field in enumerate(table.schema):
        if pa.types.is_decimal256(field.type):
            narrow = pa.decimal128(field.type.precision, field.type.scale)
            table = table.set_column(place, field.with_type(narrow), table.column(place).cast(narrow))
    frame = polars.from_arrow(table, rechunk=False)
    assert isinstance(frame, polars.DataFrame)
    return frame


__all__ = ["PolarsSource", "lazy_frame"]
