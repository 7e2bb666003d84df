"""Changes of columns that stay: type, nullable, default, comment; and their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kudu_core.common.schema.changed_fields import field_changed
from kudu_core.common.schema.column_names import first_repeated, listed_names
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.retyped import retyped
from kudu_core.common.schema.schema import MAX_COMMENT_CHARACTERS, StoredColumn, check_stored
from kudu_core.common.types import values
from kudu_core.errors import InvalidArgument, shown

CHANGES = ("type", "nullable", "default", "comment")


def changed(
    columns: Sequence[StoredColumn],
    nested: Sequence[NestedColumn],
    key_ids: Sequence[int],
    change: Mapping[str, Mapping[str, Any]],
) -> tuple[list[StoredColumn], list[NestedColumn]]:
    """The columns with what is said of some of them; ``InvalidArgument`` names the column.

    Whether rows that are there take a change is not asked here.
    """
    if not isinstance(change, Mapping):
        raise InvalidArgument(f"change maps names of columns to what changes of them, not {shown(change)}")
    leaves = {id_ for one in nested for id_ in one.ids}
    flat = {column.name: place for place, column in enumerate(columns) if column.id not in leaves}
    whole = {one.name: place for place, one in enumerate(nested)}
    columns, nested = list(columns), list(nested)
    for name, wanted in change.items():
        _check_wanted(name, wanted)
        if name in whole:
            nested[whole[name]] = _nested_changed(nested[whole[name]], wanted)
        elif name in flat:
            column = columns[flat[name]]
            columns[flat[name]] = _changed(column, wanted, is_key=column.id in key_ids)
        elif "." in name and name.split(".")[0] in whole:
            at = whole[name.split(".")[0]]
            parts = {column.id: column for column in columns if column.id in nested[at].ids}
            nested[at], parts = field_changed(nested[at], parts, name, wanted)
            columns = [parts.get(column.id, column) for column in columns]
        else:
            names = listed_names([*flat, *whole])
            raise InvalidArgument(f"no column {shown(name)} to change; there are {names}")
    return columns, nested


def ordered(
    columns: Sequence[StoredColumn], nested: Sequence[NestedColumn], order: Sequence[str]
) -> list[StoredColumn]:
    """The columns that are named first, in that order, and the others behind them as they stand."""
    if isinstance(order, str) or not isinstance(order, Iterable):
        raise InvalidArgument(f"order is a list of names of columns, not {shown(order)}")
    order = list(order)
    leaves = {id_: one.name for one in nested for id_ in one.ids}
    parts: dict[str, list[StoredColumn]] = {}
    for column in columns:
        parts.setdefault(leaves.get(column.id, column.name), []).append(column)
    for name in order:
        if not isinstance(name, str) or name not in parts:
            raise InvalidArgument(f"order: no column {shown(name)}; there are {listed_names([*parts])}")
    repeated = first_repeated(order)
    if repeated is not None:
        raise InvalidArgument(f"order: column {repeated!r} is there twice")
    rest = [name for name in parts if name not in set(order)]
    return [column for name in (*order, *rest) for column in parts[name]]


def _check_wanted(name: Any, wanted: Any) -> None:
    if not isinstance(name, str):
        raise InvalidArgument(f"change maps names of columns to what changes of them, not {shown(name)}")
    if not isinstance(wanted, Mapping) or not wanted:
        raise InvalidArgument(
            f"change of column {shown(name)}: it maps {', '.join(CHANGES)} to what they are to be, "
            f"not {shown(wanted)}"
        )
    for what in wanted:
        if what not in CHANGES:
            raise InvalidArgument(
                f"column {shown(name)}: {shown(what)} cannot be changed; what can is {', '.join(CHANGES)}"
            )


def _changed(column: StoredColumn, wanted: Mapping[str, Any], *, is_key: bool) -> StoredColumn:
    what = f"column {column.name!r}"
    if "type" in wanted:
        column = retyped(column, wanted["type"], is_key=is_key)
    if "nullable" in wanted:
        nullable = _flag(wanted["nullable"], what)
        if is_key and nullable:
            raise InvalidArgument(f"{what}: a key column is never NULL")
        if column.type.value.name == "null" and not nullable:
            raise InvalidArgument(f"{what}: a column of type null is nullable")
        column = replace(column, nullable=nullable)
    if "default" in wanted:
        default = wanted["default"]
        if is_key and default is not None:
            raise InvalidArgument(f"{what}: a key column has no default")
        exact = None if default is None else values.exact(column.type, default, f"{what}, default")
        column = replace(column, write_default=exact)
    if "comment" in wanted:
        column = replace(column, comment=_comment(wanted["comment"], what))
    check_stored(column)
    return column


def _nested_changed(nested: NestedColumn, wanted: Mapping[str, Any]) -> NestedColumn:
    what = f"column {nested.name!r}"
    if "type" in wanted:
        raise InvalidArgument(f"{what}: its type stays; fields of structs are added by add=")
    if wanted.get("default") is not None:
        raise InvalidArgument(f"{what}: a column of lists, structs or maps has no default but NULL")
    if "nullable" in wanted and _flag(wanted["nullable"], what) != nested.nullable:
        raise InvalidArgument(
            f"{what}: whether a column of lists, structs or maps takes NULL is fixed when it is added"
        )
    if "comment" in wanted:
        nested = replace(nested, comment=_comment(wanted["comment"], what))
    return nested


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what}: nullable is True or False, not {shown(value)}")
    return value


def _comment(value: Any, what: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_COMMENT_CHARACTERS:
        raise InvalidArgument(
            f"{what}: a comment is text of up to {MAX_COMMENT_CHARACTERS} characters, not {shown(value)}"
        )
    return value


__all__ = ["CHANGES", "changed", "ordered"]
