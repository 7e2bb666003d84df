"""Whatever a table accepts it gives back after a reopen; whatever it refuses changes nothing and says why.

Names, comments, defaults, options, partitions, tokens and rows are drawn from what is usual, what lies at a
limit and what is no value at all; nothing here knows which of them are allowed.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, schema_of
from tests.support.limits import contents

SURROGATE = "caf\udce9"
NAMES = [
    "a", "b", "c", "A", "a b", "\n", "\x01\x7f", "\u00e9" * 128, "\U0001f600" * 64, "x" * 256, "'\"\\{}%s",
    "\u202e", "__proto__", "null", "_", "op", "x_op", " a", "a ", "\ufeff", "z",
]  # fmt: skip
BAD_NAMES = [
    "",
    SURROGATE,
    "a\0",
    "_op",
    "_timestamp",
    "_before_x",
    "x" * 257,
    "\u00e9" * 129,
    None,
    7,
    b"a",
    ("a",),
]
COMMENTS = ["", "", "", "plain", "\U0001f600" * 256, "\0\n\x1b", "x" * 256, "x" * 257, SURROGATE, None, 5]

TIMES = [
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1969, 12, 31, 23, 59, 59),
]
EXTREMES: dict[str, list[Any]] = {
    **{f"int{b}": [0, -1, -(1 << b - 1), (1 << b - 1) - 1] for b in (8, 16, 32, 64)},
    **{f"uint{b}": [0, 1, (1 << b) - 1] for b in (8, 16, 32, 64)},
    "float32": [0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-149, 3.4028234663852886e38, 0.1],
    "float64": [0.0, -0.0, math.inf, math.nan, 5e-324, 1.7976931348623157e308, 0.1],
    "bool": [True, False],
    "string": ["", "\0", "a\0b", "\U0001f600", "x" * 5000, "\n\r\x01"],
    "binary": [b"", b"\0", b"\0\xff\xfe", b"\x00\x01" * 500, bytes(range(256))],
    "date32": [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1)],
    "timestamp[us]": TIMES,
    "timestamp[us,UTC]": [t.replace(tzinfo=dt.UTC) for t in TIMES],
    "decimal128(38,0)": [Decimal(10**38 - 1), -Decimal(10**38 - 1), Decimal(0)],
    "decimal128(5,2)": [Decimal("999.99"), Decimal("-999.99"), Decimal("0.00")],
    "decimal128(38,38)": [Decimal("0." + "9" * 38), Decimal("0E-38")],
}
ODD: list[Any] = [
    None, 1 << 64, -(1 << 63) - 1, 10**400, 10**5000, 1.5, math.nan, 1e400, "x", SURROGATE, b"\xff", True, [],
    {}, object(), Decimal("1E+999999"), Decimal("sNaN"), Decimal("1.001"), Decimal("-0"), np.int8(5),
    np.float32(0.1), np.uint64(1 << 63), np.datetime64("NaT"), np.datetime64("2020-01-01T00:00:00.000000001"),
    np.bool_(True), np.str_("y"),
    dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))), dt.date(2020, 1, 1), dt.timedelta(1),
    pa.scalar(None, pa.int64()), pa.scalar(2**63 - 1, pa.timestamp("us")), pa.scalar(2**31 - 1, pa.date32()),
    pa.scalar("x"), "x" * 65_536, "x" * 70_000, b"x" * 70_000, complex(1), np.array([1, 2]),
    memoryview(b"abc"),
]  # fmt: skip
KEYS = [name for name in EXTREMES if not name.startswith("float") and name != "bool"]
APPS = [
    "me",
    "\U0001f600" * 256,
    "\u00e9" * 512,
    "a\0b\n",
    " ",
    "x" * 1024,
    "x" * 1025,
    SURROGATE,
    "",
    None,
    5,
]
VERSIONS = [0, 1, 7, (1 << 63) - 1, 1 << 63, -1, True, 1.0, None, 10**5000]
OPTIONS = [
    {}, {"durability": "none"}, {"history_retention_s": None}, {"history_retention_s": 1000 * 365 * 86_400},
    {"memory_limit_bytes": 1 << 50}, {"flush_age_s": 1e-300}, {"scan_threads": 10**400},
    {"durability": SURROGATE}, {"group_interval_s": math.nan}, {SURROGATE: 1}, 5,
]  # fmt: skip


def canonical(table: kc.Table) -> list[list[str]]:
    """The rows as text, bit by bit, in order of the key."""
    data = table.scan(order="key").to_table()
    columns = []
    for column in data.columns:
        whole = column.combine_chunks()
        if pa.types.is_date32(whole.type) or pa.types.is_float32(whole.type):
            whole = whole.view(pa.int32())
        elif pa.types.is_timestamp(whole.type) or pa.types.is_float64(whole.type):
            whole = whole.view(pa.int64())
        columns.append(list(map(repr, whole.to_pylist())))
    return columns


def told(table: kc.Table) -> Any:
    """What the table is."""
    engine = engine_of(table)
    state = engine.table_file.state
    return (
        engine.schema.to_json(),
        engine.partitions.to_json(),
        state.options.to_json(),
        {app: token.to_json() for app, token in engine.writers.applied_writes.items()},
        canonical(table),
    )


class Drawing:
    """One table and what is done to it."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.fs = MemoryFileSystem()
        self.accepted = self.refused = 0
        self.version = 0

    def name(self) -> Any:
        return self.rng.choice(NAMES) if self.rng.random() < 0.9 else self.rng.choice(BAD_NAMES)

    def cell(self, type_: str) -> Any:
        draw = self.rng.random()
        if draw < 0.75:
            return self.rng.choice(EXTREMES[type_])
        return None if draw < 0.85 else self.rng.choice(ODD)

    def column(self, name: Any = None, *, odd: float = 0.05) -> kc.Column:
        rng = self.rng
        type_ = rng.choice(list(EXTREMES))
        default = None
        if rng.random() < 0.5:
            default = rng.choice(EXTREMES[type_] if rng.random() > odd else ODD)
        comment = rng.choice(COMMENTS[:6] if rng.random() > odd else COMMENTS)
        nullable = rng.random() < 0.7 or default is None
        return kc.Column(self.name() if name is None else name, type_, nullable, default, comment=comment)

    def bound(self, type_: str) -> Any:
        rng = self.rng
        return rng.choice([*EXTREMES[type_], *EXTREMES[type_], None, rng.choice(ODD), b"x" * 16_385])

    def range(self, type_: str) -> Any:
        return self.rng.choice([(self.bound(type_), self.bound(type_))] * 8 + [None, (), (1,), 5, "ab"])

    def tried(self, call: Callable[[], Any]) -> Any:
        """What the call gives, None where it is refused: by an error of ours, and not at length."""
        try:
            result = call()
        except kc.KuduError as exc:
            assert len(str(exc)) < 20_000, str(exc)[:200]
            self.refused += 1
            return None
        self.accepted += 1
        return result

    def create(self) -> kc.Table | None:
        rng = self.rng
        key = kc.Column("k", rng.choice(KEYS), comment=rng.choice(COMMENTS[:6]))
        more = [kc.Column("k2", rng.choice(KEYS))] if rng.random() < 0.4 else []
        columns = [key, *more, *(self.column(odd=0.02) for _ in range(rng.randrange(4)))]
        cut: Any = ()
        if rng.random() < 0.4:
            kind = str(key.type)
            ranges = kc.RangePartition("k", [self.range(kind) for _ in range(rng.randrange(1, 3))])
            cut = rng.choice([ranges, [kc.HashPartition("k", rng.choice([2, 3, 4097, True]))], [ranges]])
        options = rng.choice(OPTIONS) if rng.random() < 0.5 else {}
        if isinstance(options, dict):
            options = {"maintenance": "manual", **options}
        names = ["k", *(c.name for c in more)]
        return self.tried(  # type: ignore[no-any-return]
            lambda: kc.create_table("/t", columns, names, partition_by=cut, options=options, _fs=self.fs)
        )

    def alter(self, table: kc.Table) -> None:
        rng, names = self.rng, table.schema.names
        changes: dict[str, Any] = {}
        if rng.random() < 0.5:
            changes["add"] = [self.column() for _ in range(rng.randrange(1, 3))]
        if rng.random() < 0.3:
            changes["drop"] = [rng.choice([*names, "nobody", None])]
        if rng.random() < 0.4:
            changes["rename"] = {rng.choice([*names, "nobody", 5]): self.name()}
        if rng.random() < 0.3:
            key = str(schema_of(table).key_columns[0].type)
            changes[rng.choice(["add_range", "drop_range"])] = self.range(key)
        self.tried(lambda: table.alter(**changes))

    def write(self, table: kc.Table) -> None:
        rng, schema = self.rng, schema_of(table)
        row = {}
        for column in schema.columns:
            if column.id in schema.key_ids or rng.random() < 0.7:
                row[column.name] = self.cell(column.type.name)
        txn: Any = None
        if rng.random() < 0.4:
            self.version += 1
            txn = (rng.choice(APPS[:6]), self.version) if rng.random() < 0.7 else (
                rng.choice(APPS), rng.choice(VERSIONS))  # fmt: skip
        form = rng.choice([lambda: [row], lambda: {name: [cell] for name, cell in row.items()}])
        result = self.tried(lambda: table.upsert(form(), txn=txn))
        if result is None or result.deduplicated:
            return
        key = tuple(row[name] for name in schema.key_names)
        for column in schema.columns:  # what was given as the type's own value is there
            cell = row.get(column.name)
            if column.name in row and any(cell is known for known in EXTREMES[column.type.name]):
                found = table.get(key, [column.name])
                assert found is not None
                same = found[column.name] == cell or (
                    cell != cell and found[column.name] != found[column.name]
                )
                assert same or column.type.name == "float32", (column, cell, found)

    def step(self, table: kc.Table) -> kc.Table:
        before = told(table)
        refused = self.refused
        draw = self.rng.random()
        if draw < 0.35:
            self.alter(table)
        elif draw < 0.9:
            self.write(table)
        else:
            table.flush()
        if self.refused > refused:
            assert told(table) == before
        if self.rng.random() < 0.3:
            return self.reopened(table)
        return table

    def reopened(self, table: kc.Table) -> kc.Table:
        known = told(table)
        if self.rng.random() < 0.5:
            table.flush()
        table.close()
        for mode in ("r", "rw"):
            with kc.open_table("/t", mode, _fs=self.fs) as again:
                assert told(again) == known
        return kc.open_table("/t", "rw", options={"maintenance": "manual"}, _fs=self.fs)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, of an odd number
def test_what_is_accepted_comes_back(seed: int, long: bool) -> None:
    accepted = refused = made = 0
    for run in range(4000 if long else 40):
        drawing = Drawing(f"{seed}-{run}")
        before = contents(drawing.fs)
        table = drawing.create()
        if table is None:
            assert contents(drawing.fs) == before, "what is refused makes nothing"
        else:
            made += 1
            for _ in range(14):
                table = drawing.step(table)
            drawing.reopened(table).close()
        accepted, refused = accepted + drawing.accepted, refused + drawing.refused
    assert min(made, accepted / 5, refused / 5) > (run + 1) / 3, (made, accepted, refused)


def test_a_condition_on_odd_names(seed: int) -> None:
    """Predicates and projections name columns as they are called."""
    columns = [kc.Column("k", "int64"), *(kc.Column(name, "int32") for name in NAMES)]
    with kc.create_table("/t", columns, "k", _fs=MemoryFileSystem()) as table:
        table.insert([{"k": 1, **{name: at for at, name in enumerate(NAMES)}}])
        table.flush()
        for at, name in enumerate(NAMES):
            assert table.scan([name], where=pc.field(name) == at).to_pylist() == [{name: at}]
            assert table.scan(["k"], where=[(name, ">", at)]).to_pylist() == []
