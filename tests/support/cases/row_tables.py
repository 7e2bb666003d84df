"""Tables of every key and type for the row path, in every layout, and random rows for them."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import kudu_core as kc
from tests.support.clock import ManualClock

UTC = dt.UTC
WORDS = ["", "a", "b", "host-1", "host-2", "ä\u20ac", "nul\0in", "\0", "z" * 40, "long" * 300]
TYPES: dict[str, Any] = {
    "int8": lambda r: r.choice([-128, -1, 0, 1, 127]),
    "int16": lambda r: r.randint(-300, 300),
    "int32": lambda r: r.choice([-(2**31), 2**31 - 1, r.randint(0, 50)]),
    "int64": lambda r: r.choice([-(2**63), 2**63 - 1, r.randint(0, 50)]),
    "uint8": lambda r: r.randint(0, 255),
    "uint16": lambda r: r.randint(0, 2**16 - 1),
    "uint32": lambda r: r.choice([0, 2**32 - 1, r.randint(0, 50)]),
    "uint64": lambda r: r.choice([0, 2**63, 2**64 - 1, r.randint(0, 50)]),
    "float32": lambda r: r.choice([0.0, -0.0, 0.5, 0.1, float("inf"), 1e-45, float(r.randint(0, 99))]),
    "float64": lambda r: r.choice([0.0, -0.0, 0.1, float("-inf"), 1e300, round(r.random() * 100, 2)]),
    "bool": lambda r: r.random() < 0.5,
    "string": lambda r: r.choice(WORDS),
    "binary": lambda r: r.choice(WORDS).encode("utf-16"),
    "date32": lambda r: r.choice(
        [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, r.randint(1, 29))]
    ),
    "timestamp[us]": lambda r: r.choice(
        [
            dt.datetime(1, 1, 1),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            dt.datetime(2024, 2, 29, 1, 2, r.randint(0, 59)),
        ]
    ),
    "timestamp[us,UTC]": lambda r: (
        dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=r.randint(-(10**15), 10**15))
    ),
    "decimal128(9,2)": lambda r: Decimal(r.randint(-999, 999)).scaleb(-2),
}
KEYS = [
    ("string", "int64"),
    ("int32", "string"),
    ("string", "binary", "uint8"),
    ("string",),
    ("binary",),
    ("int64",),
    ("uint64",),
    ("date32", "timestamp[us]"),
    ("timestamp[us,UTC]", "int8"),
    ("decimal128(9,2)", "uint16"),
    ("uint32", "int16", "string"),
]
ODD = [
    True,
    1,
    -1,
    2**70,
    1.5,
    float("nan"),
    "text",
    b"bytes",
    "\udc80",
    dt.datetime(2020, 1, 1),
    dt.date(2020, 1, 1),
    Decimal("1.5"),
    [1],
    object,
]


def columns_of(key_types: tuple[str, ...]) -> list[kc.Column]:
    values = [kc.Column(f"v{i}", name) for i, name in enumerate(TYPES)]
    must = [kc.Column("must", "int32", nullable=False, default=7), kc.Column("need", "int64", nullable=False)]
    return [kc.Column(f"k{i}", name) for i, name in enumerate(key_types)] + values + must


LAYOUTS = ("one", "hash", "range", "both")


def partitions_of(layout: str, key_types: tuple[str, ...]) -> list[kc.HashPartition | kc.RangePartition]:
    """Hash on all key columns, ranges of the last one; the layout "range" leaves keys without a tablet."""
    names = [f"k{i}" for i in range(len(key_types))]
    r = random.Random(layout)
    values = sorted({TYPES[key_types[-1]](r) for _ in range(50)})
    middle = values[len(values) // 2]
    out: list[kc.HashPartition | kc.RangePartition] = []
    if layout in ("hash", "both"):
        out.append(kc.HashPartition(names, 3))
    if layout in ("range", "both"):
        ranges = [(None, middle)] if layout == "range" else [(None, middle), (middle, None)]
        out.append(kc.RangePartition(names[-1], ranges))
    return out


def make(
    path: Path, key_types: tuple[str, ...], clock: ManualClock, layout: str = "one", **options: Any
) -> kc.Table:
    keys = [f"k{i}" for i in range(len(key_types))]
    settings = {"maintenance": "manual", "durability": "none", **options}
    partitions = partitions_of(layout, key_types)
    return kc.create_table(
        path, columns_of(key_types), keys, partition_by=partitions, options=settings, _clock=clock
    )


def random_row(r: random.Random, keys: list[dict[str, Any]]) -> dict[str, Any]:
    row = dict(r.choice(keys))
    for i, (_, value) in enumerate(TYPES.items()):
        if r.random() < 0.4:
            row[f"v{i}"] = None if r.random() < 0.3 else value(r)
    if r.random() < 0.8:
        row["need"] = r.randint(0, 9)
    if r.random() < 0.3:
        row["must"] = r.randint(0, 9)
    return row


def random_keys(r: random.Random, key_types: tuple[str, ...], count: int) -> list[dict[str, Any]]:
    return [{f"k{i}": TYPES[name](r) for i, name in enumerate(key_types)} for _ in range(count)]


def write(table: kc.Table, operation: str, data: Any) -> Any:
    """What a call answers, in a form that compares."""
    name, _, ignore = operation.partition("_")
    more = {("on_conflict" if name == "insert" else "on_missing"): "ignore"} if ignore else {}
    try:
        result = getattr(table, name)(data, **more)
    except (kc.KuduError, TypeError, ValueError) as error:
        return type(error), str(error)
    return result.timestamp, result.counts, result.errors
