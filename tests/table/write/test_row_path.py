"""The row path (one key or one row, no Arrow) and the general path are one: same rows, records and errors."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.read import points
from kudu_core.table.write import door, one_row
from tests.support.cases.logged import Logged
from tests.support.cases.row_tables import KEYS, LAYOUTS, ODD, UTC, make, random_keys, random_row, write
from tests.support.clock import ManualClock
from tests.support.inside import engine_of


@pytest.fixture(params=range(len(KEYS)), ids=["+".join(k) for k in KEYS])
def key_types(request: pytest.FixtureRequest) -> tuple[str, ...]:
    types: tuple[str, ...] = KEYS[request.param]
    return types


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

    def write_row(engine: Any, operation: str, row: dict[str, Any], wait: bool) -> Any:
        done = one_row.write_row(engine, operation, row, wait)
        out.append(done is not None)
        return done

    monkeypatch.setattr(door, "write_row", write_row)
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_written_alike(
    tmp_path: Path, key_types: tuple[str, ...], seed: int, long: bool, taken: list[bool], layout: str
) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} {key_types}")
    fast, slow = (
        make(tmp_path / "fast", key_types, ManualClock(), layout),
        make(tmp_path / "slow", key_types, ManualClock(), layout),
    )
    fast_log, slow_log = Logged(fast), Logged(slow)
    keys = random_keys(r, key_types, 6)
    with fast, slow:
        for step in range(5000 if long else {"one": 40, "range": 30}.get(layout, 16)):
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
            assert fast_log.new() == slow_log.new(), (step, operation, row)
            if r.random() < 0.05:
                fast.flush()
                slow.flush()
        assert fast_log.records
        assert fast.scan(order="key").to_table().equals(slow.scan(order="key").to_table())
        # Decimal keys, and keys that no range takes, are the general path's.
        assert sum(taken) > len(taken) // 10 or "decimal128(9,2)" in key_types or layout == "range"
    # What was logged is what was done: replay gives the same table.
    with kc.open_table(tmp_path / "fast") as again, kc.open_table(tmp_path / "slow") as other:
        assert again.scan(order="key").to_table().equals(other.scan(order="key").to_table())


def same(a: Any, b: Any) -> bool:
    """Equal, of the same types, with equal signs of zeros."""
    return repr(a) == repr(b)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys that the general path was asked for."""
    out: list[Any] = []
    usual = points._get_general

    def get_general(engine: Any, schema: Any, key: Any, *more: Any) -> Any:
        out.append(key)
        return usual(engine, schema, key, *more)

    monkeypatch.setattr(points, "_get_general", get_general)
    return out


@pytest.mark.parametrize(
    ("page_cache_bytes", "layout"),
    [(64 << 20, "one"), (1 << 20, "one"), (64 << 20, "hash"), (64 << 20, "range"), (64 << 20, "both")],
)
def test_rows_are_read_alike(
    tmp_path: Path,
    key_types: tuple[str, ...],
    seed: int,
    long: bool,
    page_cache_bytes: int,
    layout: str,
    general: list[Any],
) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} {key_types}")
    keys = random_keys(r, key_types, 60 if long else 20)
    snapshots: list[int] = []
    with make(tmp_path / "t", key_types, ManualClock(), layout, page_cache_bytes=page_cache_bytes) as table:
        for _ in range(40 if long else 3):
            for _ in range(r.randint(1, 15)):
                operation = r.choice(OPERATIONS)
                row = random_row(r, keys)
                if operation.startswith("delete"):
                    row = {name: value for name, value in row.items() if name.startswith("k")}
                write(table, operation, [row])
            snapshots.append(table.timestamp)
            if r.random() < 0.4:
                table.flush()
        asked = 0
        for at in r.sample(snapshots, min(3, len(snapshots))):
            asked += check_reads(r, table, keys, at, general)
        # Decimal keys, and strings stored by their differences, are the general path's.
        assert len(general) < asked // 2 or "decimal128(9,2)" in key_types


def check_reads(
    r: random.Random, table: kc.Table, keys: list[dict[str, Any]], at: int, general: list[Any]
) -> int:
    engine = engine_of(table)
    newest = table.timestamp
    for key in keys:  # the newest rows have a path of their own
        assert same(table.get(key), table.get(key, at=newest)), key
        general.clear()
    names = [c.name for c in engine.schema.columns]
    wanted = r.sample(names, r.randint(1, len(names)))
    present = {
        repr([row[n] for n in table.primary_key]): row
        for row in (_as_python(row) for row in table.scan(at=at).to_table().to_pylist())
    }
    for key in keys:
        whole = table.get(key, at=at)
        columns = engine.schema.columns
        assert same(whole, points._get_general(engine, engine.schema, key, columns, at)), (key, at)
        general.pop()
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
    return 2 * len(keys) + len(picked)


def _as_python(row: dict[str, Any]) -> dict[str, Any]:
    """Arrow names UTC in another way."""
    return {
        n: v.astimezone(UTC) if isinstance(v, dt.datetime) and v.tzinfo is not None else v
        for n, v in row.items()
    }


def test_many_keys_in_any_mixture(tmp_path: Path) -> None:
    """None, absent, repeated, of several stores, and all of one store in order."""
    with make(tmp_path / "t", ("string", "int64"), ManualClock(), "both") as table:
        for first in (0, 100):
            table.insert([{"k0": f"host-{i % 5}", "k1": i, "need": i} for i in range(first, first + 100)])
            table.flush()
        table.update([{"k0": "host-0", "k1": 0, "need": 1000}])
        table.insert([{"k0": "new", "k1": 1, "need": 2000}])
        known = {(f"host-{i % 5}", i): i for i in range(200)} | {("host-0", 0): 1000, ("new", 1): 2000}
        absent = [("host-1", 0), ("", 7)]
        for keys in (
            [],
            absent,
            [("host-0", 0)],
            [("host-0", 0)] * 3,
            [("host-0", 0), *absent, ("host-0", 0), ("new", 1), ("host-4", 199)],
            list(known),
            list(reversed(known)),
        ):
            many = table.get_many(keys, ["need", "k1"])
            assert many["need"].to_pylist() == [known.get(key) for key in keys]
            assert many["k1"].to_pylist() == [key[1] for key in keys]
            assert many["_found"].to_pylist() == [key in known for key in keys]
