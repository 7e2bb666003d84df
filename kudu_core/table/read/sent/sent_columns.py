"""Columns and predicates in plain values: as a share of a scan, or a scan, names them in another process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from kudu_core.common.rows.shown import Seen
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import SchemaMismatch


def expression_bytes(expression: Any) -> bytes:
    """A predicate as pyarrow serialises it when pickled."""
    return bytes(expression.__reduce__()[1][0])


def expression_from(data: bytes) -> Any:
    import pyarrow.compute as pc

    return pc.Expression._deserialize(pa.py_buffer(data))


class NamedColumns(Protocol):
    """The columns that were sent: what is shown, and what the predicate reads, by name and id."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def column_ids(self) -> tuple[int, ...]: ...
    @property
    def where_columns(self) -> tuple[tuple[str, int], ...]: ...
    @property
    def where_nested(self) -> tuple[NestedColumn, ...]: ...
    @property
    def seen(self) -> tuple[int | NestedColumn, ...] | None: ...


def columns_of_today(
    schema: Schema, sent: NamedColumns, *, every: bool = False, of: str = "token"
) -> tuple[Schema, tuple[StoredColumn, ...]]:
    """(A schema of the columns that are needed, under the names of their time; those that are shown.)

    ``every``: of all columns; those that are not named have no name that could be one.  ``of``: what names
    them, for messages.
    """
    others = schema.value_columns if every else ()
    columns = {c.id: c for c in schema.key_columns} | {c.id: replace(c, name=f"\0{c.id}") for c in others}
    for name, column_id in (*zip(sent.columns, sent.column_ids, strict=True), *sent.where_columns):
        column = schema.by_id.get(column_id)
        if column is None:
            raise SchemaMismatch(f"column {name!r} of the {of} was dropped; plan the scan again")
        columns[column_id] = replace(column, name=name)
    nested = [one for one in sent.seen or () if isinstance(one, NestedColumn) and not one.is_part]
    known = {one.name for one in nested}
    nested += [one for one in sent.where_nested if one.name not in known]  # some may be fields of a struct
    planned = Schema(
        schema.version, tuple(columns.values()), schema.key_ids, schema.next_id, tuple(nested), schema.cells
    )
    return planned, tuple(columns[i] for i in sent.column_ids)


def told_seen(seen: Sequence[Seen] | None) -> tuple[int | NestedColumn, ...] | None:
    """The columns that users see in plain values: by their ids, where they are stored ones."""
    if seen is None or not any(isinstance(one, NestedColumn) for one in seen):
        return None
    return tuple(one if isinstance(one, NestedColumn) else one.id for one in seen)


def seen_of(
    columns: Sequence[StoredColumn], told: Sequence[int | NestedColumn] | None
) -> Sequence[Seen] | None:
    """The inverse, of the stored columns that were sent with them."""
    by_id = {column.id: column for column in columns}
    return None if told is None else [by_id[one] if isinstance(one, int) else one for one in told]


__all__ = ["columns_of_today", "expression_bytes", "expression_from", "seen_of", "told_seen"]
