"""Changes of a schema: the next version from the one before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from kudu_core.common.schema.column_changes import changed, ordered
from kudu_core.common.schema.column_names import checked_name
from kudu_core.common.schema.declare import (
    Column,
    check_stored_names,
    column_type,
    declared_column,
    stored_columns,
    stored_leaf,
)
from kudu_core.common.schema.nested_columns import NestedColumn, path_of, with_field
from kudu_core.common.schema.schema import Schema, StoredColumn, check_size
from kudu_core.common.schema.ttl import Ttl, declared_ttl
from kudu_core.common.types.widening import changes_cells
from kudu_core.errors import InvalidArgument, shown

SAME: Final = object()
"""What stays as it is."""


def altered(
    schema: Schema,
    *,
    drop: Collection[str] = (),
    rename: Mapping[str, str] | None = None,
    add: Sequence[Column | pa.Field] = (),
    change: Mapping[str, Mapping[str, Any]] | None = None,
    order: Sequence[str] = (),
    ttl: Any = SAME,
) -> Schema:
    """The schema after dropping, renaming, changing, adding and ordering columns, one after the other;
    version one higher.

    A column dropped and added again under its name is a new column with a new id.  Raises
    ``InvalidArgument`` that names the column.
    """
    if not isinstance(drop, Iterable):
        raise InvalidArgument(f"drop is a list of names of columns, not {shown(drop)}")
    drop = (drop,) if isinstance(drop, str) else tuple(drop)
    gone: set[int] = set()
    for name in drop:
        if not isinstance(name, str):
            raise InvalidArgument(f"drop is a list of names of columns, not {shown(name)}")
        column = _whole(schema, name, "dropped")
        if isinstance(column, StoredColumn) and column.id in schema.key_ids:
            raise InvalidArgument(f"column {name!r} is in the primary key and cannot be dropped")
        gone.update(column.ids if isinstance(column, NestedColumn) else (column.id,))
    columns = [c for c in schema.columns if c.id not in gone]
    nested = [one for one in schema.nested if one.ids[0] not in gone]
    columns, nested = _renamed(schema, columns, nested, rename or {})
    if change is not None:
        columns, nested = changed(columns, nested, schema.key_ids, change)
        columns = [_with_older(schema, column) for column in columns]
    next_id = schema.next_id
    names = {c.name for c in columns} | {one.name for one in nested}
    for declared in _declared(add):
        given = declared_column(declared)
        checked_name(given.name)
        whole_name = given.name.split(".")[0].split("[")[0]
        if whole_name != given.name and any(one.name == whole_name for one in nested):
            columns, nested, next_id = _with_field(columns, nested, given, next_id)
            continue
        made, whole = stored_columns(given, next_id, is_key=False)
        if given.name in names:
            raise InvalidArgument(f"column {given.name!r} exists already")
        names.add(given.name)
        if not given.nullable and (whole or made[0].read_default is None):
            raise InvalidArgument(
                f"column {given.name!r}: rows that exist need a value; give a default, or make it nullable"
            )
        columns += made
        nested += whole
        next_id += len(made)
    check_stored_names(columns)
    columns = ordered(columns, nested, order)
    changes = any(column.older and column.older[-1][0] == schema.version for column in columns)
    cells = schema.version if changes else schema.cells
    kept = _ttl_after(schema, columns, nested, gone, ttl)
    after = Schema(schema.version + 1, tuple(columns), schema.key_ids, next_id, tuple(nested), cells, kept)
    check_size(after)
    return after


def _ttl_after(
    schema: Schema,
    columns: Sequence[StoredColumn],
    nested: Sequence[NestedColumn],
    gone: Collection[int],
    ttl: Any,
) -> Ttl | None:
    """What the lifetime of rows becomes."""
    if ttl is not SAME:
        leaves = [id_ for one in nested for id_ in one.ids]
        return declared_ttl(ttl, {column.name: column for column in columns}, leaves)
    if schema.ttl is not None and schema.ttl.column_id in gone:
        name = schema.by_id[schema.ttl.column_id].name
        raise InvalidArgument(f"column {name!r} has the times of ttl: take that away too, by ttl=None")
    return schema.ttl


def _with_older(before: Schema, column: StoredColumn) -> StoredColumn:
    """A column that changes its cells knows what those were."""
    known = before.by_id[column.id]
    if not changes_cells(known.type, column.type):
        return column
    return replace(column, older=(*column.older, (before.version, known.type)))


def _with_field(
    columns: list[StoredColumn], nested: list[NestedColumn], given: Column, next_id: int
) -> tuple[list[StoredColumn], list[NestedColumn], int]:
    """Another field of a struct: its leaves beside those that there are."""
    path = path_of(given.name)
    whole = next(one for one in nested if one.name == path[0])
    if not given.nullable or given.default is not None:
        raise InvalidArgument(f"column {given.name!r}: a field that is added to a struct is NULL at first")
    type_ = given.type if isinstance(given.type, pa.DataType) else column_type(given).declared
    grown = replace(whole, type=with_field(whole.type, path, pa.field(path[-1], type_), whole.name))
    ids = dict(zip((leaf.name for leaf in whole.layout.leaves), whole.ids, strict=True))
    stored = {column.id: column for column in columns}
    for place, leaf in enumerate(grown.layout.leaves):
        if leaf.name not in ids:
            ids[leaf.name] = next_id
            stored[next_id] = stored_leaf(grown.layout, place, next_id, given.compression)
            next_id += 1
    grown = replace(grown, ids=tuple(ids[leaf.name] for leaf in grown.layout.leaves))
    after: list[StoredColumn] = []
    for column in columns:
        if column.id == whole.ids[0]:
            after += [stored[id_] for id_ in grown.ids]
        elif column.id not in whole.ids:
            after.append(column)
    return after, [grown if one is whole else one for one in nested], next_id


def _whole(schema: Schema, name: str, what: str) -> StoredColumn | NestedColumn:
    """A column by its name; ``InvalidArgument`` for a part of one."""
    column = schema.nested_by_name.get(name) or schema.column(name)
    if isinstance(column, StoredColumn) and column.id in schema.leaf_of:
        whole = schema.leaf_of[column.id].name
        raise InvalidArgument(f"{name!r} is a part of column {whole!r}, and cannot be {what} by itself")
    return column


def _declared(add: Sequence[Column | pa.Field]) -> Sequence[Any]:
    """Columns to add: a list of them, an Arrow schema, or one alone."""
    if isinstance(add, Column | pa.Field):
        return (add,)
    if isinstance(add, str | bytes | Mapping) or not isinstance(add, Iterable):
        raise InvalidArgument(f"add is a list of Columns or pa.Fields, not {add!r}")
    return list(add)


def _renamed(
    schema: Schema,
    columns: list[StoredColumn],
    nested: list[NestedColumn],
    rename: Mapping[str, str],
) -> tuple[list[StoredColumn], list[NestedColumn]]:
    """All renames happen at once, so that two columns may swap their names."""
    if not isinstance(rename, Mapping):
        raise InvalidArgument(f"rename maps names of columns to new ones, not {rename!r}")
    have = {column.name for column in columns if column.id not in schema.leaf_of} | {c.name for c in nested}
    for old, new in rename.items():
        if old not in have:
            raise InvalidArgument(f"no column {old!r} to rename; there are {', '.join(sorted(have))}")
        _whole(schema, old, "renamed")
        checked_name(new)
    wholes = [replace(one, name=rename.get(one.name, one.name)) for one in nested]
    leaf_names = {
        id_: leaf.name for one in wholes for id_, leaf in zip(one.ids, one.layout.leaves, strict=True)
    }
    result = [
        replace(column, name=leaf_names.get(column.id) or rename.get(column.name, column.name))
        for column in columns
    ]
    seen: set[str] = set()
    for name in (*(c.name for c in result if c.id not in leaf_names), *(one.name for one in wholes)):
        if name in seen:
            raise InvalidArgument(f"two columns would be called {name!r}")
        seen.add(name)
    return result, wholes
