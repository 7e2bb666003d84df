"""A nested type as a tree, and the flat columns that store it: its leaves.

Outside of any list a struct is no more than its fields and a column of flags.  A list packs the elements of
a row into cells of binary columns, one for each *stream* of its element, and what is below an outermost list
has streams instead of columns:

========================  ==================================  ==========================================
type, at the place p      leaves outside of a list            streams in a list
========================  ==================================  ==========================================
flat, of w bytes          ``p``                               ``p``: w bytes for each
flat, of variable width   ``p``                               ``p:length``: int32; ``p``: the bytes
struct                    its fields, ``p.f``                 its fields, ``p.f``
list                      streams of its element, ``p[]``     ``p:length``: int32; those of ``p[]``
fixed_size_list           streams of its element, ``p[]``     those of ``p[]``, n for each
takes NULL                the leaf is nullable;               ``p:null``: a byte for each, 1 where NULL;
                          struct: ``p:null``, bool            or none at all, where no one of a row is
========================  ==================================  ==========================================

A map is a list of structs of ``key`` and ``value``.  The first stream of a list has a known number of bytes
for each element (``stride``), so its cell says how many there are, and its NULL is the list's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core.common.types.types import TYPE_BOOL, ColumnType
from kudu_core.errors import ColumnTooLarge, InvalidArgument, shown

MAX_DEPTH = 32
"""Lists, structs and maps, one in another."""
MAX_LEAVES = 10_000
"""Of one column: as many as a table has columns."""
MAX_LEAF_NAME_BYTES = 256
"""A leaf is stored as a column, and has a name like one."""
LARGEST_OFFSET = 0x7FFF_FFFF
"""Of the cells of a variable column: what int32 offsets address."""
LENGTH_BYTES = 4
_RESERVED = (".", ":", "[")
Bits: TypeAlias = npt.NDArray[np.uint8]
"""A bitmap."""
I32Array: TypeAlias = npt.NDArray[np.int32]
Bytes: TypeAlias = npt.NDArray[np.uint8]
_t = pa.types


@dataclass(frozen=True, slots=True)
class NestedLeaf:
    """A stored column of a nested one."""

    name: str
    type: ColumnType
    nullable: bool


@dataclass(frozen=True, slots=True, eq=False)
class FlatNode:
    """Cells of a flat type."""

    name: str
    type: ColumnType
    nullable: bool

    @property
    def declared(self) -> pa.DataType:
        """What the user's cells are; ``type.arrow`` is what the stored ones are."""
        return self.type.declared

    @property
    def is_bool(self) -> bool:
        return self.type.kind == TYPE_BOOL

    @property
    def stride(self) -> int:
        return self.type.width or LENGTH_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class StructNode:
    """Fields.  ``flags``: the leaf that says where the struct is NULL, its own or that of the nearest struct
    around it that may be; None where it never is.  ``own_flags``: whether it is among the struct's leaves."""

    name: str
    arrow: pa.DataType
    nullable: bool
    fields: tuple[NestedNode, ...]
    flags: str | None
    own_flags: bool

    @property
    def storage(self) -> pa.DataType:
        return storage_of(self.arrow)

    @property
    def stride(self) -> int:
        return self.fields[0].stride


@dataclass(frozen=True, slots=True, eq=False)
class ListNode:
    """Elements, in a list of any kind.  ``size``: how many there are in every cell, of a fixed_size_list of
    one and more; else None, and in a list the lengths are stored."""

    name: str
    arrow: pa.DataType
    nullable: bool
    element: NestedNode
    size: int | None

    @property
    def storage(self) -> pa.DataType:
        return storage_of(self.arrow)

    @property
    def stride(self) -> int:
        return LENGTH_BYTES if self.size is None else self.size * self.element.stride


NestedNode: TypeAlias = FlatNode | StructNode | ListNode

BINARY = ColumnType.parse("binary")
BOOL = ColumnType.parse("bool")


def storage_of(type_: pa.DataType) -> pa.DataType:
    """The type that an extension type with nested storage stands for; of any other the type itself."""
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def is_nested(type_: pa.DataType) -> bool:
    """Whether values of a type have parts: lists, structs, maps, and extension types that store such.

    >>> is_nested(pa.list_(pa.int8())), is_nested(pa.string())
    (True, False)
    """
    return _is_list(storage := storage_of(type_)) or bool(_t.is_struct(storage))


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        _t.is_list(type_)
        or _t.is_large_list(type_)
        or _t.is_fixed_size_list(type_)
        or _t.is_list_view(type_)
        or _t.is_large_list_view(type_)
        or _t.is_map(type_)
    )


def entries_of(type_: pa.DataType) -> pa.Field:
    """What a map is a list of.  How its type calls key and value is not stored, and says nothing.

    >>> entries_of(pa.map_(pa.string(), pa.int8()))
    pyarrow.Field<entries: struct<key: string not null, value: int8> not null>
    """
    fields = [type_.key_field.with_name("key"), type_.item_field.with_name("value")]
    return pa.field("entries", pa.struct(fields), False)


# ------------------------------------------------------------------------------ a tree of a type


def tree_of(name: str, type_: pa.DataType, nullable: bool) -> NestedNode:
    """The tree of a column's type.  ``InvalidArgument`` names the place that no table stores."""
    if not is_nested(type_):
        return FlatNode(name, _flat_type(name, type_), nullable)
    _check_name(name, name)
    return _Builder().node(name, type_, nullable)


def _flat_type(name: str, type_: pa.DataType) -> ColumnType:
    try:
        return ColumnType.from_arrow(type_)
    except InvalidArgument as error:
        raise InvalidArgument(f"column {name!r}: {error}") from None


class _Builder:
    """Makes one tree, and counts its leaves on the way: a type may be far larger than any that is stored."""

    def __init__(self) -> None:
        self.leaves = 0

    def node(
        self,
        name: str,
        type_: pa.DataType,
        nullable: bool,
        flags: str | None = None,
        depth: int = 0,
        listed: bool = False,
    ) -> NestedNode:
        """``flags``: of the nearest struct around that may be NULL, up to the nearest list around.
        ``listed``: there is a list around."""
        if not is_nested(type_):
            return self._flat(name, type_, nullable, listed)
        if depth == MAX_DEPTH:
            raise InvalidArgument(
                f"column {shown(name)}: more than {MAX_DEPTH} lists, structs and maps in one another; "
                "declare string or binary, and store this part as text or bytes"
            )
        storage = storage_of(type_)
        if _is_list(storage):
            return self._list(name, type_, storage, nullable, depth, listed)
        return self._struct(name, type_, storage, nullable, flags, depth, listed)

    def _flat(self, name: str, type_: pa.DataType, nullable: bool, listed: bool) -> FlatNode:
        found = _flat_type(name, type_)
        self._count(name, 1 + (listed and not found.width) + (listed and nullable))
        return FlatNode(name, found, nullable)

    def _list(
        self, name: str, type_: pa.DataType, storage: pa.DataType, nullable: bool, depth: int, listed: bool
    ) -> ListNode:
        if _t.is_map(storage):
            entry = entries_of(storage)
        else:
            entry = storage.value_field
        size = (storage.list_size or None) if _t.is_fixed_size_list(storage) else None
        if listed:
            self._count(name, (size is None) + nullable)
        element = self.node(f"{name}[]", entry.type, entry.nullable, None, depth + 1, True)
        node = ListNode(name, type_, nullable, element, size)
        if node.stride > LARGEST_OFFSET:
            raise InvalidArgument(
                f"column {name!r}: one {storage} takes more than 2 GiB; declare a list of another size"
            )
        return node

    def _struct(
        self,
        name: str,
        type_: pa.DataType,
        storage: pa.DataType,
        nullable: bool,
        flags: str | None,
        depth: int,
        listed: bool,
    ) -> StructNode:
        fields = list(storage)
        if not fields:
            raise InvalidArgument(
                f"column {name!r}: a struct without fields stores nothing; give it a field, or declare bool"
            )
        if nullable:
            flags = f"{name}:null"
            self._count(name, 1)
        seen: set[str] = set()
        children = []
        for field in fields:
            _check_name(name, field.name)
            if field.name in seen:
                raise InvalidArgument(
                    f"column {name!r}: two fields of the struct are named {field.name!r}; rename one"
                )
            seen.add(field.name)
            place = f"{name}.{field.name}"
            children.append(self.node(place, field.type, field.nullable, flags, depth + 1, listed))
        return StructNode(name, type_, nullable, tuple(children), flags, nullable)

    def _count(self, name: str, leaves: int) -> None:
        self.leaves += leaves
        if self.leaves > MAX_LEAVES:
            raise InvalidArgument(
                f"column {name!r}: the type comes to more than {MAX_LEAVES:,} stored columns, which is as "
                "many as a table has; declare fewer fields, or a map"
            )
        if len(f"{name}:length".encode()) > MAX_LEAF_NAME_BYTES:
            raise InvalidArgument(
                f"column {shown(name)}: stored columns have names of up to {MAX_LEAF_NAME_BYTES} bytes, and "
                "those of nested fields are joined; give shorter names"
            )


def _check_name(place: str, name: Any) -> None:
    """``InvalidArgument`` for a name by which no leaf can be named."""
    where = f"column {shown(place)}"
    if not isinstance(name, str) or not name or "\0" in name:
        raise InvalidArgument(f"{where}: a field's name is text that is not empty, without NUL")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{where}: field name {shown(name)} cannot be written as UTF-8") from None
    if size > MAX_LEAF_NAME_BYTES:
        raise InvalidArgument(
            f"{where}: field name {shown(name)} has {size} bytes; at most {MAX_LEAF_NAME_BYTES} are stored"
        )
    for character in _RESERVED:
        if character in name:
            raise InvalidArgument(
                f"{where}: field name {shown(name)} has a {character!r}, which tells the parts of nested "
                "columns; rename it"
            )


# ------------------------------------------------------------------------------ leaves


def leaves_of(node: NestedNode, nullable: bool = False) -> Iterator[NestedLeaf]:
    """The stored columns of a tree, in order.  ``nullable``: a struct around it may be NULL."""
    nullable = nullable or node.nullable
    if isinstance(node, FlatNode):
        yield NestedLeaf(node.name, node.type, nullable)
    elif isinstance(node, ListNode):
        for number, (name, _) in enumerate(streams_of(node.element)):
            yield NestedLeaf(name, BINARY, nullable and number == 0)
    else:
        for field in node.fields:
            yield from leaves_of(field, nullable)
        if node.own_flags:
            assert node.flags is not None
            yield NestedLeaf(node.flags, BOOL, False)


def streams_of(node: NestedNode, elements: int = 1) -> Iterator[tuple[str, int]]:
    """The streams of what is in a list, in order, with their names.  Beside each how many bytes it has for
    one element: 0 where that depends on the element."""
    if isinstance(node, FlatNode):
        if not node.type.width:
            yield f"{node.name}:length", LENGTH_BYTES * elements
        yield node.name, node.type.width * elements
    elif isinstance(node, StructNode):
        for field in node.fields:
            yield from streams_of(field, elements)
    elif node.size is None:
        yield f"{node.name}:length", LENGTH_BYTES * elements
        for name, _ in streams_of(node.element):
            yield name, 0
    else:
        yield from streams_of(node.element, elements * node.size)
    if node.nullable:
        yield f"{node.name}:null", 0


def check_size(name: str, rows: int, size: int) -> None:
    """``ColumnTooLarge`` for what int32 offsets cannot address."""
    if size > LARGEST_OFFSET:
        raise ColumnTooLarge(
            f"{rows:,} cells of column {name!r} at once: {size:,} bytes or elements exceed {LARGEST_OFFSET:,}"
        )


__all__ = [
    "BINARY",
    "BOOL",
    "LARGEST_OFFSET",
    "LENGTH_BYTES",
    "MAX_DEPTH",
    "MAX_LEAVES",
    "Bits",
    "Bytes",
    "FlatNode",
    "I32Array",
    "ListNode",
    "NestedLeaf",
    "NestedNode",
    "StructNode",
    "check_size",
    "entries_of",
    "is_nested",
    "leaves_of",
    "storage_of",
    "streams_of",
    "tree_of",
]
