"""Python's lists, dicts and tuples as arrays of a nested type.

Arrow, told a type, rounds what does not fit it: 1.5 is 1 among integers, and a time loses its microseconds.
So values are taken apart here, and those of each flat type inside become an array as a flat column does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.rows.misfits import fitted
from kudu_core.common.rows.row_objects import as_mapping, is_row
from kudu_core.common.types.foreign import CellRefused, place
from kudu_core.common.types.nested_casts import nested_cast
from kudu_core.common.types.nested_nodes import is_nested, storage_of
from kudu_core.common.types.stored_arrays import outward
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument, SchemaMismatch, shown

Leaf: TypeAlias = Callable[[str, Any, ColumnType], pa.Array]
"""Makes an array, which ``nested_cast`` takes, of the values of a flat type: a list or NumPy's array."""
_t = pa.types
_IN_PLACE = re.compile(r"(column '[^']*'), row \d+: ")


def nested_array(name: str, cells: list[Any], type_: pa.DataType, leaf: Leaf, first: int = 0) -> pa.Array:
    """Values as one array of a nested type.

    ``InvalidArgument`` or ``SchemaMismatch`` names the place in the type, and the row.
    """
    made = _Values(leaf)
    try:
        return made.array(name, cells, type_)
    except (InvalidArgument, SchemaMismatch):
        low, high = 0, len(cells)
        while high - low > 1:  # the first row that is refused lies between
            middle = (low + high) // 2
            try:
                made.array(name, cells[low:middle], type_)
                low = middle
            except (InvalidArgument, SchemaMismatch):
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


class _Values:
    """Values of one call."""

    def __init__(self, leaf: Leaf) -> None:
        self._leaf = leaf
        self.in_row: int | None = None
        """Of the only one, for messages."""
        self._known: dict[type, Callable[[Any], Mapping[str, Any]]] = {}

    def array(self, name: str, cells: list[Any], type_: pa.DataType) -> pa.Array:
        storage = storage_of(type_)
        if not is_nested(type_):
            flat = ColumnType.from_arrow(type_)
            made = self._leaf(name, cells, flat)
            return made if made.type == type_ else outward(fitted(made, flat, name, self.in_row), flat)
        cells = [cell.as_py() if isinstance(cell, pa.Scalar) else cell for cell in cells]
        made = self._struct(name, cells, storage) if _t.is_struct(storage) else None
        made = self._list(name, cells, storage) if made is None else made
        return nested_cast(made, type_, name)

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
            made = pa.StructArray.from_arrays(parts, fields=[type_.key_field, type_.item_field])
        else:
            made = self.array(f"{name}[]", elements, type_.value_field.type)
        ends = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64())
        mask = pa.array([cell is None for cell in cells], pa.bool_())
        return pa.LargeListArray.from_arrays(ends, made, mask=mask if pc.any(mask).as_py() else None)


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
