"""Calls of a few rows of Arrow go by the row path, and it and the general path are one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.write import door, few_rows
from tests.support.cases.logged import Logged
from tests.support.cases.row_tables import KEYS, LAYOUTS, TYPES, make, random_keys, write
from tests.support.clock import ManualClock
from tests.table.write.test_few_rows import OPERATIONS

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string())])
OTHER_TYPES = {pa.string(): pa.large_string(), pa.int64(): pa.int32(), pa.binary(): pa.large_binary()}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call of a few rows of Arrow was answered without the general path."""
    out: list[bool] = []

    def write_few(engine: Any, operation: str, rows: Any, wait: bool = True) -> Any:
        done = few_rows.write_few(engine, operation, rows, wait)
        out.append(done is not None)
        return done

    monkeypatch.setattr(door, "write_few", write_few)
    return out


def random_batch(
    r: random.Random, schema: pa.Schema, keys: list[dict[str, Any]], operation: str
) -> pa.RecordBatch:
    """Rows of one call: most often of the table's types and with different keys, and often a slice."""
    count, before = r.randint(1, min(12, len(keys) - 9)), r.choice([0, 0, 1, 9])
    total = count + before
    chosen = [r.choice(keys) for _ in range(total)] if r.random() < 0.1 else r.sample(keys, total)
    names = [*keys[0]]
    if not operation.startswith("delete") or r.random() < 0.05:
        names += [f"v{i}" for i in range(len(TYPES)) if r.random() < 0.4]
        names += [name for name, most in (("need", 0.9), ("must", 0.3)) if r.random() < most]
    decimals = f"v{list(TYPES).index('decimal128(9,2)')}"
    names = [name for name in names if name != decimals or r.random() < 0.2]
    r.shuffle(names)
    arrays = []
    for name in names:
        type_ = schema.field(name).type
        if name in keys[0]:
            cells = [key[name] for key in chosen]
        elif name.startswith("v"):
            value = list(TYPES.values())[int(name[1:])]
            cells = [None if r.random() < 0.2 else value(r) for _ in chosen]
        else:
            cells = [None if r.random() < 0.02 else r.randint(0, 9) for _ in chosen]
        array = pa.array(cells, type_)
        if type_ in OTHER_TYPES and name not in keys[0] and r.random() < 0.03:
            array = pa.array([cell if type_ != pa.int64() else 1 for cell in cells], OTHER_TYPES[type_])
        elif r.random() < 0.02:
            array = array.dictionary_encode()
        arrays.append(array)
    if r.random() < 0.03:
        names[-1] = r.choice([names[0], "unknown"])
    return pa.RecordBatch.from_arrays(arrays, names=names).slice(before)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("key_types", KEYS, ids=["+".join(k) for k in KEYS])
def test_few_rows_of_arrow_are_written_alike(
    tmp_path: Path, key_types: tuple[str, ...], seed: int, long: bool, taken: list[bool], layout: str
) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} {key_types} {layout} arrow")
    drawn = {repr(key): key for key in random_keys(r, key_types, 400)}
    keys = [drawn[max(drawn, key=len)], *(key for text, key in drawn.items() if len(text) < 800)][:40]
    with (
        make(tmp_path / "fast", key_types, ManualClock(), layout) as fast,
        make(tmp_path / "slow", key_types, ManualClock(), layout) as slow,
    ):
        fast_log, slow_log = Logged(fast), Logged(slow)
        for step in range(2000 if long else 22 if layout == "range" else 14):
            operation = r.choice(OPERATIONS)
            batch = random_batch(r, fast.schema, keys, operation)
            given = pa.Table.from_batches([batch]) if r.random() < 0.5 else batch
            # A list of batches means the same, and is not looked at by the row path.
            answers = write(fast, operation, given), write(slow, operation, [batch])
            assert answers[0] == answers[1], (step, operation, batch.to_pydict())
            assert fast_log.new() == slow_log.new(), (step, operation, batch.to_pydict())
            if r.random() < 0.15:  # after which no deleted row is left in the MemRowSet
                fast.flush()
                slow.flush()
        assert fast_log.records
        assert fast.scan(order="key").to_table().equals(slow.scan(order="key").to_table())
        assert sum(taken) > len(taken) // 10 or "decimal128(9,2)" in key_types or layout == "range"


@pytest.fixture
def table(tmp_path: Path) -> Any:
    options = {"maintenance": "manual", "durability": "none"}
    parts = kc.HashPartition("k", 4)
    with kc.create_table(tmp_path / "t", SCHEMA, "k", partition_by=parts, options=options) as table:
        yield table


def given(count: int, v: int) -> pa.RecordBatch:
    rows = [{"k": k, "v": v, "s": None if k % 3 else f"\u00e4{k}"} for k in range(count)]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def test_every_form_is_taken(table: kc.Table, taken: list[bool]) -> None:
    rows = given(10, 1)
    assert table.insert(rows).inserted == 10
    assert table.upsert(pa.Table.from_batches([rows])).updated == 10
    assert table.update(rows.select(["k", "v"])).updated == 10
    frame = pd.DataFrame({"k": [1, 2], "v": [3.0, 4.0]})  # whole numbers, as pandas has them beside NULL
    assert table.update(frame).updated == 2
    assert table.delete(rows.slice(2, 3).select(["k"])).deleted == 3
    assert taken == [True] * 5
    kept = table.scan(columns=["k", "v"], order="key").to_table().to_pylist()
    assert [row["k"] for row in kept] == [0, 1, 5, 6, 7, 8, 9]
    assert [row["v"] for row in kept] == [1, 3, 1, 1, 1, 1, 1]


def test_a_named_write_is_the_same_in_every_form(table: kc.Table, taken: list[bool]) -> None:
    rows = given(4, 1)
    first = table.upsert(rows, txn=("app", 1))
    for again in (rows.to_pylist(), pa.Table.from_batches([rows]), rows):
        repeated = table.upsert(again, txn=("app", 1))
        assert repeated.deduplicated and repeated.timestamp == first.timestamp
    assert not taken


def test_what_is_refused_is_refused_by_the_general_path(table: kc.Table, taken: list[bool]) -> None:
    table.insert(given(3, 1))
    with pytest.raises(kc.RowErrors):
        table.insert(given(6, 2))
    result = table.insert(given(5, 2), on_error="return")
    assert (result.inserted, result.refused) == (2, 3)
    assert taken == [True, False, False]
    with pytest.raises(kc.InvalidArgument, match="on_error"):
        table.insert(given(2, 1), on_error="no such")


def test_many_rows_and_many_chunks_take_the_general_path(
    table: kc.Table, taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "write_batch", lambda *_: None)
    rows = given(few_rows.FEW_ROWS + 1, 1)
    table.insert(rows)
    table.upsert(pa.Table.from_batches([given(2, 1), given(3, 1).slice(2)]))
    table.upsert(rows.slice(0, 0))
    assert not taken and table.count() == few_rows.FEW_ROWS + 1
    table.upsert(rows.slice(1))
    assert taken == [True]
