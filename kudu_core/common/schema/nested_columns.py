"""Columns of lists, structs and maps: what their user declared, and the stored columns that hold them.

A table stores flat columns.  A nested one is stored as several, its leaves
(``types/nested/nested_layout.py``), which are columns of the schema like any other: files, records, changes
and predicates know nothing else.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kudu_core.common.format.members import flag, integer, text
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.rowcodec import CodecColumn
from kudu_core.common.types.nested.nested_layout import NestedLayout, is_nested, layout_of
from kudu_core.common.types.nested.nested_nodes import FlatNode, NestedNode, StructNode, streams_of
from kudu_core.errors import InvalidArgument, shown

_NESTED = "nested["
_STEP = re.compile(r"\[\]|[^.\[\]]+")
_LISTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., pa.DataType]], ...] = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_fixed_size_list, pa.list_),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)


@dataclass(frozen=True)
class NestedColumn:
    """A column that is stored as its leaves.  Immutable."""

    name: str
    type: pa.DataType
    nullable: bool
    comment: str
    ids: tuple[int, ...]
    """Of the stored columns, in the order of the layout's leaves."""

    def __reduce__(self) -> tuple[Any, ...]:
        whole: tuple[NestedColumn, tuple[str, ...]] | None = self.__dict__.get("_part_of")
        if whole is not None:
            return _part_of, whole
        # As text: a pickled fixed_size_list of pyarrow forgets that its items take no NULL.
        return NestedColumn.from_json, (self.to_json(),)

    @cached_property
    def layout(self) -> NestedLayout:
        return layout_of(self.name, self.type, self.nullable)

    @property
    def is_part(self) -> bool:
        """Whether it is a field of another one."""
        return "_part_of" in self.__dict__

    @property
    def field(self) -> pa.Field:
        """As its user declared it."""
        return pa.field(
            self.name, self.type, self.nullable, {"comment": self.comment} if self.comment else None
        )

    def part(self, path: Sequence[str]) -> NestedColumn | None:
        """A field of a struct as a column of its own, named with dots; None: there is no such field."""
        layout = self.layout.part(path)
        if layout is None:
            return None
        ids = dict(zip((leaf.name for leaf in self.layout.leaves), self.ids, strict=True))
        made = NestedColumn(
            ".".join((self.name, *path)),
            layout.arrow,
            layout.nullable,
            "",
            tuple(ids[leaf.name] for leaf in layout.leaves),
        )
        made.__dict__.update(layout=layout, _part_of=(self, tuple(path)))
        return made

    def flags_around(self, path: Sequence[str]) -> list[int]:
        """Ids of the leaves that say where the structs around a field are NULL, the outermost first."""
        names = [".".join((self.name, *path[:depth])) + ":null" for depth in range(len(path))]
        by_name = dict(zip((leaf.name for leaf in self.layout.leaves), self.ids, strict=True))
        return [by_name[name] for name in names if name in by_name]

    def needed_with(self, flags: Collection[str]) -> list[str]:
        """The leaves that take no NULL where the structs with these flags are there."""
        found: list[str] = []
        _needed_below(self.layout.root, flags, False, found)
        return found

    def to_json(self) -> dict[str, Any]:
        raw = pa.schema([pa.field("", self.type)]).serialize().to_pybytes()
        return {
            "name": self.name,
            "type": base64.b64encode(raw).decode("ascii"),
            "nullable": self.nullable,
            "comment": self.comment,
            "ids": list(self.ids),
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> NestedColumn:
        """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what ``to_json`` never writes."""
        try:
            raw = pa.py_buffer(base64.b64decode(stored["type"], validate=True))
            type_ = pa.ipc.read_schema(raw).field(0).type
            found = NestedColumn(
                text(stored["name"]),
                type_,
                flag(stored["nullable"]),
                text(stored["comment"]),
                tuple(map(integer, stored["ids"])),
            )
            leaves = len(found.layout.leaves)
        except (pa.ArrowException, IndexError, InvalidArgument) as error:
            raise ValueError(f"the type of a nested column: {error}") from None
        if leaves != len(found.ids):
            raise ValueError(f"nested column {found.name!r} has {leaves} leaves, not {len(found.ids)}")
        return found


def _needed_below(node: NestedNode, flags: Collection[str], there: bool, found: list[str]) -> None:
    """``there``: the struct around is one of those."""
    if isinstance(node, StructNode):
        there = node.flags in flags if node.own_flags else there
        for field in node.fields:
            _needed_below(field, flags, there, found)
    elif there and not node.nullable:
        found.append(node.name if isinstance(node, FlatNode) else next(iter(streams_of(node.element)))[0])


def _part_of(whole: NestedColumn, path: tuple[str, ...]) -> NestedColumn | None:
    return whole.part(path)


def path_of(name: str) -> list[str]:
    """The steps to a field: names, and "[]" for the elements of a list or map.

    ``InvalidArgument`` for a name that says no path.

    >>> path_of("items[].price"), path_of("points[].value.x")
    (['items', '[]', 'price'], ['points', '[]', 'value', 'x'])
    """
    steps = _STEP.findall(name)
    if _spelled(steps) != name:
        raise InvalidArgument(
            f"column {shown(name)}: a field of a struct is named with dots, one of structs in a list with "
            'brackets, as "items[].price", and in a map as "points[].value.x"'
        )
    return steps


def _spelled(steps: Sequence[str]) -> str:
    return "".join(step if step == "[]" or not place else f".{step}" for place, step in enumerate(steps))


def with_field(type_: pa.DataType, path: Sequence[str], field: pa.Field, place: str) -> pa.DataType:
    """A type with another field, last, in the struct that the path leads to.

    ``path``: as ``path_of`` has it, from the column's name on, with the new field's at the end.
    ``InvalidArgument`` where it leads to no struct, or the field is there.
    """
    if path[1] == "[]":
        return _with_element(type_, path, field, place)
    if not pa.types.is_struct(type_):
        told = f'; one of what is in it is named "{place}[].{path[-1]}"' if is_nested(type_) else ""
        raise InvalidArgument(f"column {place!r} is {type_}; a field is added to a struct{told}")
    fields = list(type_)
    at = type_.get_field_index(path[1])
    if len(path) == 2:
        if at >= 0:
            raise InvalidArgument(f"column {place!r} has a field {path[1]!r} already")
        return pa.struct([*fields, field])
    if at < 0:
        raise InvalidArgument(f"column {place!r} has no field {path[1]!r}")
    inner = with_field(fields[at].type, path[1:], field, f"{place}.{path[1]}")
    fields[at] = fields[at].with_type(inner)
    return pa.struct(fields)


def _with_element(type_: pa.DataType, path: Sequence[str], field: pa.Field, place: str) -> pa.DataType:
    """The same of a list, with other elements, and of a map, with other values."""
    if pa.types.is_map(type_):
        if len(path) < 4 or path[2] != "value":
            raise InvalidArgument(
                f'column {place!r} is a map; a field is added to its values, as "{place}[].value.x"'
            )
        inner = with_field(type_.item_type, path[2:], field, f"{place}[].value")
        return pa.map_(type_.key_field, type_.item_field.with_type(inner), keys_sorted=type_.keys_sorted)
    make = next((made for is_kind, made in _LISTS if is_kind(type_)), None)
    if make is None or len(path) < 3:
        raise InvalidArgument(f"column {place!r} is {type_}, and no list of structs")
    element: pa.Field = type_.value_field
    element = element.with_type(with_field(element.type, path[1:], field, f"{place}[]"))
    return make(element, type_.list_size) if pa.types.is_fixed_size_list(type_) else make(element)


def nested_name(field: pa.Field) -> str:
    """A field of a nested type as text, beside the canonical names of flat types; see ``nested_field``."""
    raw = pa.schema([pa.field("", field.type, field.nullable)]).serialize().to_pybytes()
    return f"{_NESTED}{base64.b64encode(raw).decode('ascii')}]"


def nested_field(name: str, text_: str) -> pa.Field | None:
    """The inverse, as a field called ``name``; None where the text is a flat type's."""
    if not text_.startswith(_NESTED):
        return None
    raw = base64.b64decode(text_[len(_NESTED) : -1], validate=True)
    return pa.ipc.read_schema(pa.py_buffer(raw)).field(0).with_name(name)


def is_field(name: str) -> bool:
    """Whether users may name a leaf so: it is a flat field of structs, and no part of a list nor flags."""
    return "[" not in name and ":" not in name


def missing_cell(layout: NestedLayout, leaf: int) -> Any:
    """The cell of a leaf of a column that is NULL: NULL, or where a leaf has none, a flag or nothing."""
    one = layout.leaves[leaf]
    if one.nullable or is_field(one.name):
        return None  # or, of a column that takes no NULL, each row must give it
    return True if one.type.name == "bool" else b""


def check_leaves(columns: Iterable[CodecColumn], nested: Iterable[NestedColumn]) -> None:
    """``ValueError`` unless nested columns are stored by some of the columns, each by its own."""
    by_id = {column.id: column for column in columns}
    taken: set[int] = set()
    for one in nested:
        for leaf, id_ in zip(one.layout.leaves, one.ids, strict=True):
            column = by_id.get(id_)
            if column is None or id_ in taken:
                raise ValueError(f"nested column {one.name!r} is not stored by columns of its own")
            if (column.name, column.type) != (leaf.name, leaf.type):
                raise ValueError(f"column {column.name!r} is not the leaf {leaf.name!r}")
            taken.add(id_)


__all__ = [
    "NestedColumn",
    "check_leaves",
    "is_field",
    "missing_cell",
    "nested_field",
    "nested_name",
    "path_of",
    "with_field",
]
