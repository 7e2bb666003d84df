"""Python's lists, dicts and tuples as arrays of a nested type.

Arrow, told a type, rounds what does not fit it: 1.5 is 1 among integers, and a time loses its microseconds.
So values are taken apart, and those of each flat type inside become an array as a flat column does: by Arrow,
where the type that it finds in them has the same parts, else here, one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.rows.misfits import fitted
from kudu_core.common.rows.pandas_frames import NO_COLUMN
from kudu_core.common.rows.row_objects import as_mapping, is_row
from kudu_core.common.types.foreign import CellRefused, check_text, place
from kudu_core.common.types.nested.nested_casts import nested_cast
from kudu_core.common.types.nested.nested_nodes import entries_of, is_nested, storage_of
from kudu_core.common.types.stored_arrays import outward
from kudu_core.common.types.types import TYPE_DECIMAL, ColumnType
from kudu_core.errors import InvalidArgument, SchemaMismatch, shown

Leaf: TypeAlias = Callable[[str, Any, ColumnType], pa.Array]
"""Makes an array, which ``nested_cast`` takes, of the values of a flat type: a list, NumPy's array, or what
Arrow found in them."""
_t = pa.types
_REFUSALS = *NO_COLUMN, InvalidArgument, SchemaMismatch
_IN_PLACE = re.compile(r"(column '[^']*'), row \d+: ")


def nested_array(name: str, cells: list[Any], type_: pa.DataType, leaf: Leaf, first: int = 0) -> pa.Array:
    """Values as one array of a nested type.

    ``InvalidArgument`` or ``SchemaMismatch`` names the place in the type, and the row.
    """
    made = _Values(leaf)
    try:
        return made.array(name, cells, type_)
    except _REFUSALS:
        low, high = 0, len(cells)
        while high - low > 1:  # the first row that is refused lies between
            middle = (low + high) // 2
            try:
                made.array(name, cells[low:middle], type_)
                low = middle
            except _REFUSALS:
                high = middle
        made.in_row = first + low
        _tell(name, cells[low : low + 1], type_, made)
        raise


def _tell(name: str, cells: list[Any], type_: pa.DataType, made: _Values) -> None:
    """Raise what is wrong with one row."""
    try:
        made.array(name, cells, type_)
    except CellRefused as error:
        raise SchemaMismatch(str(error)) from None
    except (InvalidArgument, SchemaMismatch) as error:
        told = str(error)
        in_place = _IN_PLACE.match(told)  # its row is the number of an element
        if in_place is not None:
            told = f"{in_place[1]}, row {made.in_row}: {told[in_place.end() :]}"
        else:
            told = f"{place(name, made.in_row)}: {told.removeprefix(f'column {name!r}: ')}"
        raise type(error)(told) from None
    except UnicodeEncodeError as error:
        check_text(error.object, place(name, made.in_row))
        raise


class _Values:
    """Values of one call."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        self.in_row: int | None = None
        """Of the only one, for messages."""
        self._known: dict[type, Callable[[Any], Mapping[str, Any]]] = {}

    def array(self, name: str, cells: list[Any] | pa.Array, type_: pa.DataType) -> pa.Array:
        storage = storage_of(type_)
        if not is_nested(type_):
            flat = ColumnType.from_arrow(type_)
            made = self._leaf(name, cells, flat)
            return made if made.type == type_ else outward(fitted(made, flat, name, self.in_row), flat)
        made = self._by_arrow(name, cells, type_) if _is_plain(type_) else None
        if made is None:
            cells = [cell.as_py() if isinstance(cell, pa.Scalar) else cell for cell in cells]
            made = (self._struct if _t.is_struct(storage) else self._list)(name, cells, storage)
        return nested_cast(made, type_, name)

    def _by_arrow(self, name: str, cells: list[Any], type_: pa.DataType) -> pa.Array | None:
        """None: what is there is not as plain as that, or is refused, and Arrow does not say which row.

        Bytes among text are text, if they are UTF-8: so Arrow has it within lists and structs."""
        try:
            found = pa.infer_type(cells)  # first, since an array of dicts with any keys may be of any size
            if not _has_parts(found, type_):
                return None
            array = pa.array(cells, found)
            return None if isinstance(array, pa.ChunkedArray) else self._of_array(name, array, type_)
        except _REFUSALS:
            return None

    def _of_array(self, name: str, array: pa.Array, type_: pa.DataType) -> pa.Array:
        """What Arrow has made, with flat parts as flat columns have them."""
        if not is_nested(type_) or _t.is_null(array.type):
            return pa.nulls(len(array), type_) if is_nested(type_) else self.array(name, array, type_)
        mask = array.is_null() if array.null_count else None
        if _t.is_struct(type_):
            have = {field.name: array.field(place) for place, field in enumerate(array.type)}
            fields = [
                self._of_array(f"{name}.{field.name}", have[field.name], field.type)
                if field.name in have
                else pa.nulls(len(array), field.type)
                for field in type_
            ]
            return pa.StructArray.from_arrays(fields, fields=list(type_), mask=mask)
        if _t.is_fixed_size_list(type_):
            sizes = array.value_lengths()
            if pc.any(pc.not_equal(sizes, type_.list_size)).as_py():
                raise SchemaMismatch(f"column {name!r}: lists of other sizes")
        element = self._of_array(f"{name}[]", array.values, type_.value_field.type)
        return pa.LargeListArray.from_arrays(array.offsets.cast(pa.int64()), element, mask=mask)

    def _struct(self, name: str, cells: list[Any], type_: pa.DataType) -> pa.Array:
        names = [field.name for field in type_]
        known = frozenset(names)
        rows = [None if cell is None else self._fields(name, cell, names) for cell in cells]
        for row in rows:
            if row is not None and not row.keys() <= known:
                unknown = next(field for field in row if field not in known)
                raise InvalidArgument(
                    f"column {name!r}: no field {shown(unknown)}; there are {', '.join(names)}"
                )
        fields = [
            self.array(
                f"{name}.{field.name}",
                [None if row is None else row.get(field.name) for row in rows],
                field.type,
            )
            for field in type_
        ]
        mask = pa.array([row is None for row in rows], pa.bool_()) if None in rows else None
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=mask)

    def _fields(self, name: str, cell: Any, names: list[str]) -> Mapping[str, Any]:
        if is_row(cell):
            return as_mapping(cell, self._known)
        if isinstance(cell, tuple) and len(cell) == len(names):
            return dict(zip(names, cell, strict=True))
        raise InvalidArgument(f"column {name!r}: {shown(cell)} is not a dict of {', '.join(names)}")

    def _list(self, name: str, cells: list[Any], type_: pa.DataType) -> pa.Array:
        is_map = _t.is_map(type_)
        sizes = np.zeros(len(cells), np.int64)
        joined = None if is_map else _joined(cells)
        elements: Any = [] if joined is None else joined
        for row, cell in enumerate(cells):
            if cell is None:
                continue
            if is_map and type(cell) is dict:
                elements.extend(cell.items())
                sizes[row] = len(cell)
                continue
            if is_map and isinstance(cell, Mapping):
                cell = list(cell.items())
            if not _is_list(cell):
                kind = "dict or a list of pairs" if is_map else "list"
                raise InvalidArgument(f"column {name!r}: {shown(cell)} is not a {kind}")
            if joined is None:
                elements.extend(cell.tolist() if isinstance(cell, np.ndarray) else cell)
            sizes[row] = len(cell)
        if _t.is_fixed_size_list(type_):
            wrong = [size for size, cell in zip(sizes, cells, strict=True) if cell is not None]
            wrong = [size for size in wrong if size != type_.list_size]
            if wrong:
                raise InvalidArgument(
                    f"column {name!r}: a list of {wrong[0]} elements, where all have {type_.list_size}"
                )
        if is_map:
            keys, items = _pairs(name, elements)
            parts = [
                self.array(f"{name}[].{field.name}", cells_of_field, field.type)
                for field, cells_of_field in ((type_.key_field, keys), (type_.item_field, items))
            ]
            made = pa.StructArray.from_arrays(parts, fields=list(entries_of(type_).type))
        else:
            made = self.array(f"{name}[]", elements, type_.value_field.type)
        ends = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
        mask = pa.array([cell is None for cell in cells], pa.bool_())
        return pa.LargeListArray.from_arrays(ends, made, mask=mask if pc.any(mask).as_py() else None)


def _is_plain(type_: pa.DataType) -> bool:
    """Whether Arrow finds all that is in values of a type: no maps, which it takes for structs of all keys
    that there are, and no times and decimals, at which others look."""
    if isinstance(type_, pa.BaseExtensionType) or _t.is_map(type_):
        return False
    if not is_nested(type_):
        flat = ColumnType.from_arrow(type_)
        return not (flat.is_temporal or flat.kind == TYPE_DECIMAL or flat.is_narrower)
    return all(_is_plain(field.type) for field in (type_ if _t.is_struct(type_) else [type_.value_field]))


def _has_parts(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type that Arrow found has the lists and structs of another, and no field beside its ones."""
    if _t.is_null(found):
        return True
    if _t.is_struct(wanted):
        fields = {field.name: field.type for field in wanted}
        return _t.is_struct(found) and all(
            field.name in fields and _has_parts(field.type, fields[field.name]) for field in found
        )
    if is_nested(wanted):
        return _t.is_list(found) and _has_parts(found.value_type, wanted.value_field.type)
    return not is_nested(found)


def _joined(cells: list[Any]) -> np.ndarray | None:
    """NumPy's vectors of one type as one, so that their numbers do not become objects; None: other cells."""
    vectors = [cell for cell in cells if cell is not None]
    dtypes = {cell.dtype if type(cell) is np.ndarray and cell.ndim == 1 else None for cell in vectors}
    if len(dtypes) != 1 or None in dtypes or dtypes == {np.dtype(object)}:
        return None
    return np.concatenate(vectors)


def _is_list(cell: Any) -> bool:
    if isinstance(cell, np.ndarray):
        return cell.ndim > 0
    return (
        isinstance(cell, Iterable)
        and isinstance(cell, Sized)
        and not isinstance(cell, str | bytes | bytearray | memoryview | Mapping)
    )


def _pairs(name: str, entries: list[Any]) -> tuple[list[Any], list[Any]]:
    """Keys and values of the entries of maps."""
    keys, items = [], []
    for entry in entries:
        if type(entry) is tuple and len(entry) == 2 and entry[0] is not None:
            keys.append(entry[0])
            items.append(entry[1])
            continue
        pair = entry if isinstance(entry, tuple | list) else None
        if isinstance(entry, Mapping):
            pair = tuple(entry.values())
        if pair is None or len(pair) != 2:
            raise InvalidArgument(f"column {name!r}: {shown(entry)} is not a pair of a key and a value")
        if pair[0] is None:
            raise InvalidArgument(f"column {name!r}: a key of a map is NULL")
        keys.append(pair[0])
        items.append(pair[1])
    return keys, items


__all__ = ["Leaf", "nested_array"]
