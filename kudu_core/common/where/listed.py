"""The values of a list in a predicate, all at once.

A list of thousands is brought to the column's type as one Arrow array, made unique and sorted.  Each value
means what ``constants.Constant`` says of it alone; ``tests/common/test_lists.py`` compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.cached import cached_property
from kudu_core.common.types import values
from kudu_core.common.types.casts import cast
from kudu_core.common.types.types import TYPE_BOOL, TYPE_DECIMAL, TYPE_FLOAT, ColumnType
from kudu_core.common.types.values import Physical
from kudu_core.common.where.constants import EXACT_IN_DOUBLE, is_comparable
from kudu_core.common.where.sets import ValueSet, listed, listed_cells
from kudu_core.common.where.spans import Values
from kudu_core.errors import InvalidArgument, SchemaMismatch

_t = pa.types


class Listed(Values):
    """Exact values of a column's type: ascending, each once, none of them NULL or NaN.

    As a sequence the Python values, which are made when they are asked for.  Immutable; pickles.
    """

    def __init__(self, type_: ColumnType, array: pa.Array) -> None:
        self.type = type_
        self.array = array
        """Of the type's Arrow type."""

    @staticmethod
    def of(type_: ColumnType, given: pa.Array) -> Listed | None:
        """The values of an array without NULLs; None where one of them is not exact in the column's type, or
        is not compared with such a column by value."""
        if len(given) and (_t.is_dictionary(given.type) or not is_comparable(type_, given.type)):
            return None
        try:
            exact = _as_floats(given, type_) if type_.kind == TYPE_FLOAT else _as_others(given, type_)
        except SchemaMismatch:
            return None
        if exact is None:
            return None
        found = Listed(type_, pc.unique(exact).sort())
        try:
            if len(found) and type_.is_temporal:
                values.python(type_, found.physical[0]), values.python(type_, found.physical[-1])
        except InvalidArgument:
            return None  # Python has not all of them
        return found

    @cached_property
    def cells(self) -> ColumnBuffers:
        """As a column."""
        return ColumnBuffers.from_arrow(self.array, self.type)

    @cached_property
    def physical(self) -> list[Physical]:
        """As physical values, ascending."""
        cells = self.cells
        if cells.offsets is not None:
            raw = cells.values.tobytes()
            return [raw[first:last] for first, last in pairwise(cells.offsets.tolist())]
        if self.type.kind == TYPE_DECIMAL:
            lows, highs = cells.values.view("<u8")[::2].tolist(), cells.values.view("<i8")[1::2].tolist()
            return [high << 64 | low for low, high in zip(lows, highs, strict=True)]
        numbers = cells.values.view(self.type.dtype)
        found: list[Physical] = (numbers != 0 if self.type.kind == TYPE_BOOL else numbers).tolist()
        return found

    @cached_property
    def passing(self) -> ValueSet:
        """The values that are in the list."""
        if self.type.width in (1, 2, 4, 8):
            return listed_cells(self.type, self.cells.values)
        return listed(self.type, self.physical)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(Listed(self.type, self.array[at]))
        [value] = Listed(self.type, self.array.take([range(len(self))[at]])).physical
        return values.python_or_scalar(self.type, value)

    def __iter__(self) -> Iterator[Any]:
        return (values.python_or_scalar(self.type, value) for value in self.physical)

    def __reduce__(self) -> tuple[Any, ...]:
        return Listed, (self.type, self.array)


def _as_others(given: pa.Array, type_: ColumnType) -> pa.Array | None:
    """Values in a type that holds no floats."""
    if not _t.is_float64(given.type):
        return cast(given, type_, "in")
    numbers = given.to_numpy(zero_copy_only=False)
    whole = (np.abs(numbers) < EXACT_IN_DOUBLE) & (numbers == np.floor(numbers))
    return cast(pa.array(numbers.astype(np.int64)), type_, "in") if whole.all() else None


def _as_floats(given: pa.Array, type_: ColumnType) -> pa.Array | None:
    """Values in a type that holds floats."""
    numbers = np.empty(0) if _t.is_null(given.type) else given.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore", invalid="ignore"):
        floats = numbers.astype(np.float64)
        exact = ~np.isnan(floats)
        if numbers.dtype.kind in "iu":
            beyond = 2.0 ** (8 * numbers.dtype.itemsize - (numbers.dtype.kind == "i"))
            exact &= floats < beyond
            exact &= np.where(exact, floats, 0).astype(numbers.dtype) == numbers
        narrowed = floats.astype(type_.dtype)
        exact &= narrowed == floats
    return pa.array(narrowed + 0.0, type_.arrow) if exact.all() else None  # of both zeros 0.0
