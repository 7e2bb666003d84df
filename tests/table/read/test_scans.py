"""Reads: what comes out, in which order and form, and what is not even looked at."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

import kudu_core as kc
from tests.support.tables import Make
from tests.table.read.conftest import ROWS

# ---- forms


def test_a_scan_is_an_arrow_stream(table: kc.Table) -> None:
    import duckdb
    import polars

    table.insert({"k": [1, 2, 3], "a": [10, None, 30], "s": ["x", "é", None]})
    table.flush()
    table.update({"k": [3], "a": [31]})
    rows = table.scan(["k", "a", "s"], order="key")
    wanted = [{"k": 1, "a": 10, "s": "x"}, {"k": 2, "a": None, "s": "é"}, {"k": 3, "a": 31, "s": None}]
    for _ in range(2):  # every taker gets a stream of its own
        assert duckdb.sql("SELECT sum(a), count(s) FROM rows").fetchall() == [(41, 2)]
        assert polars.DataFrame(rows).to_dicts() == wanted
        assert rows.to_polars().to_dicts() == wanted
        assert pa.table(rows).to_pylist() == wanted
        assert pa.RecordBatchReader.from_stream(rows).read_all().to_pylist() == wanted
        assert rows.to_reader().read_all().to_pylist() == wanted
        assert [r for batch in rows for r in batch.to_pylist()] == wanted
        assert rows.to_pylist() == wanted
        frame = rows.to_pandas()
        assert frame["k"].tolist() == [1, 2, 3] and frame["a"].tolist()[::2] == [10.0, 31.0]
        assert pyarrow.dataset.Scanner.from_batches(rows.to_reader()).count_rows() == 3
    assert duckdb.sql("SELECT k FROM rows WHERE s = 'é'").fetchall() == [(2,)]
    assert pa.schema(rows) == rows.schema == table.scan(["k", "a", "s"]).schema
    assert rows.schema.field("k").nullable is False


def test_two_iterations_do_not_disturb_each_other(big: kc.Table) -> None:
    scan = big.scan(["k"], batch_rows=1000, order="key")
    first, second = iter(scan), iter(scan)
    taken = 0
    for one, other in itertools.islice(zip(first, second, strict=True), 10):
        assert one.equals(other)
        taken += one.num_rows
    assert sum(b.num_rows for b in first) == sum(b.num_rows for b in second) == ROWS - taken


def test_an_iteration_that_is_left(big: kc.Table) -> None:
    for _ in range(20):
        next(iter(big.scan(batch_rows=100)))
    reader = big.scan(batch_rows=100).to_reader()
    reader.read_next_batch()
    del reader
    assert big.count() == ROWS


def test_an_answer_of_no_rows_has_its_columns(table: kc.Table) -> None:
    assert table.scan(["s", "k"]).to_table().schema.names == ["s", "k"]
    assert table.scan(["s"]).to_pandas().columns.tolist() == ["s"]
    assert table.scan().count() == 0 and table.scan().to_pylist() == []
    assert table.scan([]).to_table().num_rows == 0
    table.insert({"k": [1, 2]})
    assert table.scan([]).to_table().num_rows == 2
    assert table.scan(limit=0).to_pylist() == []


def test_data_goes_in_in_many_forms(table: kc.Table) -> None:
    import duckdb
    import pandas
    import polars

    frame = pandas.DataFrame({"k": [5], "s": ["pandas"]})
    indexed = pandas.DataFrame({"k": [6], "s": ["index"]}).set_index("k")
    forms: list[Any] = [
        {"k": [1], "s": ["dict of lists"]},
        [{"k": 2, "s": "rows"}, {"s": "rows", "k": 22}],
        pa.table({"k": [3], "s": ["table"]}),
        pa.RecordBatch.from_pydict({"k": [4], "s": ["batch"]}),
        frame,
        indexed,
        polars.DataFrame({"k": [7], "s": ["polars"]}),
        duckdb.sql("SELECT 8::BIGINT AS k, 'duckdb' AS s"),
        (pa.RecordBatch.from_pydict({"k": [k], "s": ["generator"]}) for k in (9, 99)),
        pa.RecordBatchReader.from_batches(
            pa.schema([("k", pa.int64()), ("s", pa.string())]),
            [pa.RecordBatch.from_pydict({"k": [10], "s": ["r"]})],
        ),
        {"k": np.array([11], np.int16), "s": pa.array(["numpy"]).dictionary_encode()},
        {"k": pa.chunked_array([[12], [13]]), "s": ("tuple", None)},
        table.scan(["k", "s"]),  # of the empty table
    ]
    total = 0
    for data in forms:
        total += table.insert(data).inserted
    assert total == table.count() == 15
    assert table.get_many([2, 22, 9, 99, 13], ["s"])["s"].to_pylist() == ["rows", "rows", "generator"] * 1 + [
        "generator",
        None,
    ]
    # A table into itself: read at a snapshot, written after.
    assert table.upsert(table.scan()).updated == 15


def test_types_come_back_as_they_went_in(make: Make) -> None:
    schema = pa.schema(
        [
            ("k", pa.timestamp("us", "UTC")),
            ("d", pa.date32()),
            ("x", pa.decimal128(38, 10)),
            ("b", pa.binary()),
            ("f", pa.float32()),
            ("o", pa.bool_()),
            ("u", pa.uint64()),
        ]
    )
    table = make(schema)
    now = dt.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=dt.UTC)
    row = {
        "k": now,
        "d": dt.date(1, 1, 1),
        "x": Decimal("-1.0000000001"),
        "b": b"\0\xff",
        "f": 0.5,
        "o": True,
    }
    row["u"] = 2**64 - 1
    table.insert([row])
    for _ in range(2):
        assert table.get(now) == row
        assert table.scan().to_pylist() == [row]
        assert table.scan().schema.types == schema.types
        assert table.get(now.astimezone(dt.timezone(dt.timedelta(hours=5)))) == row
        table.flush()
    assert table.schema.types == schema.types


# ---- order and ranges


@pytest.mark.parametrize("flushed", [False, True])
def test_order_ranges_and_limits(make: Make, flushed: bool) -> None:
    table = make(
        pa.schema([("a", pa.string()), ("b", pa.int8()), ("v", pa.int64())]),
        ("a", "b"),
        partition_by=kc.HashPartition("a", 3),
    )
    rows = [(a, b) for a in ("", "a", "a\0", "ab", "b", "é") for b in (-128, -1, 0, 1, 127)]
    shuffled = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    for start in range(0, len(rows), 7):
        part = shuffled[start : start + 7]
        table.insert({"a": [a for a, _ in part], "b": [b for _, b in part], "v": [1] * len(part)})
        if flushed and start % 2:
            table.flush()

    def keys(**arguments: Any) -> list[tuple[str, int]]:
        found = table.scan(["b", "a"], order="key", batch_rows=4, **arguments).to_pylist()
        return [(r["a"], r["b"]) for r in found]

    assert keys() == rows
    assert keys(limit=7) == rows[:7]
    assert keys(key_range=(("a",), ("b",))) == [r for r in rows if "a" <= r[0] < "b"]
    assert keys(key_range=(("a", 0), ("ab", -1))) == [r for r in rows if ("a", 0) <= r < ("ab", -1)]
    assert keys(key_range=("a", None)) == [r for r in rows if r[0] >= "a"]
    assert keys(key_range=(None, ("a", 1))) == [r for r in rows if r < ("a", 1)]
    assert keys(key_range=({"a": "b"}, None), limit=2) == [("b", -128), ("b", -1)]
    assert keys(key_range=(("b",), ("a",))) == []
    assert keys(where=[("b", ">", 0)], key_range=("ab", None)) == [
        r for r in rows if r[1] > 0 and r[0] >= "ab"
    ]
    unordered = table.scan(["a", "b"], key_range=(("a",), ("b",)), limit=3).to_pylist()
    assert len(unordered) == 3 and all("a" <= r["a"] < "b" for r in unordered)


def test_get_many_keeps_the_order_of_the_keys(make: Make) -> None:
    table = make(partition_by=kc.HashPartition("k", 4))
    table.insert({"k": list(range(10)), "a": list(range(0, 100, 10))})
    table.flush()
    table.insert({"k": [20], "a": [200]})
    found = table.get_many([20, 3, 99, 3, 0], ["a", "k"])
    assert found.to_pydict() == {
        "a": [200, 30, None, 30, 0],
        "k": [20, 3, 99, 3, 0],
        "_found": [True, True, False, True, True],
    }
    assert table.get_many([], ["a"]).num_rows == 0
    assert table.get_many(pa.array([3]), ["a"])["a"].to_pylist() == [30]
    assert table.get_many(pa.table({"k": [3], "other": [1]}), ["a"])["a"].to_pylist() == [30]
    assert table.get_many([{"k": 3}, (0,)], ["a"])["a"].to_pylist() == [30, 0]


# ---- predicates


def test_predicates_follow_arrow(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("o", pa.bool_())]))
    nan = float("nan")
    rows = {
        "k": list(range(8)),
        "f": [1.0, nan, None, -0.0, 0.0, float("inf"), -5.0, 2.5],
        "s": ["a", None, "", "ab", "b", "a\0", "é", "abc"],
        "o": [True, False, None, True, None, False, True, False],
    }
    truth = pa.table(rows, schema=table.schema)
    table.insert(rows)
    predicates = [
        pc.field("f") > 0,
        ~(pc.field("f") > 0),
        pc.field("f") == 0.0,
        pc.field("f") != 0.0,
        pc.is_nan(pc.field("f")),
        pc.field("f").is_null(),
        pc.field("f").is_null(nan_is_null=True),
        pc.field("f").isin([1.0, nan, None]),
        pc.field("f") * 2 >= 5,
        pc.field("o"),
        ~pc.field("o"),
        pc.field("s").isin(["a", "b"]),
        pc.starts_with(pc.field("s"), "ab"),
        pc.match_like(pc.field("s"), "a%c"),
        pc.utf8_length(pc.field("s")) > 1,
        (pc.field("k") < 5) & (pc.field("s") >= "a") | pc.field("o"),
        pc.field("k") > 3.5,
        pc.field("k").cast(pa.string()) == "4",
        pc.scalar(True),
        pc.scalar(False),
    ]
    for _ in range(2):
        for where in predicates:
            wanted = truth.filter(where)["k"].to_pylist()
            found = table.scan(["k"], where=where, order="key").to_table()["k"].to_pylist()
            assert found == wanted, str(where)
            assert table.count(where) == len(wanted), str(where)
        table.flush()


# ---- tokens


def test_tokens_are_shares_of_one_snapshot(make: Make, path: Path) -> None:
    import pickle

    table = make(
        pa.schema([("k", pa.int64()), ("v", pa.int64())]),
        partition_by=kc.HashPartition("k", 3),
        ingest_threshold_rows=1000,
        rowset_target_bytes=65_536,
    )
    table.insert({"k": np.arange(60_000), "v": np.arange(60_000) % 7})
    early = kc.open_table(path)
    table.update({"k": [0], "v": [6]})
    tokens = pickle.loads(pickle.dumps(table.scan_tokens(["k"], where=[("v", "<", 3)], target_rows=5000)))
    assert len(tokens) >= 9 and len({t.timestamp for t in tokens}) == 1
    table.delete(where=pc.field("v") == 1)
    table.flush()
    wanted = sorted(k for k in range(1, 60_000) if k % 7 < 3)
    # By the writer, and by a reader that was opened before the tokens' snapshot.
    for handle in (table, early):
        found = [k for t in tokens for k in handle.scan_token(t).to_table()["k"].to_pylist()]
        assert sorted(found) == wanted
    early.close()
    other = kc.create_table(path.parent / "other", table.schema, "k")
    with other, pytest.raises(kc.InvalidArgument, match="another table"):
        other.scan_token(tokens[0])


def test_scans_on_many_threads(big: kc.Table) -> None:
    wanted = big.scan(["v"], order="key").to_table()
    problems: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(3):
                assert big.scan(["v"], order="key").to_table().equals(wanted)
                assert big.get(77, ["v"]) == {"v": 770}
        except BaseException as error:  # noqa: BLE001  told below
            problems.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
