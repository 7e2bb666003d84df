"""What was written to the table of this folder, as plain values: nothing here asks the library.

``STEPS`` was written in this order.  ``kept.json`` has the time of each step as the table gave it.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

Row = dict[str, Any]

UTC = dt.UTC
# Column, its type, its default, its encoding, its compression.  The first three are the key.
COLUMNS: list[tuple[str, str, Any, str, str]] = [
    ("region", "string", None, "dictionary", "auto"),
    ("day", "date32", None, "auto", "auto"),
    ("id", "int64", None, "delta", "auto"),
    ("i8", "int8", None, "rle", "auto"),
    ("i16", "int16", -7, "auto", "auto"),
    ("i32", "int32", None, "bitshuffle", "lz4"),
    ("i64", "int64", None, "auto", "zstd"),
    ("u8", "uint8", None, "plain", "auto"),
    ("u16", "uint16", None, "auto", "auto"),
    ("u32", "uint32", None, "delta", "auto"),
    ("u64", "uint64", 2**64 - 1, "bitshuffle", "auto"),
    ("f32", "float32", None, "auto", "auto"),
    ("f64", "float64", None, "bitshuffle", "zstd"),
    ("yes", "bool", None, "rle", "auto"),
    ("word", "string", "none", "dictionary", "auto"),
    ("text", "string", None, "prefix", "lz4"),
    ("raw", "binary", None, "plain", "none"),
    ("naive", "timestamp[us]", None, "auto", "auto"),
    ("moment", "timestamp[us,UTC]", None, "delta", "auto"),
    ("price", "decimal128(12,2)", decimal.Decimal("9.99"), "auto", "auto"),
    ("large", "decimal128(38,0)", None, "plain", "auto"),
    ("page", "string", None, "plain", "lz4"),
]
NEW_COLUMN, NEW_DEFAULT = "note", "no note"
DROPPED_COLUMN = "i8"
RENAMED_COLUMN = ("word", "term")
"""(before, after): what the step that alters does."""
KEY = ("region", "day", "id")
REGIONS = ("north", "south", "\u00f8st", "w\0est")
FIRST_DAY = dt.date(2024, 2, 28)
LATE = 400
"""From this row on days lie in the range that the step "altered" adds."""
SOME = range(20, 29)
FIRST_RANGE, NEW_RANGE = (None, dt.date(2024, 3, 5)), (dt.date(2024, 3, 5), None)


def key(n: int) -> Row:
    return {
        "region": REGIONS[n % len(REGIONS)],
        "day": FIRST_DAY + dt.timedelta(days=n // 7 % 5 + 10 * (n >= LATE)),
        "id": n * 1_000_003 - 2**33,
    }


def row(n: int, version: int = 0) -> Row:
    """Row ``n``, all columns; some are NULL, others at the ends of their types."""
    m = n + 31 * version
    values: Row = {
        "i8": m % 256 - 128,
        "i16": -(2**15) if m % 50 == 0 else m,
        "i32": m * 77_777 % 2**31,
        "i64": -(2**63) + m if m % 3 else 2**63 - 1 - m,
        "u8": m % 256,
        "u16": 2**16 - 1 - m,
        "u32": 4_000_000_000 + m,
        "u64": 2**64 - 1 - m,
        "f32": m / 4,
        "f64": math.inf if m % 40 == 0 else m * math.pi,
        "yes": m % 5 < 2,
        "word": f"w{m % 9}",
        "text": f"https://example.org/{m % 20:03d}/" + "\u20ac" * (m % 4),
        "raw": bytes([m % 256, 0, 255]) * (m % 6),
        "naive": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999) + dt.timedelta(hours=m * 1000),
        "moment": dt.datetime(2024, 2, 29, tzinfo=UTC) + dt.timedelta(microseconds=m * 999_983),
        "price": decimal.Decimal(m * 1001 - 50_000).scaleb(-2),
        "large": decimal.Decimal((10**38 - 1 - m) * (-1 if m % 2 else 1)),
        "page": f"{m:05d} " * (2500 if n % 5 == 1 and n < 60 else 1),
    }
    for place, name in enumerate(values):
        if (n + place) % 13 == 0:
            values[name] = None
    return {**key(n), **values}


def part(n: int, version: int, *names: str) -> Row:
    """The key of row ``n`` and new values of some columns."""
    values = row(n, version)
    return {**key(n), **{name: values[name] for name in names}}


def today(value: Row) -> Row:
    before, after = RENAMED_COLUMN
    return {(after if n == before else n): v for n, v in value.items() if n != DROPPED_COLUMN}


# (name of the step, what is done, its rows or arguments)
STEPS: list[tuple[str, str, Any]] = [
    ("first rows", "insert", [row(n) for n in range(120)]),
    ("flushed", "flush", None),
    ("named write", "upsert_as", ("loader", 7, [row(n, 1) for n in range(100, 140)])),
    ("changed beside disk", "update", [part(n, 2, "i32", "word", "price", "raw") for n in range(0, 120, 3)]),
    ("removed", "delete", [key(n) for n in range(5, 120, 17)]),
    ("delta files", "flush", None),
    ("a full backup", "backup", None),
    ("again", "insert", [row(n, 3) for n in range(5, 120, 34)]),
    ("nulls", "update", [{**key(n), "text": None, "f64": None} for n in range(1, 50, 9)]),
    ("a second generation of delta files", "flush", None),
    ("altered", "alter", None),
    ("with the new column", "upsert", [{**key(n), "note": f"note {n}"} for n in range(0, 150, 11)]),
    ("a backup of what changed", "backup", "last"),
    ("merged", "compact", None),
    ("after the merge", "update", [part(n, 4, "u64", "moment") for n in range(2, 60, 7)]),
    ("flushed after the merge", "flush", None),
    ("only in the log: rows", "insert", [{**today(row(n)), "note": "late"} for n in range(LATE, LATE + 12)]),
    ("only in the log: changes", "update", [{**key(n), "note": None} for n in range(0, 50, 10)]),
    ("only in the log: deletions", "delete", [key(n) for n in range(7, 100, 41)]),
    ("only in the log: named", "upsert_as", ("loader", 8, [part(n, 5, "i64") for n in (*SOME, LATE + 3)])),
]


def states() -> list[dict[tuple[Any, ...], Row]]:
    """The rows by key after each step.

    A past state is read with the columns of today, so all of them are in those columns.
    """
    rows: dict[tuple[Any, ...], Row] = {}
    found = []
    defaults = {name: default for name, _, default, _, _ in COLUMNS if name not in KEY}
    for _, operation, given in STEPS:
        changes = given[2] if operation == "upsert_as" else given
        for change in changes if isinstance(changes, list) else ():
            at = tuple(change[name] for name in KEY)
            if operation == "delete":
                del rows[at]
                continue
            known = rows.get(at, {**defaults, NEW_COLUMN: NEW_DEFAULT})
            rows[at] = {**known, **change}
        found.append({at: today(value) for at, value in rows.items()})
    return found
