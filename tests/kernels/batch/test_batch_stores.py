"""Rows of a batch as a payload and in stores in memory: what the general path makes of the same rows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core._ext.batch.batch_payload import payload_of_batch
from kudu_core._ext.batch.batch_stores import (
    locate_in_memory,
    parted,
    put_change_batch,
    put_insert_batch,
    reserve_change_batch,
    reserve_insert_batch,
)
from kudu_core._ext.batch.given_batch import GivenBatch
from kudu_core._ext.columns.growing import limit_data
from kudu_core._ext.rules.decide import CALL_UPSERT
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.keys import EncodedKeys, encode_keys
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.schema.schema import Schema
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.tablet.store import records
from tests.support.inside import kernels_of

UPDATE, DELETE, INSERT = records.RECORD_UPDATE, records.RECORD_DELETE, records.RECORD_INSERT
ROOM = 1 << 20


@pytest.fixture(scope="module")
def schema() -> Schema:
    columns = [
        Column("v", "int32"),
        Column("k", "string"),
        Column("b", "bool"),
        Column("t", "binary", default=b"d"),
        Column("i", "int64"),
    ]
    return declare(columns, ["k", "i"])


def drawn(r: random.Random, count: int, columns: str) -> pa.RecordBatch:
    def cell(name: str, row: int) -> Any:
        if name in "vbt" and r.random() < 0.3:
            return None
        return {
            "v": r.randrange(-99, 99), "k": f"k{row}" * r.randrange(3), "b": r.random() < 0.5,
            "t": b"x" * r.randrange(9), "i": row,
        }[name]  # fmt: skip

    types = {"v": pa.int32(), "k": pa.string(), "b": pa.bool_(), "t": pa.binary(), "i": pa.int64()}
    before = r.randrange(3)
    arrays = [pa.array([cell(c, row) for row in range(count + before)], types[c]) for c in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns)).slice(before)


def batch_of(schema: Schema, given: pa.RecordBatch) -> GivenBatch:
    batch = schema.row_codec.batch(given, CALL_UPSERT, ROOM)
    assert batch is not None
    return batch


def chosen_of(r: random.Random, count: int) -> np.ndarray | None:
    if r.random() < 0.4:
        return None
    return np.array(sorted(r.sample(range(count), r.randint(1, count))), np.int64)


def block_of(schema: Schema, given: pa.RecordBatch, columns: str, rows: np.ndarray | None) -> RowBlock:
    block = conform(schema, given).block
    some = block.select([c.id for c in schema.columns if c.name in columns])
    return some if rows is None else some.take(rows)


@pytest.mark.parametrize("tablets", [1, 3])
def test_payloads_are_those_of_the_general_path(schema: Schema, seed: int, tablets: int) -> None:
    r = random.Random(f"{seed} {tablets}")
    for _ in range(60):
        count = r.choice((1, 3, 9, 70))
        given = drawn(r, count, "vkbti")
        batch = batch_of(schema, given)
        places = None if tablets == 1 else np.array([r.randrange(3) for _ in range(count)], np.int32)
        sections, expected = [], []
        for op, columns in ((UPDATE, "vkbti"), (INSERT, "vkbti"), (DELETE, "ki")):
            if r.random() < 0.7:
                rows = chosen_of(r, count)
                mine = np.zeros(count, np.int32) if places is None else places
                sections.append((op, rows))
                block = block_of(schema, given, columns, rows)
                expected.append(records.Section(op, block, mine if rows is None else mine[rows]))
        ids = tuple(range(7, 7 + tablets))
        parts = records.encode(records.Payload(ids, expected, {}))
        assert payload_of_batch(batch, ids, places, sections) == b"".join(bytes(part) for part in parts)


def test_defaults_are_in_the_payload_of_an_insert(schema: Schema) -> None:
    given = drawn(random.Random(1), 20, "ki").append_column("v", pa.nulls(20, pa.int32()))
    batch = batch_of(schema, given)
    with pytest.raises(ValueError, match="column 2 of an insert is missing"):
        payload_of_batch(batch, (1,), None, [(INSERT, None)])
    assert batch.complete(ROOM)
    [section] = records.decode(
        memoryview(payload_of_batch(batch, (1,), None, [(INSERT, None)])), "", 0
    ).sections
    cells = {schema.by_id[i].name: c.to_arrow(schema.by_id[i].type) for i, c in section.block.columns.items()}
    assert cells["t"].to_pylist() == [b"d"] * 20 and cells["b"].null_count == cells["v"].null_count == 20


def test_rows_of_a_batch_are_laid_like_others(schema: Schema, seed: int) -> None:
    r = random.Random(seed)
    for _ in range(20):
        fast, slow = MemRowSet(schema), MemRowSet(schema)
        for ts in range(1, 4):
            count = r.choice((1, 9, 300))
            given = drawn(r, count, "vkbti")
            given = given.set_column(4, "i", pa.array(range(1000 * ts, 1000 * ts + count)))
            batch, rows = batch_of(schema, given), chosen_of(r, count)
            fast.reserve_insert_batch(batch, rows)
            allocated = fast.allocated
            fast.insert_batch(ts, batch, rows)
            assert fast.allocated == allocated
            block = block_of(schema, given, "vkbti", rows)
            keys = encode_keys(schema, block)
            slow.reserve(block, keys.data_bytes, ())
            slow.insert(ts, block, keys, keys.hashes())
            for index, memories in enumerate(([fast.points], [MemRowSet(schema).points, fast.points])):
                stores, found, ghosts = locate_in_memory(memories, batch, rows)
                assert (stores == index).all() and (ghosts < 0).all()
                assert found.tolist() == slow.locate(keys, keys.hashes()).tolist()
            changed = chosen_of(r, len(fast))
            rowids = np.arange(len(fast), dtype=np.uint32)[slice(None) if changed is None else changed]
            given = drawn(r, len(fast), "vkti")
            batch = batch_of(schema, given)
            ids = schema.row_codec.writer.value_ids
            fast.reserve_change_batch(UPDATE, ids, schema.row_codec.writer.widths, batch, changed)
            allocated = fast.allocated
            fast.change_batch(ts, UPDATE, rowids, ids, batch, changed)
            assert fast.allocated == allocated
            block = block_of(schema, given, "vt", changed)
            slow.reserve(None, 0, [Change(UPDATE, rowids, block.columns)])
            slow.change(ts, Change(UPDATE, rowids, block.columns))
        for store in (fast, slow):
            store.changes.reserve([Change(DELETE, np.array([0], np.uint32), {})])
            store.change(9, Change(DELETE, np.array([0], np.uint32), {}))
        rows_, changes = len(slow), len(slow.changes)
        assert (len(fast), len(fast.changes), fast.key_bytes) == (rows_, changes, slow.key_bytes)
        for column in schema.columns:
            stored = [store.read(column.id, 0, rows_) for store in (fast, slow)]
            a, b = (cells.to_arrow(column.type) for cells in stored if cells is not None)
            assert a.equals(b)
        assert list(fast.keys(rows_)) == list(slow.keys(rows_))
        assert all(
            (a == b).all()
            for a, b in zip(fast.changes.changes(0, changes), slow.changes.changes(0, changes), strict=True)
        )
        for column_id in slow.changes.column_ids:
            mine, other = (s.changes.column_changes(column_id, 0, changes) for s in (fast, slow))
            assert (mine[0] == other[0]).all() and (mine[1] == other[1]).all()
            type_ = schema.by_id[column_id].type
            assert mine[2].to_arrow(type_).equals(other[2].to_arrow(type_))


def test_dead_entries_are_ghosts_of_the_first_store_alone(schema: Schema) -> None:
    store = MemRowSet(schema)
    batch = batch_of(schema, drawn(random.Random(1), 5, "vkbti"))
    store.reserve_insert_batch(batch, None)
    store.insert_batch(1, batch, None)
    store.change(2, Change(DELETE, np.array([1, 3], np.uint32), {}))
    stores, _, ghosts = locate_in_memory([store.points], batch, None)
    assert stores.tolist() == [0, -1, 0, -1, 0] and ghosts.tolist() == [-1, 1, -1, 3, -1]
    homes, ghost = parted(stores, ghosts)
    assert ghost and {place: rows.tolist() for place, rows in homes.items()} == {-1: [1, 3], 0: [0, 2, 4]}
    stores, _, ghosts = locate_in_memory([MemRowSet(schema).points, store.points], batch, None)
    assert stores.tolist() == [1, -1, 1, -1, 1] and (ghosts < 0).all()
    assert parted(np.array([2, 2], np.int32), np.array([5, 5], np.int64)) == ({2: None}, False)
    assert parted(np.empty(0, np.int32), np.empty(0, np.int64)) == ({}, False)


def test_a_column_that_fills_up_is_refused_before_anything_is_laid(schema: Schema) -> None:
    store, log = MemRowSet(schema), ChangeLog()
    batch = batch_of(schema, drawn(random.Random(3), 50, "vkbti"))
    ids = schema.row_codec.writer.value_ids
    log.reserve_batch(ids, schema.row_codec.writer.widths, batch, None)
    before = limit_data(100)
    try:
        with pytest.raises(OverflowError, match="exceed 50"):
            store.reserve_insert_batch(batch, None)
        with pytest.raises(OverflowError, match="exceed 50"):
            log.reserve_batch(ids, schema.row_codec.writer.widths, batch, None)
    finally:
        limit_data(before)
    assert len(store) == len(log) == 0


def test_wrong_arguments(schema: Schema) -> None:
    store, log = MemRowSet(schema), ChangeLog()
    batch = batch_of(schema, drawn(random.Random(1), 5, "vkbti"))
    table, inserted, kernels = kernels_of(store)
    few = np.arange(2, dtype=np.uint32)
    with pytest.raises(IndexError, match="no row 5 of 5"):
        reserve_insert_batch(table, inserted, kernels, batch, np.array([0, 5]))
    with pytest.raises(ValueError, match="4 columns of 5"):
        reserve_insert_batch(table, inserted, kernels[:4], batch, None)
    with pytest.raises(ValueError, match="no rows"):
        put_insert_batch(table, inserted, kernels, 1, batch, np.empty(0, np.int64))
    with pytest.raises(ValueError, match="2 columns of 5"):
        reserve_change_batch(log.points, (1, 2), batch, None)
    with pytest.raises(ValueError, match="2 rowids of 5 rows"):
        put_change_batch(log.points, 1, UPDATE, few, schema.row_codec.writer.value_ids, batch, None)
    with pytest.raises(ValueError, match="operation 9"):
        payload_of_batch(batch, (1,), None, [(9, None)])
    with pytest.raises(ValueError, match="no tablet 2 of 2"):
        payload_of_batch(batch, (1, 2), np.array([0, 1, 2, 0, 0], np.int32), [(UPDATE, None)])
    with pytest.raises(ValueError, match="2 tablets, and rows are in one or in several"):
        payload_of_batch(batch, (1, 2), None, [(UPDATE, None)])
    with pytest.raises(ValueError, match="5 stores and 2"):
        parted(np.zeros(5, np.int32), np.zeros(2, np.int64))
    assert isinstance(EncodedKeys(batch.data, batch.offsets)[0], bytes)
