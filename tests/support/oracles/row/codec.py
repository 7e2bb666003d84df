"""What ``shape``, ``key_encoder`` and ``row_writer`` of ``_ext.row`` mean, in the fewest words Python allows.

Slow on purpose.
"""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1)


def number(tag: str, width: int, value: Any) -> int | None:
    """The cell of a fixed value as an integer; None where it is not plainly one of the type."""
    if tag in ("signed", "unsigned") and type(value) is int:
        low = -(1 << 8 * width - 1) if tag == "signed" else 0
        return value if low <= value < low + (1 << 8 * width) else None
    if tag == "bool" and type(value) is bool:
        return int(value)
    if tag == "float" and type(value) is float:
        if width == 8:
            return int.from_bytes(struct.pack("<d", value), "little")
        try:
            return None if value != value else int.from_bytes(struct.pack("<f", value), "little")
        except OverflowError:
            return None
    if tag == "date" and type(value) is dt.date:
        return value.toordinal() - EPOCH.toordinal()
    if tag in ("time", "time_utc") and type(value) is dt.datetime:
        if value.tzinfo is not (UTC if tag == "time_utc" else None):
            return None
        return (value.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)
    return None


def cell(tag: str, width: int, value: Any) -> bytes | None:
    """The bytes of a value in a column."""
    if width:
        found = number(tag, width, value)
        return None if found is None else (found % (1 << 8 * width)).to_bytes(width, "little")
    if tag == "text" and type(value) is str:
        try:
            return value.encode()
        except UnicodeEncodeError:
            return None
    return value if tag == "bytes" and type(value) is bytes else None


def value(tag: str, raw: bytes) -> Any:
    """The Python value of a cell."""
    signed = int.from_bytes(raw, "little", signed=True)
    if tag == "signed":
        return signed
    if tag == "unsigned":
        return int.from_bytes(raw, "little")
    if tag == "float":
        return struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    if tag == "bool":
        return raw != b"\0"
    if tag == "text":
        return raw.decode("utf-8", "surrogateescape")
    if tag == "date":
        return dt.date.fromordinal(signed + EPOCH.toordinal())
    if tag in ("time", "time_utc"):
        return (EPOCH + dt.timedelta(microseconds=signed)).replace(tzinfo=UTC if tag == "time_utc" else None)
    return raw


def key(columns: list[tuple[str, int]], values: tuple[Any, ...]) -> bytes | None:
    """The encoded key of (tag, width) columns: docs/format.md, "Encoded keys"."""
    out = b""
    for i, ((tag, width), given) in enumerate(zip(columns, values, strict=True)):
        raw = cell(tag, width, given)
        if raw is None:
            return None
        if width:
            bias = 0 if tag == "unsigned" else 1 << 8 * width - 1
            out += (int.from_bytes(raw, "little") ^ bias).to_bytes(width, "big")
        else:
            out += raw if i == len(columns) - 1 else raw.replace(b"\0", b"\0\1") + b"\0\0"
    return out


def payload(op: int, tablet: int, columns: list[tuple[int, int, bytes | None]]) -> bytes:
    """A record of one row from (column id, width, cell): docs/format-log.md, "Record payloads"."""

    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % 8)

    heads, body = b"", b""
    for id_, width, raw in columns:
        data = bytes(width) if raw is None else raw
        offsets = b"" if width else struct.pack("<ii", 0, len(data))
        heads += struct.pack("<IBBHQQ", id_, width, raw is None, 0, len(data), len(offsets))
        body += (padded(b"\0") if raw is None else b"") + offsets + padded(data)
    head = struct.pack("<IIIII4x", 1, 1, 0, 0, tablet)
    return head + struct.pack("<BBHIII", op, 0, len(columns), 1, 0, 0) + heads + body
