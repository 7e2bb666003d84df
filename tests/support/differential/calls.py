"""How rows are handed to write calls, and calls that are refused as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tests.support import cells
from tests.support.differential.cases import Apply, Case, Write

if TYPE_CHECKING:
    from tests.support.differential.pair import Pair

Cell = Any


def send_call(target: Any, case: Case, call: Write | Apply, on_error: str | None) -> Any:
    """Make one call on a table, or on a batch (``on_error`` None)."""
    more: dict[str, Any] = {} if on_error is None else {"on_error": on_error}
    if isinstance(call, Apply):
        return target.apply(data_of(case, call), **more)
    kind, _, ignore = call.op.partition("_")
    if ignore:
        more["on_conflict" if kind == "insert" else "on_missing"] = "ignore"
    return getattr(target, kind)(data_of(case, call), **more)


def data_of(case: Case, call: Any) -> Any:
    """The rows of a call in one of the forms that writes take."""
    arrays = [
        cells.to_arrow((row[i] for row in call.rows), case.by_name(name).arrow)
        for i, name in enumerate(call.columns)
    ]
    names = list(call.columns)
    if isinstance(call, Apply):
        arrays.append(pa.array(call.ops, pa.string()))
        names.append("_op")
    if call.form == "python" and not any(_beyond_python(a) for a in arrays):
        # Values without an Arrow type; one row alone has a path of its own.
        return [
            dict(zip(names, row, strict=True)) for row in zip(*(a.to_pylist() for a in arrays), strict=True)
        ]
    if call.form == "kin":
        arrays = [_kin(a) for a in arrays]
    table = pa.table(arrays, names=names)
    if call.form == "dict":
        return dict(zip(names, arrays, strict=True))
    if call.form == "batches":
        return (batch for batch in table.to_batches(max_chunksize=3))
    if call.form == "reader":
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))
    if call.form == "pieces":  # slices that do not begin at a byte of the validity bitmap
        padded = pa.concat_tables([table.slice(0, 3), table]) if table.num_rows > 2 else table
        return padded.slice(padded.num_rows - table.num_rows)
    return table


def _beyond_python(array: pa.Array) -> bool:
    """Whether Python would change or refuse a cell: far dates, nanoseconds of a time of day, float32 NaN of
    another kind."""
    if array.type == pa.time64("ns"):
        return any(cell % 1000 for cell in cells.from_arrow(array) if cell is not None)
    if array.type in (pa.timestamp("ns"), pa.duration("ns")) and -(2**63) in cells.from_arrow(array):
        return True  # pandas' NaT
    try:
        array.to_pylist()
    except (OverflowError, ValueError):
        return True
    if not pa.types.is_float32(array.type):
        return False
    cells_ = [c for c in cells.from_arrow(array) if c is not None]
    return any(c != cells.bits32(cells.scalar(c, array.type).as_py()) for c in cells_)


def _kin(array: pa.Array) -> pa.Array:
    """The same cells in another type that a table takes."""
    type_ = array.type
    if pa.types.is_string(type_):
        return array.dictionary_encode() if len(array) % 2 else array.cast(pa.large_string())
    if pa.types.is_binary(type_):
        return array.cast(pa.large_binary())
    if pa.types.is_integer(type_) and type_.bit_width < 64:
        return array.cast(pa.int64())
    if pa.types.is_float32(type_):
        return array
    if pa.types.is_decimal(type_) and type_.precision < 38:
        return array.cast(pa.decimal128(38, type_.scale))
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return array.cast(pa.timestamp(type_.unit, "Europe/Berlin" if type_.tz == "UTC" else "UTC"))
    if pa.types.is_fixed_size_binary(type_):
        return array.cast(pa.binary())
    if pa.types.is_large_string(type_) or type_ == pa.string_view():
        return array.cast(pa.string())
    return array


def _first(pair: Pair) -> dict[str, pa.Array]:
    return {
        n: cells.to_arrow([0 if n == "_" else _any(pair, n)], pair.case.by_name(n).arrow) for n in pair.names
    }


def _any(pair: Pair, name: str) -> Cell:
    return cells.ugly(pair.case.by_name(name).arrow)[0]


def _raising(pair: Pair) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict(_first(pair))
    raise ZeroDivisionError


INVALID: dict[str, Callable[[Pair], Any]] = {
    "unknown column": lambda p: p.table.upsert({**_first(p), "nobody": [1]}),
    "missing key column": lambda p: p.table.upsert({p.case.columns[0].name + "x": [1]}),
    "wrong type": lambda p: p.table.upsert({**_first(p), p.case.key[0]: pa.array([[1]])}),
    "lossy type": lambda p: p.table.upsert({**_first(p), p.case.key[-1]: pa.array([0.5])}),
    "generator raises": lambda p: p.table.upsert(_raising(p)),
    "unequal lengths": lambda p: p.table.apply({**_first(p), "_op": ["upsert", "upsert"]}),
    "unknown operation": lambda p: p.table.apply({**_first(p), "_op": ["destroy"]}),
    "operation missing": lambda p: p.table.apply(_first(p)),
    "on_error": lambda p: p.table.upsert(_first(p), on_error="ignore"),
    "where column": lambda p: p.table.delete(where=[("nobody", "=", 1)]),
    "nothing to delete by": lambda p: p.table.delete(),
    "set a key": lambda p: p.table.update(
        where=[(p.case.key[0], "in", [])], set={p.case.key[0]: pc.field(p.case.key[0])}
    ),
    "raises in a batch": lambda p: _raise_in_batch(p),
}


def _raise_in_batch(pair: Pair) -> None:
    with pair.table.batch() as batch:
        batch.upsert(_first(pair))
        raise ZeroDivisionError
