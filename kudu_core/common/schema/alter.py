"""Changes of a schema: the next version from the one before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kudu_core.common.schema.declare import Column, declared_column, store
from kudu_core.common.schema.schema import Schema, StoredColumn, check_size, checked_name
from kudu_core.errors import InvalidArgument, shown


def altered(
    schema: Schema,
    *,
    drop: Collection[str] = (),
    rename: Mapping[str, str] | None = None,
    add: Sequence[Column | pa.Field] = (),
) -> Schema:
    """The schema after dropping, then renaming, then adding columns; version one higher.

    A column dropped and added again under its name is a new column with a new id.  Raises
    ``InvalidArgument`` that names the column.
    """
    if not isinstance(drop, Iterable):
        raise InvalidArgument(f"drop is a list of names of columns, not {shown(drop)}")
    drop = (drop,) if isinstance(drop, str) else tuple(drop)
    for name in drop:
        if not isinstance(name, str):
            raise InvalidArgument(f"drop is a list of names of columns, not {shown(name)}")
        column = schema.column(name)
        if column.id in schema.key_ids:
            raise InvalidArgument(f"column {name!r} is in the primary key and cannot be dropped")
    gone = frozenset(drop)
    columns = [c for c in schema.columns if c.name not in gone]
    columns = _renamed(schema, columns, rename or {})
    next_id = schema.next_id
    names = {c.name for c in columns}
    for declared in _declared(add):
        column = store(declared_column(declared), next_id, is_key=False)
        if column.name in names:
            raise InvalidArgument(f"column {column.name!r} exists already")
        names.add(column.name)
        if not column.nullable and column.read_default is None:
            raise InvalidArgument(
                f"column {column.name!r}: rows that exist need a value; give a default, or make it nullable"
            )
        columns.append(column)
        next_id += 1
    after = Schema(schema.version + 1, tuple(columns), schema.key_ids, next_id)
    check_size(after)
    return after


def _declared(add: Sequence[Column | pa.Field]) -> Sequence[Any]:
    """Columns to add: a list of them, an Arrow schema, or one alone."""
    if isinstance(add, Column | pa.Field):
        return (add,)
    if isinstance(add, str | bytes | Mapping) or not isinstance(add, Iterable):
        raise InvalidArgument(f"add is a list of Columns or pa.Fields, not {add!r}")
    return list(add)


def _renamed(schema: Schema, columns: list[StoredColumn], rename: Mapping[str, str]) -> list[StoredColumn]:
    """All renames happen at once, so that two columns may swap their names."""
    if not isinstance(rename, Mapping):
        raise InvalidArgument(f"rename maps names of columns to new ones, not {rename!r}")
    have = {column.name: column for column in columns}
    for old, new in rename.items():
        if old not in have:
            raise InvalidArgument(f"no column {old!r} to rename; there are {', '.join(sorted(have))}")
        if have[old].id in schema.key_ids:
            raise InvalidArgument(f"column {old!r} is in the primary key and cannot be renamed")
        checked_name(new)
    result = [replace(column, name=rename.get(column.name, column.name)) for column in columns]
    seen: set[str] = set()
    for column in result:
        if column.name in seen:
            raise InvalidArgument(f"two columns would be called {column.name!r}")
        seen.add(column.name)
    return result
