"""The column types of a table, and how each lies in memory.

A type has a canonical name (what is stored in TABLE), the Arrow type that its user declared, the Arrow type
as which its cells are stored (most often the same), a physical width and a kind (what kernels are told).
``stored_arrays.py`` brings arrays from the one Arrow type to the other; single values are the subject of
``values.py``.
"""

from __future__ import annotations

import base64
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from kudu_core.errors import InvalidArgument, shown

TYPE_UNSIGNED = 0
TYPE_SIGNED = 1
TYPE_FLOAT = 2
TYPE_BINARY = 3
TYPE_DECIMAL = 4
TYPE_BOOL = 5

DECIMAL_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
"""The most digits of Arrow's decimals of so many bits."""
MOST_DIGITS = DECIMAL_DIGITS[256]
STORED_DIGITS = DECIMAL_DIGITS[128]
"""Decimals of up to so many digits are stored as decimal128, longer ones as 32 bytes."""

# Spellings of UTC that other systems put into Arrow types.
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "+00:00", "Z", "GMT", "Etc/GMT"})

_t = pa.types


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One column type.  Two are equal when their names are.

    ``width`` is the number of bytes of a fixed cell, 0 for strings and binary.  A date is a signed number of
    days (4 bytes) or milliseconds (8), a time of day, a timestamp or a duration a signed number of its unit,
    a decimal the signed 16-byte unscaled integer, a bool one byte.
    """

    name: str
    arrow: pa.DataType
    """As its cells are stored."""
    width: int
    kind: int
    declared: pa.DataType = None
    """What goes in and out; None: ``arrow``."""
    values: ColumnType | None = None
    """Of a dictionary or an extension type: the type of what it is made of; see ``value``."""

    def __post_init__(self) -> None:
        if self.declared is None:
            object.__setattr__(self, "declared", self.arrow)

    @staticmethod
    def parse(name: str) -> ColumnType:
        """The type of that canonical name; ``InvalidArgument`` when there is none."""
        return _parse(name)

    @staticmethod
    def from_arrow(arrow: pa.DataType) -> ColumnType:
        """The type of columns that give this Arrow type; ``InvalidArgument`` when there is none."""
        name = _name_of(arrow)
        if name is None:
            raise InvalidArgument(f"{arrow} is not a column type; use one of {TYPE_NAMES}")
        return _parse(name)

    @property
    def value(self) -> ColumnType:
        """What one cell is, without the dictionaries and extensions around it."""
        return self if self.values is None else self.values.value

    @property
    def is_converted(self) -> bool:
        """Whether cells are stored as another Arrow type than the declared one."""
        return self.declared is not self.arrow

    @property
    def stored(self) -> ColumnType:
        """The type of its cells as they are stored: what files name."""
        return ColumnType.from_arrow(self.arrow) if self.is_converted else self

    @property
    def is_narrower(self) -> bool:
        """Whether not every array of ``arrow`` is one of this type."""
        if not self.is_converted:
            return False
        return self.value.name in ("float16", "null") or self.cell_bytes is not None or self.is_long_decimal

    @property
    def is_key_type(self) -> bool:
        """Whether a primary key may hold it: what has an order that its cells have too."""
        return self.kind not in (TYPE_FLOAT, TYPE_BOOL) and self.value.name not in _WITHOUT_ORDER

    @property
    def is_timestamp(self) -> bool:
        return bool(_t.is_timestamp(self.arrow))

    @property
    def is_date(self) -> bool:
        return bool(_t.is_date(self.arrow))

    @property
    def is_time_of_day(self) -> bool:
        return bool(_t.is_time(self.arrow))

    @property
    def is_duration(self) -> bool:
        return bool(_t.is_duration(self.arrow))

    @property
    def is_temporal(self) -> bool:
        """Dates, times, timestamps and durations: numbers that Python has no numbers for."""
        return self.is_timestamp or self.is_date or self.is_time_of_day or self.is_duration

    @property
    def is_utc(self) -> bool:
        """Whether it is a timestamp whose zone is UTC."""
        return self.is_timestamp and self.arrow.tz in _UTC_NAMES

    @property
    def is_string(self) -> bool:
        return bool(_t.is_string(self.arrow))

    @property
    def is_named(self) -> bool:
        """Whether it is an extension type, which has a name of its own."""
        return self.name.startswith(_EXTENSION)

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """Of its fields: what an extension type that this process does not know is called."""
        if not self.is_named or isinstance(self.declared, pa.BaseExtensionType):
            return {}
        return dict(_extension_field(self.name).metadata or {})

    @property
    def is_long_decimal(self) -> bool:
        """Whether it is a decimal that is stored as bytes in the order of the numbers."""
        return self.kind == TYPE_BINARY and bool(_t.is_decimal(self.value.declared))

    @property
    def is_dictionary(self) -> bool:
        """Whether it is given back as Arrow's dictionaries."""
        return bool(_t.is_dictionary(self.declared))

    @property
    def cell_bytes(self) -> int | None:
        """How many bytes each value of a binary type has; None: any number."""
        name = self.value.name
        return _CELL_BYTES.get(name) or (_fixed_size(name) if self.kind == TYPE_BINARY else None)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """numpy's type of the physical values; only for widths 1, 2, 4 and 8."""
        assert self.width in (1, 2, 4, 8), f"{self.name} has no numpy type"
        return np.dtype(f"<{_DTYPE_CODE[self.kind]}{self.width}")

    def __reduce__(self) -> tuple[Callable[[str], ColumnType], tuple[str]]:
        return ColumnType.parse, (self.name,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnType) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return str(self.declared) if self.is_named else self.name


_DTYPE_CODE = {TYPE_UNSIGNED: "u", TYPE_SIGNED: "i", TYPE_FLOAT: "f", TYPE_BOOL: "u"}

TYPE_NAMES = (
    "int8..int64, uint8..uint64, float16..float64, bool, bool8, string, large_string, string_view, binary, "
    "large_binary, binary_view, fixed_size_binary[n], uuid, json, date32, date64, time32[s|ms], "
    "time64[us|ns], timestamp[s|ms|us|ns] and timestamp[us,ZONE], duration[s|ms|us|ns], "
    "month_day_nano_interval, decimal32..decimal256(p,s), dictionary[TYPE], null"
)

LONG_DECIMAL_BYTES = 32
"""Of a decimal with more digits than decimal128 has: big-endian, its sign bit flipped, so that the bytes have
the order of the numbers."""
INTERVAL_BYTES = 16
"""Of months (4), days (4) and nanoseconds (8), little-endian, as Arrow has them."""

_SIMPLE = [
    ColumnType("int8", pa.int8(), 1, TYPE_SIGNED),
    ColumnType("int16", pa.int16(), 2, TYPE_SIGNED),
    ColumnType("int32", pa.int32(), 4, TYPE_SIGNED),
    ColumnType("int64", pa.int64(), 8, TYPE_SIGNED),
    ColumnType("uint8", pa.uint8(), 1, TYPE_UNSIGNED),
    ColumnType("uint16", pa.uint16(), 2, TYPE_UNSIGNED),
    ColumnType("uint32", pa.uint32(), 4, TYPE_UNSIGNED),
    ColumnType("uint64", pa.uint64(), 8, TYPE_UNSIGNED),
    ColumnType("float16", pa.float32(), 4, TYPE_FLOAT, pa.float16()),
    ColumnType("float32", pa.float32(), 4, TYPE_FLOAT),
    ColumnType("float64", pa.float64(), 8, TYPE_FLOAT),
    ColumnType("bool", pa.bool_(), 1, TYPE_BOOL),
    ColumnType("bool8", pa.int8(), 1, TYPE_SIGNED, pa.bool8()),
    ColumnType("string", pa.string(), 0, TYPE_BINARY),
    ColumnType("large_string", pa.string(), 0, TYPE_BINARY, pa.large_string()),
    ColumnType("string_view", pa.string(), 0, TYPE_BINARY, pa.string_view()),
    ColumnType("binary", pa.binary(), 0, TYPE_BINARY),
    ColumnType("large_binary", pa.binary(), 0, TYPE_BINARY, pa.large_binary()),
    ColumnType("binary_view", pa.binary(), 0, TYPE_BINARY, pa.binary_view()),
    ColumnType("uuid", pa.binary(), 0, TYPE_BINARY, pa.uuid()),
    ColumnType("json", pa.string(), 0, TYPE_BINARY, pa.json_()),
    ColumnType("date32", pa.date32(), 4, TYPE_SIGNED),
    ColumnType("date64", pa.date64(), 8, TYPE_SIGNED),
    *(ColumnType(f"time32[{unit}]", pa.time32(unit), 4, TYPE_SIGNED) for unit in ("s", "ms")),
    *(ColumnType(f"time64[{unit}]", pa.time64(unit), 8, TYPE_SIGNED) for unit in ("us", "ns")),
    *(ColumnType(f"duration[{unit}]", pa.duration(unit), 8, TYPE_SIGNED) for unit in ("s", "ms", "us", "ns")),
    ColumnType(
        "month_day_nano_interval", pa.binary(), 0, TYPE_BINARY, pa.month_day_nano_interval()
    ),
    ColumnType("null", pa.bool_(), 1, TYPE_BOOL, pa.null()),
]
_BY_NAME = {type_.name: type_ for type_ in _SIMPLE}
_NAME_BY_ARROW = {type_.declared: type_.name for type_ in _SIMPLE}
_WITHOUT_ORDER = frozenset({"month_day_nano_interval", "bool8", "json"})
_CELL_BYTES = {"uuid": 16, "month_day_nano_interval": INTERVAL_BYTES}

_DECIMAL = re.compile(r"decimal(32|64|128|256)\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:,(.+))?\]", re.DOTALL)
_FIXED_SIZE = re.compile(r"fixed_size_binary\[(\d+)\]")
_DICTIONARY = re.compile(r"dictionary\[(.+?)(,ordered)?\]", re.DOTALL)
_EXTENSION = "extension["
_OFFSET = re.compile(r"[+-]\d\d:\d\d")
MOST_FIXED_BYTES = 1 << 20
"""Of a fixed_size_binary."""


def _name_of(arrow: pa.DataType) -> str | None:
    """The canonical name of the type that gives an Arrow type back; None where there is none."""
    found = None if isinstance(arrow, pa.ExtensionType) else _NAME_BY_ARROW.get(arrow)  # no hash
    if found is not None:
        return found
    if _t.is_timestamp(arrow):
        return f"timestamp[{arrow.unit}]" if arrow.tz is None else f"timestamp[{arrow.unit},{arrow.tz}]"
    if _t.is_decimal(arrow):
        return f"decimal{arrow.bit_width}({arrow.precision},{arrow.scale})"
    if _t.is_fixed_size_binary(arrow):
        return f"fixed_size_binary[{arrow.byte_width}]"
    if _t.is_run_end_encoded(arrow):
        return _name_of(arrow.value_type)
    if _t.is_dictionary(arrow):
        value = _name_of(arrow.value_type)
        if value is None or value.startswith("dictionary["):
            return value
        return f"dictionary[{value},ordered]" if arrow.ordered else f"dictionary[{value}]"
    if isinstance(arrow, pa.BaseExtensionType) and not _t.is_run_end_encoded(arrow.storage_type):
        return None if _name_of(arrow.storage_type) is None else extension_name(pa.field("", arrow))
    return None


def extension_name(field: pa.Field) -> str:
    """The canonical name of the type of a field whose type, or whose metadata, is an extension's.

    It holds the field as Arrow's IPC format writes it: a type that this process does not know comes as its
    storage, with the extension's name in the metadata.
    """
    plain = pa.schema([pa.field("", field.type, True, field.metadata)])
    return f"{_EXTENSION}{base64.b64encode(plain.serialize().to_pybytes()).decode('ascii')}]"


@lru_cache(maxsize=1024)
def _parse(name: str) -> ColumnType:
    found = _BY_NAME.get(name)
    if found is None and isinstance(name, str):
        for read in (_read_timestamp, _read_decimal, _read_fixed_size, _read_dictionary, _read_extension):
            found = read(name)
            if found is not None:
                break
    if found is None:
        raise InvalidArgument(f"{shown(name)} is not a column type; use one of {TYPE_NAMES}")
    return found


def _read_timestamp(name: str) -> ColumnType | None:
    match = _TIMESTAMP.fullmatch(name)
    return None if match is None else ColumnType(name, pa.timestamp(match[1], match[2]), 8, TYPE_SIGNED)


def _read_decimal(name: str) -> ColumnType | None:
    match = _DECIMAL.fullmatch(name)
    if match is None:
        return None
    bits, precision, scale = map(int, match.groups())
    most = DECIMAL_DIGITS[bits]
    if not 1 <= precision <= most or not 0 <= scale <= precision:
        raise InvalidArgument(
            f"{name}: a decimal has a precision of 1 to {most} and a scale of 0 to the precision"
        )
    make = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[bits]
    name = f"decimal{bits}({precision},{scale})"
    if precision > STORED_DIGITS:
        return ColumnType(name, pa.binary(), 0, TYPE_BINARY, make(precision, scale))
    stored = pa.decimal128(precision, scale)
    return ColumnType(name, stored, 16, TYPE_DECIMAL, None if bits == 128 else make(precision, scale))


def _fixed_size(name: str) -> int | None:
    match = _FIXED_SIZE.fullmatch(name)
    return None if match is None else int(match[1])


def _read_fixed_size(name: str) -> ColumnType | None:
    size = _fixed_size(name)
    if size is None:
        return None
    if not 1 <= size <= MOST_FIXED_BYTES:
        raise InvalidArgument(f"{name}: a fixed_size_binary has 1 to {MOST_FIXED_BYTES:,} bytes")
    return ColumnType(name, pa.binary(), 0, TYPE_BINARY, pa.binary(size))


def _read_dictionary(name: str) -> ColumnType | None:
    """Their codes come back as int32, whatever they were: how many values there will be nobody knows."""
    match = _DICTIONARY.fullmatch(name)
    if match is None:
        return None
    value = _parse(match[1])
    if value.is_dictionary or isinstance(value.declared, pa.BaseExtensionType):
        raise InvalidArgument(f"{name}: a dictionary's values are of a type without dictionary or extension")
    declared = pa.dictionary(pa.int32(), value.declared, ordered=match[2] is not None)
    return ColumnType(name, value.arrow, value.width, value.kind, declared, value)


def _read_extension(name: str) -> ColumnType | None:
    if not name.startswith(_EXTENSION) or not name.endswith("]"):
        return None
    declared = _extension_field(name).type
    storage = declared.storage_type if isinstance(declared, pa.BaseExtensionType) else declared
    stored = ColumnType.from_arrow(storage)
    return ColumnType(name, stored.arrow, stored.width, stored.kind, declared, stored)


def _extension_field(name: str) -> pa.Field:
    """The inverse of ``extension_name``."""
    try:
        raw = base64.b64decode(name[len(_EXTENSION) : -1], validate=True)
        return pa.ipc.read_schema(pa.py_buffer(raw)).field(0)
    except (ValueError, KeyError, IndexError, pa.ArrowException) as error:
        raise InvalidArgument(f"a stored extension type cannot be read: {error}") from None


def check_zone(type_: ColumnType) -> None:
    """``InvalidArgument`` for a timestamp of a zone that nobody knows."""
    zone = type_.arrow.tz if type_.is_timestamp else None
    if zone is None or type_.is_utc or _OFFSET.fullmatch(zone):
        return
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            f"{type_}: no time zone {zone!r}; a zone is UTC, a name as Europe/Berlin, or an offset as +02:00"
        ) from None
