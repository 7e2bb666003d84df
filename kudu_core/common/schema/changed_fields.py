"""A flat field of a struct that gets another type, or takes NULL from now on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.retyped import retyped
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.common.types.nested.nested_layout import is_nested
from kudu_core.common.types.widening import narrows
from kudu_core.errors import InvalidArgument, shown

FIELD_CHANGES = ("type", "nullable")


def field_changed(
    whole: NestedColumn, stored: Mapping[int, StoredColumn], name: str, wanted: Mapping[str, Any]
) -> tuple[NestedColumn, dict[int, StoredColumn]]:
    """The column with the field changed, and its stored columns; ``InvalidArgument`` names the field.

    ``stored``: those of the column, by id.  ``name``: of the field, with dots.
    """
    what = f"field {name!r}"
    for one in wanted:
        if one not in FIELD_CHANGES:
            can = ", ".join(FIELD_CHANGES)
            raise InvalidArgument(f"{what}: of a field {can} can change, not {shown(one)}")
    path = name.split(".")[1:]
    old = _field_at(whole.type, path, what)
    if is_nested(old.type):
        raise InvalidArgument(f"{what}: {old.type} stays as it is; fields of structs are added by add=")
    new = old
    if "type" in wanted:
        leaf = next(column for column in stored.values() if column.name == name)
        made = retyped(leaf, wanted["type"], is_key=False)
        if narrows(leaf.type, made.type):
            raise InvalidArgument(f"{what}: {leaf.type} of a field cannot become {made.type}, which is less")
        new = new.with_type(made.type.declared)
    if "nullable" in wanted:
        if wanted["nullable"] is not True and wanted["nullable"] is not old.nullable:
            raise InvalidArgument(f"{what}: nullable can only become True, not {shown(wanted['nullable'])}")
        new = new.with_nullable(bool(wanted["nullable"]))
    if new.equals(old):
        return whole, dict(stored)
    grown = replace(whole, type=_with_field_at(whole.type, path, new))
    leaves = zip(grown.ids, whole.layout.leaves, grown.layout.leaves, strict=True)
    changed = dict(stored)
    for id_, before, after in leaves:
        assert before.name == after.name
        if (before.type, before.nullable) != (after.type, after.nullable):
            changed[id_] = replace(changed[id_], type=after.type, nullable=after.nullable)
    return grown, changed


def _field_at(type_: pa.DataType, path: Sequence[str], what: str) -> pa.Field:
    field = None
    for name in path:
        at = type_.get_field_index(name) if pa.types.is_struct(type_) else -1
        if at < 0:
            raise InvalidArgument(f"{what}: there is no such field of structs")
        field = type_.field(at)
        type_ = field.type
    assert field is not None
    return field


def _with_field_at(type_: pa.DataType, path: Sequence[str], new: pa.Field) -> pa.DataType:
    fields = list(type_)
    at = type_.get_field_index(path[0])
    if len(path) > 1:
        new = fields[at].with_type(_with_field_at(fields[at].type, path[1:], new))
    fields[at] = new
    return pa.struct(fields)


__all__ = ["field_changed"]
