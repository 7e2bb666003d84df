"""The row path (one key or one row, no Arrow) and the general path are one: same rows, records and errors."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core._ext.pointcolumn import Elsewhere
from kudu_core.common.clock import ManualClock
from kudu_core.table import points, rows
from kudu_core.table import table as table_module

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


@pytest.fixture(params=range(len(KEYS)), ids=["+".join(k) for k in KEYS])
def key_types(request: pytest.FixtureRequest) -> tuple[str, ...]:
    types: tuple[str, ...] = KEYS[request.param]
    return types


def columns_of(key_types: tuple[str, ...]) -> list[kc.Column]:
    values = [kc.Column(f"v{i}", name) for i, name in enumerate(TYPES)]
    must = [kc.Column("must", "int32", nullable=False, default=7), kc.Column("need", "int64", nullable=False)]
    return [kc.Column(f"k{i}", name) for i, name in enumerate(key_types)] + values + must


def make(path: Path, key_types: tuple[str, ...], clock: ManualClock, **options: Any) -> kc.Table:
    keys = [f"k{i}" for i in range(len(key_types))]
    settings = {"maintenance": "manual", "durability": "none", **options}
    return kc.create_table(path, columns_of(key_types), keys, options=settings, _clock=clock)


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


def recorded(table: kc.Table, into: list[tuple[int, bytes]]) -> None:
    """Note the payload of every record that the table logs."""
    log = table._engine.log
    usual = log.append

    def append(kind: int, version: int, parts: Any) -> int:
        ts = usual(kind, version, parts)
        into.append((ts, b"".join(bytes(part) for part in parts)))
        return ts

    log.append = append  # type: ignore[method-assign, assignment]


OPERATIONS = (
    "insert",
    "insert_ignore",
    "upsert",
    "upsert",
    "update",
    "update_ignore",
    "delete",
    "delete_ignore",
)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each one-row write took the row path."""
    out: list[bool] = []

    def write_row(engine: Any, operation: str, row: dict[str, Any]) -> Any:
        done = rows.write_row(engine, operation, row)
        out.append(done is not None)
        return done

    monkeypatch.setattr(table_module, "write_row", write_row)
    return out


def test_rows_are_written_alike(
    tmp_path: Path, key_types: tuple[str, ...], seed: int, long: bool, taken: list[bool]
) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} {key_types}")
    fast, slow = (
        make(tmp_path / "fast", key_types, ManualClock()),
        make(tmp_path / "slow", key_types, ManualClock()),
    )
    fast_log: list[tuple[int, bytes]] = []
    slow_log: list[tuple[int, bytes]] = []
    recorded(fast, fast_log)
    recorded(slow, slow_log)
    keys = random_keys(r, key_types, 6)
    with fast, slow:
        for step in range(5000 if long else 100):
            operation = r.choice(OPERATIONS)
            row = random_row(r, keys)
            if operation.startswith("delete") and r.random() < 0.9:
                row = {name: value for name, value in row.items() if name.startswith("k")}
            if r.random() < 0.1:
                row[r.choice([*row, "v3", "unknown"])] = r.choice([None, *ODD])
            if r.random() < 0.02:
                row.popitem()
            if r.random() < 0.03:
                row.pop("k0")
            items = list(row.items())
            r.shuffle(items)
            row = dict(items)
            # A tuple of dicts means the same, and is not looked at by the row path.
            answers = write(fast, operation, [row]), write(slow, operation, (row,))
            assert answers[0] == answers[1], (step, operation, row)
            assert fast_log[-1:] == slow_log[-1:], (step, operation, row)
            if r.random() < 0.05:
                fast.flush()
                slow.flush()
        assert fast_log == slow_log
        assert fast.scan(order="key").to_table().equals(slow.scan(order="key").to_table())
        assert sum(taken) > len(taken) // 8 or "decimal128(9,2)" in key_types
    # What was logged is what was done: replay gives the same table.
    with kc.open_table(tmp_path / "fast") as again, kc.open_table(tmp_path / "slow") as other:
        assert again.scan(order="key").to_table().equals(other.scan(order="key").to_table())


def same(a: Any, b: Any) -> bool:
    """Equal, of the same types, with equal signs of zeros."""
    return repr(a) == repr(b)


@pytest.mark.parametrize("page_cache_bytes", [64 << 20, 1 << 20])
def test_rows_are_read_alike(
    tmp_path: Path, key_types: tuple[str, ...], seed: int, long: bool, page_cache_bytes: int
) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} {key_types}")
    keys = random_keys(r, key_types, 60 if long else 20)
    snapshots: list[int] = []
    with make(tmp_path / "t", key_types, ManualClock(), page_cache_bytes=page_cache_bytes) as table:
        for _ in range(40 if long else 6):
            for _ in range(r.randint(1, 15)):
                operation = r.choice(OPERATIONS)
                row = random_row(r, keys)
                if operation.startswith("delete"):
                    row = {name: value for name, value in row.items() if name.startswith("k")}
                write(table, operation, [row])
            snapshots.append(table.timestamp)
            if r.random() < 0.4:
                table.flush()
        for at in r.sample(snapshots, min(3, len(snapshots))):
            check_reads(r, table, keys, at)


def check_reads(r: random.Random, table: kc.Table, keys: list[dict[str, Any]], at: int) -> None:
    engine = table._engine
    names = [c.name for c in engine.schema.columns]
    wanted = r.sample(names, r.randint(1, len(names)))
    present = {
        repr([row[n] for n in table.primary_key]): row
        for row in (_as_python(row) for row in table.scan(at=at).to_table().to_pylist())
    }
    for key in keys:
        whole = table.get(key, at=at)
        columns = engine.schema.columns
        assert same(whole, points._get_general(engine, key, columns, at)), (key, at)
        assert same(whole, present.get(repr(list(key.values()))))
        assert same(
            table.get(tuple(key.values()), wanted, at),
            None if whole is None else {n: whole[n] for n in wanted},
        )
    picked = [r.choice(keys) for _ in range(40)]
    many = table.get_many(picked, at=at)
    for index, key in enumerate(picked):
        whole = table.get(key, at=at)
        assert many["_found"][index].as_py() == (whole is not None)
        if whole is not None:
            assert same(_as_python(many.slice(index, 1).drop_columns(["_found"]).to_pylist()[0]), whole)


def _as_python(row: dict[str, Any]) -> dict[str, Any]:
    """Arrow names UTC in another way."""
    return {
        n: v.astimezone(UTC) if isinstance(v, dt.datetime) and v.tzinfo is not None else v
        for n, v in row.items()
    }


def test_plain_keys_take_the_row_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, flushed, updated and absent: none of them needs the general path."""
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([{"k0": f"host-{i % 50}", "k1": i, "need": i} for i in range(3000)])
        table.flush()
        table.update([{"k0": "host-7", "k1": 7, "need": 70}])
        table.insert([{"k0": "new", "k1": 1, "need": 1}])

        def refuse(*_: Any) -> None:
            raise AssertionError("the general path")

        monkeypatch.setattr(points, "_get_general", refuse)
        for i in range(0, 3000, 7):
            row = table.get((f"host-{i % 50}", i))
            assert row is not None and row["need"] == (70 if i == 7 else i)
        assert table.get(("host-7", 7)) == {**table.get({"k0": "host-7", "k1": 7}), "need": 70}  # type: ignore[dict-item]
        assert table.get(("new", 1), ["need"]) == {"need": 1}
        for absent in [("host-1", 0), ("host", 1), ("zzz", 1), ("", 0), ("host-1", -(2**63))]:
            assert table.get(absent) is None


@pytest.mark.parametrize(
    "key",
    [
        None,
        (),
        ("a",),
        ("a", 1, 2),
        ("a", None),
        ("a", "b"),
        ("a", 1.0),
        {"k0": "a"},
        {"k0": "a", "x": 1},
        ["a", 1],
        "a",
        (b"a", 1),
        ("a", 2**63),
    ],
)
def test_a_bad_key_is_the_general_paths_to_refuse(tmp_path: Path, key: Any) -> None:
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([{"k0": "a", "k1": 1, "need": 1}])
        outcomes: list[Any] = []

        def general(k: Any) -> Any:
            engine = table._engine
            return points._get_general(engine, k, engine.schema.columns, table.timestamp)

        for read in (
            table.get,
            general,
        ):
            try:
                outcomes.append((None, read(key)))
            except kc.KuduError as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]


def test_pages_leave_with_the_cache(tmp_path: Path) -> None:
    """What point reads hold is what the cache holds, whoever looked last."""
    with make(tmp_path / "t", ("int64",), ManualClock(), page_cache_bytes=1 << 20) as table:
        r = random.Random(1)
        table.insert(
            {
                "k0": list(range(60_000)),
                "need": [r.getrandbits(60) for _ in range(60_000)],
                "v11": [f"{r.random()}" for _ in range(60_000)],
            }
        )
        table.flush()
        rowset = table._engine.tablets[0].view.rowsets[0]
        points_ = rowset.base.open().points
        cache = rowset.base.cache
        assert cache is not None
        for _ in range(2000):
            k = r.randrange(60_000)
            row = table.get(k)
            assert row is not None and row["k0"] == k
            assert points_.pages <= cache.statistics().pages
        assert points_.pages > 0
    with pytest.raises(Elsewhere):
        points_.find(b"12345678", 0)
