"""Arrow arrays that look odd and are legal, beside the broken ones of ``foreign``."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core.common.types.types import ColumnType
from tests.support.cases.foreign import ROWS, VALUES, Spoil, i32, i64, i128, nothing, spoiled


@dataclass(frozen=True)
class Odd:
    """``make`` gives a legal array of three rows, ``cells`` what they are.

    With what makes it odd once it has its batch, where pyarrow has stricter rules than Arrow.
    """

    column: str
    what: str
    make: Callable[[], tuple[pa.Array, Spoil] | pa.Array]
    cells: list[Any]

    def made(self) -> tuple[pa.Array, Spoil]:
        made = self.make()
        return made if isinstance(made, tuple) else (made, nothing)

    def __str__(self) -> str:
        return f"{self.column}: {self.what}"


# -------------------------------------------------------------------------------------------- odd


def _plain(name: str) -> pa.Array:
    return pa.array(VALUES[name], ColumnType.parse(name).arrow)


def _odd() -> Iterator[Odd]:
    for name, cells in VALUES.items():
        type_ = ColumnType.parse(name)
        arrow = type_.arrow
        whole = pa.array([*cells, None, *cells, *cells], arrow)
        yield Odd(name, "a slice with an offset", lambda whole=whole: whole.slice(4, ROWS), cells)
        yield Odd(name, "a slice without its null", lambda whole=whole: whole.slice(7, ROWS), cells)
        yield Odd(name, "nulls in the middle", lambda w=whole: w.slice(2, ROWS), [cells[2], None, cells[0]])
        yield Odd(name, "null throughout", lambda arrow=arrow: pa.nulls(ROWS, arrow), [None] * ROWS)

        def bare(arrow: Any = arrow, fixed: bool = type_.width > 0) -> tuple[pa.Array, Spoil]:
            if fixed:
                return spoiled(arrow, [b"\0", bytes(16 * ROWS)], [None, b""])
            return spoiled(arrow, [b"\0", i32(0, 0, 0, 0), b""], [None, b"", None])

        yield Odd(name, "null throughout, without values or offsets", bare, [None] * ROWS)
        yield Odd(name, "no validity where it is not needed", lambda n=name: _plain(n), cells)
        yield Odd(name, "runs", lambda n=name: _run_ends(n), [cells[0], cells[0], cells[1]])
        yield Odd(
            name, "a dictionary with a null place", lambda n=name: _words(n), [cells[1], None, cells[0]]
        )
    for arrow, buffers, name in (
        (pa.large_string(), 2, "string"),
        (pa.large_binary(), 2, "binary"),
        (pa.int16(), 1, "int64"),
        (pa.timestamp("s"), 1, "timestamp[us]"),
    ):

        def left_out(arrow: Any = arrow, buffers: int = buffers) -> tuple[pa.Array, Spoil]:
            good = [b"\0", bytes(64), b""][: buffers + 1]
            return spoiled(arrow, good, [None, b"", None][: buffers + 1])

        yield Odd(name, f"{arrow}, null throughout, without values or offsets", left_out, [None] * ROWS)
    yield Odd("string", "null type", lambda: pa.nulls(ROWS), [None] * ROWS)
    for arrow, name in (
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary_view(), "binary"),
    ):
        long = [cell * 40 for cell in VALUES[name]]
        some = pa.array([*long, None, *long], arrow)
        yield Odd(name, f"{arrow}, a slice", lambda some=some: some.slice(2, ROWS), [long[2], None, long[0]])
        yield Odd(name, f"{arrow}, null throughout", lambda a=arrow: pa.nulls(ROWS, a), [None] * ROWS)
    yield Odd("string", "views into many buffers", _many_buffers, ["left" * 20, "right" * 20, "short"])
    yield Odd("string", "a null over bytes that are no text", _null_over_bytes, ["a", None, "c"])
    yield Odd("string", "offsets that begin late and data that goes on", _loose, ["b", "", "c"])
    yield Odd("string", "empty strings without data", _empty_strings, ["", "", ""])
    yield Odd("string", "buffers at odd addresses", _misaligned, ["a", "bc", "d"])
    yield Odd("int64", "buffers at odd addresses", _misaligned_numbers, [1, 2, 3])
    yield Odd(
        "decimal128(5,2)",
        "a null over digits that do not fit",
        _null_over_digits,
        [decimal.Decimal(1), None, decimal.Decimal(2)],
    )
    yield Odd("float64", "float16", lambda: pa.array(np.array([1, 2, 3], np.float16)), [1.0, 2.0, 3.0])
    yield Odd("date32", "date64", lambda: _plain("date32").cast(pa.date64()), VALUES["date32"])


def _run_ends(name: str) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), _plain(name).slice(0, 2))


def _words(name: str) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), _plain(name))


def _many_buffers() -> pa.Array:
    parts = [pa.array([text], pa.string_view()) for text in ("left" * 20, "right" * 20, "short")]
    return pa.concat_arrays(parts)


def _null_over_bytes() -> pa.Array:
    return pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(i32(0, 1, 2, 3)), pa.py_buffer(b"a\xffc")]
    )


def _null_over_digits() -> pa.Array:
    return pa.Array.from_buffers(
        pa.decimal128(5, 2), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(i128(100, 10**20, 200))]
    )


def _loose() -> pa.Array:
    return pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(i32(1, 2, 2, 3)), pa.py_buffer(b"\xffbc\xff")]
    )


def _empty_strings() -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(bytes(16)), pa.py_buffer(b"")])


def _misaligned() -> pa.Array:
    offsets = pa.py_buffer(b"x" + i32(0, 1, 3, 4)).slice(1)
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"xabcd").slice(1)])


def _misaligned_numbers() -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(b"x" + i64(1, 2, 3)).slice(1)])


ODD: list[Odd] = list(_odd())
