"""Arrow arrays of somebody else's: whether their buffers hold what they promise.

Whoever makes an array may have made a mistake, and Arrow itself looks at the ends of buffers only.  What
applying or replaying a write relies on is checked here, before anything else reads the memory and long
before the log: buffers that are long enough, offsets that ascend and stay in the data, indices that have a
word, text that is UTF-8, decimals with no more digits than their type.  There are three ways in, and no array
is read but by them: ``ColumnBuffers.from_arrow`` takes over an array of a column's own type as it lies, and
asks ``validity_of``, ``check_size`` and ``check_cells``; ``casts.cast`` has pyarrow make one of any other
type, and asks ``check_layout`` before; ``nested_flatten`` takes nested ones apart, checking level by level.

``SchemaMismatch`` names the column, and the row where one is at fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.columns import bitmaps
from kudu_core._ext.columns import foreign as kernel
from kudu_core.common.types.temporal import limits
from kudu_core.common.types.types import TYPE_BINARY, TYPE_DECIMAL, ColumnType
from kudu_core.errors import InvalidArgument, SchemaMismatch

_SHOWN_BYTES = 40
_MOST_BYTES = 1 << 47
"""What a process can address."""


class CellRefused(SchemaMismatch):
    """For a value, not for a type: it is known which it is."""


def place(name: str, row: int | None = None) -> str:
    """A column, or a cell of it, for a message."""
    what = f"column {name!r}" if name else "the array"
    return what if row is None else f"{what}, row {row}"


def broken(name: str, why: object, row: int | None = None) -> SchemaMismatch:
    """The error for data that no sound writer of Arrow makes."""
    return SchemaMismatch(f"{place(name, row)}: broken Arrow data: {why}".replace("\n", " "))


# ------------------------------------------------------------------------ arrays of a column's type


def bytes_of(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    """A buffer as numbers; one that is not there has none."""
    return np.empty(0, np.uint8) if buffer is None or buffer.size == 0 else np.frombuffer(buffer, np.uint8)


def check_size(name: str, what: str, buffer: pa.Buffer | None, needed: int) -> None:
    """Refuse a buffer that is shorter than the rows need, or than any memory is.

    What comes through Arrow's C interface has whatever sizes its offset and length ask for.
    """
    size = 0 if buffer is None else buffer.size
    if size < needed or needed > _MOST_BYTES:
        raise broken(name, f"{what} of {size} bytes, where the rows need {needed}")


def extent_of(array: pa.Array, name: str = "") -> tuple[int, int]:
    """How many rows an array has, and which of its buffers' is the first.  Arrow's C interface lets both
    be negative."""
    try:
        length = len(array)
    except SystemError:
        raise broken(name, "a negative number of rows") from None
    if array.offset < 0:
        raise broken(name, f"the first row is {array.offset}")
    return length, array.offset


def validity_of(
    array: pa.Array, name: str = "", buffer: pa.Buffer | None = None
) -> tuple[npt.NDArray[np.uint8] | None, int]:
    """An array's validity from bit 0 on, and how many rows are null; (None, 0) where none is.

    ``buffer``: the first of the array's buffers, where the caller has them already.
    """
    if buffer is None:
        buffer = array.buffers()[0]
    length, first = extent_of(array, name)
    if buffer is None or not length:
        return None, 0
    check_size(name, "a validity bitmap", buffer, (first + length + 7) // 8)
    bits = np.frombuffer(buffer, np.uint8)
    if first % 8:
        bits = bitmaps.bits_slice(bits, first, length)
    else:
        bits = bits[first // 8 : (first + length + 7) // 8]
    nulls = length - bitmaps.bits_count(bits, length)
    if array.null_count != nulls:  # what an array says of itself others go by
        raise broken(name, f"{array.null_count} rows are said to be null, and the bitmap says {nulls}")
    return (bits, nulls) if nulls else (None, 0)


def check_cells(
    type_: ColumnType,
    values: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int32] | None,
    valid: npt.NDArray[np.uint8] | None,
    name: str,
    first_row: int,
) -> None:
    """Refuse cells that the type does not have.  Of most types every bit pattern is one, and none is read."""
    if type_.kind == TYPE_BINARY:
        assert offsets is not None
        found = kernel.variable(values, offsets, valid, type_.is_string)
        if found is None:
            return
        row, what = found
        if what == kernel.OFFSETS:
            ends = f"{offsets[row]} and {offsets[row + 1]}"
            why = f"the offsets {ends} descend or leave the {len(values)} bytes of data"
            raise broken(name, why, first_row + row)
        raw = values[offsets[row] : offsets[row + 1]].tobytes()
        shown = repr(raw) if len(raw) <= _SHOWN_BYTES else f"{raw[:_SHOWN_BYTES]!r}..."
        where = place(name, first_row + row)
        raise SchemaMismatch(f"{where}: {shown} is not UTF-8; declare binary for bytes")
    bounds = limits(type_)
    if bounds is not None:
        _check_numbers(type_, values, bounds, valid, name, first_row)
    if type_.kind == TYPE_DECIMAL:
        row = kernel.digits(values, type_.arrow.precision, valid)
        if row >= 0:
            number = int.from_bytes(values[16 * row : 16 * row + 16].tobytes(), "little", signed=True)
            raise SchemaMismatch(
                f"{place(name, first_row + row)}: {number} (unscaled) has more digits than {type_}"
            )


def _check_numbers(
    type_: ColumnType,
    values: npt.NDArray[np.uint8],
    bounds: tuple[int, int, int],
    valid: npt.NDArray[np.uint8] | None,
    name: str,
    first_row: int,
) -> None:
    """Refuse times of day that no day has, and dates with a time of day."""
    first, end, step = bounds
    numbers = values.view(type_.dtype)
    wrong = numbers % step != 0 if step > 1 else (numbers < first) | (numbers >= end)
    if valid is not None:
        wrong &= bitmaps.bits_to_bytes(valid, len(numbers)).view(np.bool_)
    if wrong.any():
        row = int(wrong.argmax())
        what = "is no whole number of days" if step > 1 else f"is not within a day, 0 to {end - 1}"
        raise SchemaMismatch(f"{place(name, first_row + row)}: {numbers[row]} as {type_} {what}")


# ------------------------------------------------------------------------------ arrays of any type


def check_layout(array: pa.Array, name: str = "", first_row: int = 0) -> None:
    """Refuse an array that is not sound in every buffer and cell, whatever its type."""
    try:
        array.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise _where(array, name, first_row, error) from None


def check_bytes(array: pa.Array, name: str, first_row: int) -> None:
    """As ``check_layout``, but of text not whether it is UTF-8: that is looked at when the cells lie as the
    column's do.  Faster than pyarrow by as much as it looks at less."""
    if not _is_view(array.type):
        check_layout(
            array.view(pa.large_binary()) if pa.types.is_large_string(array.type) else array, name, first_row
        )
        return
    try:
        array.validate()
    except pa.ArrowException as error:
        raise broken(name, error) from None
    valid, views, *parts = array.buffers()
    bits, _ = validity_of(array, name, valid)
    cells = bytes_of(views)[16 * array.offset : 16 * (array.offset + len(array))]
    row = kernel.views(cells, [bytes_of(part) for part in parts], bits)
    if row >= 0:
        raise broken(name, "a view leaves its buffers, or begins otherwise than it says", first_row + row)


def _is_view(type_: pa.DataType) -> bool:
    return bool(type_ == pa.string_view() or type_ == pa.binary_view())


def check_chunks(array: pa.Array | pa.ChunkedArray, name: str = "") -> None:
    """As ``check_layout``, chunk by chunk."""
    first_row = 0
    for chunk in array.chunks if isinstance(array, pa.ChunkedArray) else (array,):
        check_layout(chunk, name, first_row)
        first_row += len(chunk)


def _where(array: pa.Array, name: str, first_row: int, error: Exception) -> SchemaMismatch:
    """The error, with the row that it is about."""
    row = first_refused(array, lambda some: some.validate(full=True))
    return broken(name, error, None if row is None else first_row + row)


def first_refused(array: pa.Array, act: Callable[[pa.Array], object]) -> int | None:
    """The row at which ``act`` begins to fail: the last of the shortest part that it refuses.  None: it
    refuses even no rows, or nothing.  Called once something went wrong."""

    def refused(rows: int) -> bool:
        try:
            act(array.slice(0, rows))
        except (pa.ArrowException, ValueError, OverflowError):
            return True
        return False

    if refused(0) or not refused(len(array)):
        return None
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if refused(middle) else (middle, bad)
    return good


def is_null_throughout(array: pa.Array, name: str) -> bool:
    """Whether no row has a value: then no other buffer needs to be there."""
    if pa.types.is_null(array.type):
        return True
    if pa.types.is_dictionary(array.type) or pa.types.is_run_end_encoded(array.type):
        return False
    _, nulls = validity_of(array, name)
    return bool(len(array)) and nulls == len(array)


def names_of(schema: pa.Schema) -> list[str]:
    """The names of a batch's columns; ``InvalidArgument`` where one is not UTF-8."""
    try:
        names: list[str] = schema.names
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"a column's name is not UTF-8: {error.object!r}") from None
    return names


def check_text(value: Any, what: str) -> None:
    """Refuse a string that cannot be written as UTF-8: one with half of a surrogate pair."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"{what}: {value!r} cannot be written as UTF-8") from None


__all__ = [
    "CellRefused",
    "broken",
    "bytes_of",
    "check_bytes",
    "check_cells",
    "check_chunks",
    "check_layout",
    "check_size",
    "check_text",
    "extent_of",
    "first_refused",
    "is_null_throughout",
    "names_of",
    "place",
    "validity_of",
]
