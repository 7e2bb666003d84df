"""Arrow arrays that a careless or hostile producer makes: broken ones (legal ones are in ``odd``).

``HOSTILE`` is a list of cases by column type: a case more is one line.  pyarrow looks at the ends
of buffers when it makes an array, so an array is made sound and its buffers are *spoiled* afterwards, behind
its back: what is left is what reaches a table from a bug elsewhere.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core.common.types.types import ColumnType

ROWS = 3
VALUES: dict[str, list[Any]] = {
    **{f"int{bits}": [1, -2, 3] for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": [1, 2, 3] for bits in (8, 16, 32, 64)},
    "float32": [1.0, 2.5, -3.0],
    "float64": [1.0, 2.5, -3.0],
    "bool": [True, False, True],
    "string": ["a", "b\u00fc", "ccc"],
    "binary": [b"a", b"\xff\0", b"ccc"],
    "date32": [dt.date(2024, 1, day) for day in (1, 2, 3)],
    "timestamp[us]": [dt.datetime(2024, 1, day) for day in (1, 2, 3)],
    "timestamp[us,UTC]": [dt.datetime(2024, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3)],
    "float16": [1.0, 2.5, -3.0],
    "bool8": [1, 0, 1],
    **{name: ["a", "b\u00fc", "ccc"] for name in ("large_string", "string_view", "json")},
    **{name: [b"a", b"\xff\0", b"ccc"] for name in ("large_binary", "binary_view")},
    "date64": [dt.date(2024, 1, day) for day in (1, 2, 3)],
    **{name: [dt.time(1, 2, n) for n in (3, 4, 5)] for name in ("time32[s]", "time32[ms]", "time64[us]")},
    "time64[ns]": [dt.time(1, 2, n) for n in (3, 4, 5)],
    **{f"duration[{u}]": [dt.timedelta(seconds=n) for n in (1, -2, 3)] for u in ("s", "ms", "us", "ns")},
    "decimal128(5,2)": [decimal.Decimal(n) / 100 for n in (99999, -1, 0)],
    "decimal128(38,0)": [decimal.Decimal(n) for n in (1, 2, 3)],
}
"""Three cells of every column type."""

Spoil = Callable[[], None]


@dataclass(frozen=True)
class Hostile:
    """``make`` gives an array of three rows for a column of a type, and what breaks it."""

    column: str
    what: str
    make: Callable[[], tuple[pa.Array, Spoil]]
    by_size: bool = False
    """Broken by the size of a buffer, of which Arrow's C interface does not tell: so nobody can know."""

    def __str__(self) -> str:
        return f"{self.column}: {self.what}"


def nothing() -> None:
    """Of an array that is broken as it is made."""


def room(data: bytes) -> pa.Buffer:
    """Memory that may be written, and made shorter, afterwards."""
    buffer = pa.allocate_buffer(len(data), resizable=True)
    memoryview(buffer).cast("B")[:] = data
    return buffer


def spoiled(
    type_: pa.DataType,
    good: Sequence[bytes | None],
    bad: Sequence[bytes | None],
    *,
    length: int = ROWS,
    offset: int = 0,
    null_count: int = -1,
) -> tuple[pa.Array, Spoil]:
    """An array over ``good`` buffers that will be ``bad`` ones; None: as it was."""
    buffers = [None if data is None else room(data) for data in good]
    array = pa.Array.from_buffers(type_, length, buffers, null_count, offset)

    def spoil() -> None:
        for buffer, data in zip(buffers, bad, strict=True):
            if buffer is not None and data is not None:
                buffer.resize(len(data))
                memoryview(buffer).cast("B")[:] = data

    return array, spoil


def i32(*numbers: int) -> bytes:
    return np.array(numbers, np.int32).tobytes()


def i64(*numbers: int) -> bytes:
    return np.array(numbers, np.int64).tobytes()


def i128(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)


# ----------------------------------------------------------------------------------------- broken


def _any_type() -> Iterator[Hostile]:
    """What may be wrong with the buffers of every type."""
    for name in VALUES:
        type_ = ColumnType.parse(name)
        width = type_.width
        arrow = type_.arrow
        size = 13 if name == "bool" else 100 * max(1, width)  # bits, bytes
        data = [bytes(size)] if width else [i32(*range(101)), b"x" * 100]
        # A slice at the end of a parent whose buffers end before it.
        less = [part[: len(part) // 2] for part in data[:1]] + [None] * (len(data) - 1)
        full = b"\xff" * 13

        def short(arrow: Any = arrow, data: Any = data, less: Any = less) -> tuple[pa.Array, Spoil]:
            return spoiled(arrow, [None, *data], [None, *less], offset=97)

        def validity(arrow: Any = arrow, data: Any = data, full: bytes = full) -> tuple[pa.Array, Spoil]:
            good = b"\xff" * 12 + b"\x0d"
            return spoiled(arrow, [good, *data], [full[:5], *[None] * len(data)], offset=97)

        def nulls(arrow: Any = arrow, data: Any = data) -> tuple[pa.Array, Spoil]:
            return spoiled(arrow, [b"\x05", *data], [b"\x01", *[None] * len(data)], null_count=1)

        yield Hostile(name, "a slice behind the end of its values or offsets", short, True)
        yield Hostile(name, "a slice behind the end of its validity", validity, True)
        yield Hostile(name, "other nulls than the array says", nulls)


def _variable(name: str, arrow: pa.DataType, pack: Callable[..., bytes], top: int) -> Iterator[Hostile]:
    """Strings and bytes with offsets of a width."""
    cases = {
        "descend": (0, 3, 1, 2),
        "descend in the last row": (0, 1, 3, 2),
        "leave the data and come back": (0, 100, 2, 3),
        "end behind the data": (0, 1, 2, 100),
        "begin below 0": (-1, 1, 2, 3),
        "are negative inside": (0, -100, 2, 3),
        "overflow": (0, 1, top, top),
        "wrap around": (0, top, -top, 3),
    }
    for what, offsets in cases.items():

        def offsets_of(offsets: Any = offsets) -> tuple[pa.Array, Spoil]:
            return spoiled(arrow, [None, pack(0, 1, 2, 3), b"abc"], [None, pack(*offsets), None])

        yield Hostile(name, f"{arrow} whose offsets {what}", offsets_of, offsets[-1] > 3)

    def ends_short() -> tuple[pa.Array, Spoil]:
        return spoiled(arrow, [None, pack(0, 1, 2, 3), b"abc"], [None, None, b"a"])

    def offsets_short() -> tuple[pa.Array, Spoil]:
        return spoiled(arrow, [None, pack(0, 1, 2, 3), b"abc"], [None, pack(0, 1, 2), None])

    def deep() -> tuple[pa.Array, Spoil]:
        good = pack(*range(1001))
        bad = pack(*range(501), *([0] * 500))
        return spoiled(arrow, [None, good, b"x" * 1000], [None, bad, None], offset=499)

    yield Hostile(name, f"{arrow} whose data is too short", ends_short, True)
    yield Hostile(name, f"{arrow} whose offsets are too few", offsets_short, True)
    yield Hostile(name, f"{arrow}, a slice of a parent whose offsets descend there", deep)


def _text(arrow: pa.DataType, pack: Callable[..., bytes]) -> Iterator[Hostile]:
    texts = {
        "a byte that begins nothing": b"a\xffc",
        "a character without its end": b"ab\xc3",
        "half of a surrogate pair": b"\xed\xa0\x80",
        "a number written too long": b"a\xc0\x80",
        "a number beyond the last": b"\xf5\x80\x80\x80",
    }
    for what, raw in texts.items():

        def made(raw: bytes = raw) -> tuple[pa.Array, Spoil]:
            return spoiled(arrow, [None, pack(0, 0, len(raw), len(raw)), raw], [None, None, None])

        yield Hostile("string", f"{arrow} with {what}", made)

    def cut() -> tuple[pa.Array, Spoil]:
        return spoiled(arrow, [None, pack(0, 1, 2, 2), "\u00fc".encode()], [None, None, None])

    yield Hostile("string", f"{arrow} whose rows cut a character", cut)


def _view(size: int, raw: bytes, index: int, at: int) -> bytes:
    """The 16 bytes of a long view."""
    return size.to_bytes(4, "little", signed=True) + raw[:4] + i32(index, at)


def _views(name: str, arrow: pa.DataType) -> Iterator[Hostile]:
    data = b"the text that is long enough"
    good = _view(len(data), data, 0, 0) * ROWS
    views = {
        "no such buffer": _view(len(data), data, 7, 0),
        "a negative buffer": _view(len(data), data, -1, 0),
        "a place behind the data": _view(len(data), data, 0, 1000),
        "a negative place": _view(len(data), data, 0, -5),
        "an end behind the data": _view(1 << 20, data, 0, 0),
        "a negative length": _view(-5, data, 0, 0),
        "another beginning": _view(len(data), b"else", 0, 0),
    }
    for what, view in views.items():

        def made(view: bytes = view) -> tuple[pa.Array, Spoil]:
            return spoiled(arrow, [None, good, data], [None, good[:16] + view + good[:16], None])

        yield Hostile(name, f"{arrow} with {what}", made)

    def short() -> tuple[pa.Array, Spoil]:
        return spoiled(arrow, [None, good, data], [None, good[:32], None])

    yield Hostile(name, f"{arrow} with too few views", short, True)

    def no_text() -> tuple[pa.Array, Spoil]:
        return spoiled(arrow, [None, good, data], [None, None, b"the \xff" + data[5:]])

    if name == "string":
        yield Hostile(name, f"{arrow} with a byte that begins nothing", no_text)


def _decimals() -> Iterator[Hostile]:
    for name, numbers in {
        "decimal128(5,2)": (10**5, -(10**5), 10**9, 2**127 - 1, -(2**127)),
        "decimal128(38,0)": (10**38, -(10**38), 2**127 - 1, -(2**127)),
    }.items():
        arrow = ColumnType.parse(name).arrow
        for number in numbers:

            def made(arrow: Any = arrow, number: int = number) -> tuple[pa.Array, Spoil]:
                return spoiled(arrow, [None, i128(1, 2, 3)], [None, i128(1, number, 3)])

            yield Hostile(name, f"{number} unscaled", made)

    def wide() -> tuple[pa.Array, Spoil]:
        return spoiled(
            pa.decimal256(76, 2), [None, bytes(96)], [None, bytes(32) + b"\xff" * 31 + b"\x7f" + bytes(32)]
        )

    def narrow() -> tuple[pa.Array, Spoil]:
        # More digits than its own type has, few enough for the column.
        return spoiled(pa.decimal128(2, 0), [None, i128(1, 2, 3)], [None, i128(1, 200, 3)])

    yield Hostile("decimal128(38,0)", "decimal256 with more digits than it may have", wide)
    yield Hostile("decimal128(38,0)", "a decimal that its own type does not hold", narrow)


def _dictionaries() -> Iterator[Hostile]:
    words = pa.array(["a", "b"])
    for what, places in {
        "behind the last word": (0, 1, 2),
        "far behind": (0, 2**31 - 1, 1),
        "negative": (0, -1, 1),
    }.items():

        def places_of(places: Any = places) -> tuple[pa.Array, Spoil]:
            index, spoil = spoiled(pa.int32(), [None, i32(0, 1, 0)], [None, i32(*places)])
            return pa.DictionaryArray.from_arrays(index, words, safe=False), spoil

        yield Hostile("string", f"a dictionary with a place {what}", places_of)

    def bad_words(column: str) -> Callable[[], tuple[pa.Array, Spoil]]:
        def made() -> tuple[pa.Array, Spoil]:
            broken, spoil = spoiled(
                pa.string() if column == "string" else pa.binary(),
                [None, i32(0, 1, 2, 3), b"abc"],
                [None, i32(0, 3, 1, 2), None],
            )
            return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), broken, safe=False), spoil

        return made

    def no_text() -> tuple[pa.Array, Spoil]:
        broken, spoil = spoiled(pa.string(), [None, i32(0, 1, 2, 3), b"abc"], [None, None, b"a\xffc"])
        return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), broken, safe=False), spoil

    def short() -> tuple[pa.Array, Spoil]:
        index, spoil = spoiled(pa.int32(), [None, i32(0, 1, 0)], [None, i32(0)])
        return pa.DictionaryArray.from_arrays(index, words, safe=False), spoil

    def numbers() -> tuple[pa.Array, Spoil]:
        index, spoil = spoiled(pa.uint64(), [None, i64(0, 1, 0)], [None, i64(0, -1, 0)])
        return pa.DictionaryArray.from_arrays(index, pa.array([5, 6]), safe=False), spoil

    yield Hostile("string", "a dictionary whose words are broken", bad_words("string"))
    yield Hostile("binary", "a dictionary whose words are broken", bad_words("binary"))
    yield Hostile("string", "a dictionary whose words are no text", no_text)
    yield Hostile("string", "a dictionary with too few places", short, True)
    yield Hostile("int64", "a dictionary of numbers with a place far behind", numbers)


def _runs() -> Iterator[Hostile]:
    for what, ends in {
        "descend": (2, 1),
        "end early": (1, 2),
        "begin at 0": (0, 3),
        "are negative": (-1, 3),
    }.items():

        def made(ends: Any = ends) -> tuple[pa.Array, Spoil]:
            own, spoil = spoiled(pa.int32(), [None, i32(1, 3)], [None, i32(*ends)], length=2)
            return pa.RunEndEncodedArray.from_arrays(own, pa.array([1, 2])), spoil

        yield Hostile("int64", f"runs whose ends {what}", made)

    def values() -> tuple[pa.Array, Spoil]:
        broken, spoil = spoiled(
            pa.string(), [None, i32(0, 1, 2), b"ab"], [None, i32(0, 100, 2), None], length=2
        )
        return pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), broken), spoil

    yield Hostile("string", "runs whose values are broken", values)


def _casts() -> Iterator[Hostile]:
    """Sound arrays of other types whose values the column does not have, and broken ones of those types."""
    sound: dict[str, list[pa.Array]] = {
        "int8": [pa.array([1, 200, 3]), pa.array([1, -129, 3])],
        "uint64": [pa.array([1, -1, 3])],
        "float32": [pa.array([1.0, 0.1, 2.0])],
        "date32": [pa.array([0, 1, 0], pa.int64()).view(pa.date64())],
        "timestamp[us]": [
            pa.array([0, 2**62, 0]).view(pa.timestamp("s")),
            pa.array([0, 1, 0]).view(pa.timestamp("ns")),
        ],
        "timestamp[us,UTC]": [pa.array([0, -(2**62), 0]).view(pa.timestamp("ms", "UTC"))],
        "decimal128(5,2)": [pa.array([1, 1000, 3]), pa.array([decimal.Decimal("0.001")] * 3)],
    }
    for name, arrays in sound.items():
        for array in arrays:
            yield Hostile(
                name, f"{array.type} of values that do not fit", lambda array=array: (array, nothing)
            )

    def wide_date() -> tuple[pa.Array, Spoil]:
        return pa.array([0, 2**63 - 1 - (2**63 - 1) % 86_400_000, 0]).view(pa.date64()), nothing

    def fixed() -> tuple[pa.Array, Spoil]:
        return spoiled(pa.binary(4), [None, bytes(400)], [None, bytes(100)], offset=97)

    def narrow() -> tuple[pa.Array, Spoil]:
        return spoiled(pa.int16(), [None, bytes(200)], [None, bytes(100)], offset=97)

    yield Hostile("date32", "date64 beyond the days that fit", wide_date)
    yield Hostile("binary", "binary of a fixed size, a slice behind its end", fixed, True)
    yield Hostile("int64", "int16, a slice behind its end", narrow, True)


HOSTILE: list[Hostile] = [
    *_any_type(),
    *_variable("string", pa.string(), i32, 2**31 - 1),
    *_variable("binary", pa.binary(), i32, 2**31 - 1),
    *_variable("string", pa.large_string(), i64, 2**63 - 1),
    *_variable("binary", pa.large_binary(), i64, 2**63 - 1),
    *_text(pa.string(), i32),
    *_text(pa.large_string(), i64),
    *_views("string", pa.string_view()),
    *_views("binary", pa.binary_view()),
    *_variable("large_string", pa.large_string(), i64, 2**63 - 1),
    *_views("string_view", pa.string_view()),
    *_decimals(),
    *_dictionaries(),
    *_runs(),
    *_casts(),
]
