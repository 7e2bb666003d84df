"""Calls of a few dicts, which go without Arrow, and the general path are one: same answers, records, rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.write import door, few_rows
from tests.support.cases.logged import Logged
from tests.support.cases.row_tables import KEYS, LAYOUTS, ODD, TYPES, make, random_keys, random_row, write
from tests.support.clock import ManualClock
from tests.support.inside import engine_of

STRICT = ("insert", "upsert", "update", "delete")
OPERATIONS = STRICT + 3 * ("insert_ignore", "upsert", "update_ignore", "delete_ignore")
"""Most of the strict calls refuse some row."""
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string())])


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call of a few dicts was answered without the general path."""
    out: list[bool] = []

    def write_few(engine: Any, operation: str, rows: list[dict[str, Any]], wait: bool = True) -> Any:
        done = few_rows.write_few(engine, operation, rows, wait)
        out.append(done is not None)
        return done

    monkeypatch.setattr(door, "write_few", write_few)
    return out


def random_rows(r: random.Random, keys: list[dict[str, Any]], operation: str) -> list[dict[str, Any]]:
    """Rows of one call: most often of the same columns, and of different keys."""
    count = r.randint(2, min(12, len(keys)))
    chosen = [r.choice(keys) for _ in range(count)] if r.random() < 0.2 else r.sample(keys, count)
    if operation.startswith("delete") and r.random() < 0.9:
        return [dict(key) for key in chosen]
    like = random_row(r, keys)
    if r.random() < 0.8:  # most often what needs no general path: no decimals, and a value that must be given
        like["need"] = 0
        like.pop(f"v{list(TYPES).index('decimal128(9,2)')}", None)
    rows = []
    for key in chosen:
        row = dict(key)
        for name in like:
            if name.startswith("v"):
                value = list(TYPES.values())[int(name[1:])]
                row[name] = None if r.random() < 0.2 else value(r)
            elif name in ("need", "must"):
                row[name] = r.randint(0, 9)
        items = list(row.items())
        r.shuffle(items)
        rows.append(dict(items))
    if r.random() < 0.1:
        row = r.choice(rows)
        row[r.choice([*row, "v3", "unknown"])] = r.choice([None, *ODD])
    if r.random() < 0.05:
        r.choice(rows).popitem()
    return rows


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("key_types", KEYS, ids=["+".join(k) for k in KEYS])
def test_few_rows_are_written_alike(
    tmp_path: Path, key_types: tuple[str, ...], seed: int, long: bool, taken: list[bool], layout: str
) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} {key_types} {layout} few")
    drawn = {repr(key): key for key in random_keys(r, key_types, 400)}
    longest = max(drawn, key=len)  # a key of more than 1 KB is the general path's
    keys = [drawn[longest], *(key for text, key in drawn.items() if len(text) < 800)][:40]
    with (
        make(tmp_path / "fast", key_types, ManualClock(), layout) as fast,
        make(tmp_path / "slow", key_types, ManualClock(), layout) as slow,
    ):
        fast_log, slow_log = Logged(fast), Logged(slow)
        for step in range(2000 if long else 22 if layout == "range" else 14):
            operation = r.choice(OPERATIONS)
            rows = random_rows(r, keys, operation)
            # A tuple of dicts means the same, and is not looked at by the row path.
            answers = write(fast, operation, rows), write(slow, operation, tuple(rows))
            assert answers[0] == answers[1], (step, operation, rows)
            assert fast_log.new() == slow_log.new(), (step, operation, rows)
            if r.random() < 0.15:  # after which no deleted row is left in the MemRowSet
                fast.flush()
                slow.flush()
        assert fast_log.records
        assert fast.scan(order="key").to_table().equals(slow.scan(order="key").to_table())
        # Decimal keys, and keys that no range takes, are the general path's.
        assert sum(taken) > len(taken) // 10 or "decimal128(9,2)" in key_types or layout == "range"
    # What was logged is what was done: replay gives the same table.
    with kc.open_table(tmp_path / "fast") as again, kc.open_table(tmp_path / "slow") as other:
        assert again.scan(order="key").to_table().equals(other.scan(order="key").to_table())


@pytest.fixture
def table(tmp_path: Path) -> Any:
    options = {"maintenance": "manual", "durability": "none"}
    with kc.create_table(
        tmp_path / "t", SCHEMA, "k", partition_by=kc.HashPartition("k", 4), options=options
    ) as table:
        yield table


def rows_of(table: kc.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.scan(order="key").to_table().to_pylist()]


def given(count: int, v: int) -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "s": None if k % 3 else str(k)} for k in range(count)]


def test_one_record_for_all_tablets(table: kc.Table, taken: list[bool]) -> None:
    log = Logged(table)
    assert table.insert(given(10, 1)).inserted == 10
    result = table.upsert(given(20, 2))
    assert (result.inserted, result.updated) == (10, 10)
    assert taken == [True, True] and len(log.new()) == 2
    assert {tablet.newest_applied for tablet in engine_of(table).tablets} == {result.timestamp}
    assert rows_of(table) == [tuple(row.values()) for row in given(20, 2)]


def test_nothing_of_a_refused_call_is_written(table: kc.Table, taken: list[bool]) -> None:
    table.insert(given(3, 1))
    log = Logged(table)
    with pytest.raises(kc.RowErrors):
        table.insert(given(6, 2))
    with pytest.raises(kc.RowErrors):
        table.delete([{"k": 2}, {"k": 3}])
    assert not log.new() and taken == [True, False, False]
    assert rows_of(table) == [tuple(row.values()) for row in given(3, 1)]
    ignored = table.insert(given(6, 2), on_conflict="ignore")
    assert (ignored.inserted, ignored.ignored) == (3, 3) and taken[-1]


def test_repeated_keys_are_applied_in_their_order(table: kc.Table, taken: list[bool]) -> None:
    table.upsert([{"k": 1, "v": 1}, {"k": 1, "v": 2}, {"k": 2, "v": 3}])
    assert taken == [False]
    assert rows_of(table) == [(1, 2, None), (2, 3, None)]


def test_rows_of_several_stores(table: kc.Table, taken: list[bool]) -> None:
    """On disk, in memory and new, in one call; then all of them deleted and, revived, written once more."""
    table.insert(given(8, 1))
    table.flush()
    table.insert(given(12, 1)[8:])
    before = table.upsert(given(16, 2))
    assert (before.inserted, before.updated) == (4, 12)
    assert table.delete([{"k": k} for k in range(16)]).deleted == 16
    assert all(taken)
    assert rows_of(table) == []
    assert table.scan(at=before.timestamp).to_table().num_rows == 16
    assert table.upsert(given(16, 3)).inserted == 16 and not taken[-1]  # dead entries of the MemRowSet
    assert rows_of(table) == [tuple(row.values()) for row in given(16, 3)]


def test_errors_can_be_returned(table: kc.Table, taken: list[bool]) -> None:
    result = table.insert(given(5, 1), on_error="return")
    assert result.errors is not None and result.errors.num_rows == 0 and taken == [True]
    result = table.insert(given(7, 1), on_error="return")
    assert (result.inserted, result.refused) == (2, 5) and taken == [True, False]


def test_a_named_write_takes_the_general_path(table: kc.Table, taken: list[bool]) -> None:
    for _ in range(2):
        result = table.upsert(given(4, 1), txn=("app", 1))
    assert result.deduplicated and not taken


def test_many_dicts_take_the_general_path(table: kc.Table, taken: list[bool]) -> None:
    assert table.upsert(given(few_rows.FEW_ROWS, 1)).inserted == few_rows.FEW_ROWS
    assert table.upsert(given(few_rows.FEW_ROWS + 1, 2)).updated == few_rows.FEW_ROWS
    assert taken == [True]
