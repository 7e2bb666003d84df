"""Changes of a schema: the next version from the one before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from kudu_core.common.schema import Column, Schema, StoredColumn, _column, check_name, store
from kudu_core.errors import InvalidArgument


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
    drop = (drop,) if isinstance(drop, str) else tuple(drop)
    for name in drop:
        column = schema.column(name)
        if column.id in schema.key_ids:
            raise InvalidArgument(f"column {name!r} is in the primary key and cannot be dropped")
    columns = [c for c in schema.columns if c.name not in drop]
    columns = _renamed(columns, dict(rename or {}))
    next_id = schema.next_id
    for declared in add:
        column = store(_column(declared), next_id, is_key=False)
        if any(c.name == column.name for c in columns):
            raise InvalidArgument(f"column {column.name!r} exists already")
        if not column.nullable and column.read_default is None:
            raise InvalidArgument(
                f"column {column.name!r}: rows that exist need a value; give a default, or make it nullable"
            )
        columns.append(column)
        next_id += 1
    return Schema(schema.version + 1, tuple(columns), schema.key_ids, next_id)


def _renamed(columns: list[StoredColumn], names: dict[str, str]) -> list[StoredColumn]:
    """All renames happen at once, so that two columns may swap their names."""
    have = {column.name for column in columns}
    for old, new in names.items():
        if old not in have:
            raise InvalidArgument(f"no column {old!r} to rename; there are {', '.join(sorted(have))}")
        check_name(new)
    result = [replace(column, name=names.get(column.name, column.name)) for column in columns]
    seen: set[str] = set()
    for column in result:
        if column.name in seen:
            raise InvalidArgument(f"two columns would be called {column.name!r}")
        seen.add(column.name)
    return result
