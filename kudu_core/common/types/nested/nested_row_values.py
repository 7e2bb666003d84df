"""The Python value of one row of a nested column, made of its leaves' cells without Arrow.

An array of one row takes as long as one of a thousand.  What is not as the package writes it is not judged
here: ``NeedsGeneralPath`` says that ``nested_assemble.py`` has to look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa

from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core.common.types import values
from kudu_core.common.types.nested.nested_nodes import (
    LENGTH_BYTES,
    FlatNode,
    ListNode,
    NestedNode,
    StructNode,
    streams_of,
)
from kudu_core.common.types.types import (
    LONG_DECIMAL_BYTES,
    TYPE_BOOL,
    TYPE_DECIMAL,
    TYPE_FLOAT,
    TYPE_UNSIGNED,
    ColumnType,
)

Row: TypeAlias = Mapping[str, Any]
"""Values of leaves by their names: of a binary one its bytes, of others what Python has."""
Outer: TypeAlias = Callable[[Row], Any]
Inner: TypeAlias = Callable[[Row, int], list[Any]]
"""So many elements, of all the lists of a row."""

_t = pa.types
_SIGNED, _UNSIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}, {1: "B", 2: "H", 4: "I", 8: "Q"}
_FLOATS = {4: "f", 8: "d"}


def row_value(root: NestedNode) -> Outer:
    """What makes the value of a row.  It raises ``NeedsGeneralPath``, and ``OverflowError`` or ``ValueError``
    for what no Python value holds."""
    return _outer(root)


# ------------------------------------------------------------------------------ outside of lists


def _outer(node: NestedNode) -> Outer:
    if _is_foreign(node):
        return _general
    if isinstance(node, FlatNode):
        return itemgetter(node.name) if node.nullable else _there(node.name)
    return _struct(node) if isinstance(node, StructNode) else _list(node)


def _is_foreign(node: NestedNode) -> bool:
    """Whether a class that is not Arrow's says what its values are in Python."""
    type_ = node.declared if isinstance(node, FlatNode) else node.arrow
    return isinstance(type_, pa.ExtensionType) and not isinstance(type_, pa.UnknownExtensionType)


def _general(*_: Any) -> Any:
    raise NeedsGeneralPath


def _there(name: str) -> Outer:
    def value(row: Row) -> Any:
        found = row[name]
        if found is None:
            raise NeedsGeneralPath
        return found

    return value


def _struct(node: StructNode) -> Outer:
    names = _names(node)
    flags = node.flags if node.own_flags else None
    if all(isinstance(field, FlatNode) and field.nullable for field in node.fields) and not any(
        map(_is_foreign, node.fields)
    ):
        pairs = [(name, field.name) for name, field in zip(names, node.fields, strict=True)]

        def flat(row: Row) -> Any:
            if flags is not None and row[flags] is not False:
                return _missing(row[flags])
            made = {}
            for name, leaf in pairs:  # no comprehension, which takes as long again
                made[name] = row[leaf]
            return made

        return flat
    parts = [(name, _outer(field)) for name, field in zip(names, node.fields, strict=True)]

    def value(row: Row) -> Any:
        if flags is not None and row[flags] is not False:
            return _missing(row[flags])
        made = {}
        for name, part in parts:
            made[name] = part(row)
        return made

    return value


def _names(node: StructNode) -> list[str]:
    return [field.name.removeprefix(f"{node.name}.") for field in node.fields]


def _missing(flag: bool | None) -> None:
    """Of a struct that is not there: NULL, unless the flag is itself."""
    if flag is None:
        raise NeedsGeneralPath


def _list(node: ListNode) -> Outer:
    first, *others = (name for name, _ in streams_of(node.element))
    stride, size, nullable = node.element.stride, node.size, node.nullable
    is_empty = size is None and _t.is_fixed_size_list(node.storage)
    elements = _elements(node)

    def value(row: Row) -> Any:
        cell = row[first]
        if cell is None:
            if nullable and all(row[name] == b"" for name in others):
                return None
            raise NeedsGeneralPath
        count, rest = divmod(len(cell), stride)
        if rest or (size is not None and count != size) or (is_empty and count):
            raise NeedsGeneralPath
        return elements(row, count)

    return value


# ------------------------------------------------------------------------------ in lists


def _inner(node: NestedNode, is_later: bool = False) -> Inner:
    """``is_later``: it may have been added to the struct that it is in."""
    made: Inner
    if _is_foreign(node):
        return _general
    if isinstance(node, FlatNode):
        made = _flat(node)
    elif isinstance(node, StructNode):
        made = _structs(node)
    else:
        made = _lists(node)
    if not node.nullable:
        return made
    name, streams = f"{node.name}:null", [name for name, _ in streams_of(node)]

    def value(row: Row, count: int) -> list[Any]:
        flags = row[name]
        if flags:
            if len(flags) != count or flags.count(0) + flags.count(1) != count:
                raise NeedsGeneralPath
            return [None if flag else one for flag, one in zip(flags, made(row, count), strict=True)]
        if flags is None:
            raise NeedsGeneralPath
        if is_later and count and all(row[one] == b"" for one in streams):
            return [None] * count
        return made(row, count)

    return value


def _structs(node: StructNode) -> Inner:
    names = _names(node)
    parts = [_inner(field, is_later=number > 0) for number, field in enumerate(node.fields)]

    def value(row: Row, count: int) -> list[Any]:
        cells = [part(row, count) for part in parts]
        return [dict(zip(names, one)) for one in zip(*cells)]  # noqa: B905 (all of them have ``count``)

    return value


def _elements(node: ListNode) -> Inner:
    """Elements of a list; of a map its pairs."""
    if not _t.is_map(node.storage):
        return _inner(node.element)
    assert isinstance(node.element, StructNode)
    keys, items = map(_inner, node.element.fields)
    return lambda row, count: list(zip(keys(row, count), items(row, count), strict=True))


def _lists(node: ListNode) -> Inner:
    elements = _elements(node)
    size, is_empty = node.size, _t.is_fixed_size_list(node.storage)
    name = f"{node.name}:length"

    def of_one_size(row: Row, count: int) -> list[Any]:
        assert size is not None
        every = elements(row, count * size)
        return [every[at : at + size] for at in range(0, count * size, size)]

    def value(row: Row, count: int) -> list[Any]:
        ends = _ends(row[name], count)
        if is_empty and ends[-1]:
            raise NeedsGeneralPath
        every = elements(row, ends[-1])
        return [every[at:end] for at, end in pairwise(ends)]

    return value if size is None else of_one_size


def _ends(cell: bytes | None, count: int) -> list[int]:
    """Where so many elements end, by their lengths; from 0."""
    if cell is None or len(cell) != count * LENGTH_BYTES:
        raise NeedsGeneralPath
    lengths = memoryview(cell).cast("i")
    if count and min(lengths) < 0:
        raise NeedsGeneralPath
    return list(accumulate(lengths, initial=0))


def _flat(node: FlatNode) -> Inner:
    if node.type.value.name == "null":
        return _general
    return _fixed(node) if node.type.width else _variable(node)


def _fixed(node: FlatNode) -> Inner:
    type_, name, width = node.type, node.name, node.type.width
    unpacked = _unpacked(type_)
    made = _converted(type_)

    def value(row: Row, count: int) -> list[Any]:
        cell = row[name]
        if cell is None or len(cell) != count * width:
            raise NeedsGeneralPath
        cells = unpacked(cell)
        return cells if made is None else list(map(made, cells))

    return value


def _unpacked(type_: ColumnType) -> Callable[[bytes], list[Any]]:
    """Bytes of cells as their physical values."""
    width = type_.width
    if type_.kind == TYPE_BOOL:
        return _truths
    if type_.kind == TYPE_DECIMAL and width == 16:
        return _decimals(10**type_.arrow.precision)
    letter: Any  # of those that ``cast`` knows
    if type_.kind == TYPE_FLOAT:
        letter = _FLOATS[width]
    else:
        letter = (_UNSIGNED if type_.kind == TYPE_UNSIGNED else _SIGNED)[width]
    return lambda cell: memoryview(cell).cast(letter).tolist()


def _truths(cell: bytes) -> list[bool]:
    if cell.count(0) + cell.count(1) != len(cell):
        raise NeedsGeneralPath
    return list(map(bool, cell))


def _decimals(above: int) -> Callable[[bytes], list[int]]:
    def numbers(cell: bytes) -> list[int]:
        parts = range(0, len(cell), 16)
        found = [int.from_bytes(cell[at : at + 16], "little", signed=True) for at in parts]
        if found and not -above < min(found) <= max(found) < above:
            raise NeedsGeneralPath
        return found

    return numbers


def _converted(type_: ColumnType) -> Callable[[Any], Any] | None:
    """Physical values as Python's; None: they are."""
    is_plain = type_.kind != TYPE_DECIMAL and not type_.is_temporal and not type_.is_converted
    return None if is_plain else lambda value: values.python(type_, value)


def _variable(node: FlatNode) -> Inner:
    """Text, bytes, and what is stored as bytes of a known size, which elements that are NULL have not."""
    type_, name, lengths = node.type, node.name, f"{node.name}:length"
    size = LONG_DECIMAL_BYTES if type_.is_long_decimal else type_.cell_bytes
    is_made = type_.value.name in ("uuid", "month_day_nano_interval") or type_.is_long_decimal
    is_text = type_.is_string and not is_made

    def value(row: Row, count: int) -> list[Any]:
        ends, cell = _ends(row[lengths], count), row[name]
        if cell is None or ends[-1] != len(cell):
            raise NeedsGeneralPath
        if is_text:
            text = cell.decode()
            if len(text) == len(cell):
                return [text[at:end] for at, end in pairwise(ends)]
            return [cell[at:end].decode() for at, end in pairwise(ends)]
        if size is not None and any(end - at not in (0, size) for at, end in pairwise(ends)):
            raise NeedsGeneralPath
        made = [cell[at:end] for at, end in pairwise(ends)]
        return [values.python(type_, one) if one else None for one in made] if is_made else made

    return value


__all__ = ["Row", "row_value"]
