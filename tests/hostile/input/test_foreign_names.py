"""Names of operations and columns, and strings of Python, that are no text: refused at every door."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.cases.foreign import HOSTILE, ROWS, Hostile, i32
from tests.support.hostile.doors import NEW, OLD, OPTIONS, ArrayProducer, make, pointer_of, state

# ---- names of operations, names of columns


@pytest.mark.parametrize("case", [c for c in HOSTILE if c.column == "string"], ids=str)
def test_broken_names_of_operations(tmp_path: Path, case: Hostile) -> None:
    with make(tmp_path / "t") as table:
        before = state(table)
        array, spoil = case.make()
        batch = pa.RecordBatch.from_arrays([array, pa.array(NEW)], names=["_op", "k"])
        spoil()
        with pytest.raises(kc.InvalidArgument, match="column '_op'"):
            table.apply(batch)
        with pytest.raises(kc.InvalidArgument, match="column '_op'"), table.batch() as calls:
            calls.apply(batch)
        assert state(table) == before


def test_a_name_of_a_column_that_is_no_text(tmp_path: Path) -> None:
    with make(tmp_path / "t") as table:
        for data in ({"k": [5], "\udc80": [1]}, [{"k": 5, "\udc80": 1}]):
            with pytest.raises(kc.InvalidArgument, match=r"name: '\\udc80' cannot be written as UTF-8"):
                table.upsert(data)
        with pytest.raises(kc.InvalidArgument, match="name"):
            # Of objects: pandas 3 would have text of Arrow, and so refuses it itself.
            table.upsert(pd.DataFrame([[5, 1]], columns=pd.Index(["k", "\udc80"], dtype=object)))


def test_rows_are_numbered_through_the_call(tmp_path: Path) -> None:
    """Not from the beginning of their batch."""
    no_text = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(i32(0, 1, 2, 3)), pa.py_buffer(b"a\xffc")]
    )
    too_far = pa.DictionaryArray.from_arrays(pa.array([0, 5, 0]), pa.array(["a"]), safe=False)
    cases = {"string": (no_text, too_far), "int8": (pa.array([1, 200, 3]),)}
    with make(tmp_path / "t") as table:
        for column, arrays in cases.items():
            for array in arrays:
                names = ["k", column, "_op"]
                ops = pa.array(["upsert"] * ROWS)
                good = pa.RecordBatch.from_arrays(
                    [pa.array(OLD), pa.nulls(ROWS, array.type), ops], names=names
                )
                bad = pa.RecordBatch.from_arrays([pa.array(NEW), array, ops], names=names)
                with pytest.raises(kc.InvalidArgument, match=f"column '{column}', row 4:"):
                    table.apply(iter([good, bad]))
                with pytest.raises(kc.InvalidArgument, match=f"column '{column}', row 4:"):
                    table.upsert(iter([good.drop_columns(["_op"]), bad.drop_columns(["_op"])]))
        with pytest.raises(kc.InvalidArgument, match="column '_op', row 4:"):
            ops = pa.RecordBatch.from_arrays([pa.array(NEW), no_text], names=["k", "_op"])
            table.apply(iter([pa.RecordBatch.from_pydict({"k": OLD, "_op": ["delete_ignore"] * 3}), ops]))
        assert table.count() == ROWS


def test_a_name_of_a_producer_that_is_no_text(tmp_path: Path) -> None:
    class Producer(ArrayProducer):
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            schema, array = self.batch.__arrow_c_array__(requested_schema)
            whole = pointer_of(schema, b"arrow_schema")
            children = ctypes.c_void_p.from_address(
                whole + 5 * 8
            ).value  # behind format, name, metadata, flags
            second = ctypes.cast(children, ctypes.POINTER(ctypes.c_void_p))[1]
            name = ctypes.c_void_p.from_address(second + 8).value
            ctypes.memset(name, 0xFF, 1)
            return schema, array

    with make(tmp_path / "t") as table:
        before = state(table)
        batch = pa.RecordBatch.from_arrays([pa.array(NEW), pa.array(NEW)], names=["k", "int64"])
        for act in (table.upsert, table.delete, table.get_many):
            with pytest.raises(kc.InvalidArgument, match="name is not UTF-8"):
                act(Producer(batch))
        assert state(table) == before


# ---- strings of Python's that are no text

LONE = "caf\udce9"
"""Half of a surrogate pair: what Python makes of a file name in another encoding."""
TEXT_DOORS: dict[str, tuple[str, Callable[[kc.Table], object]]] = {
    "insert of a row": ("column 'v', row 0", lambda t: t.insert([{"k": "n", "v": LONE}])),
    "insert of rows": (
        "column 'v', row 1",
        lambda t: t.insert([{"k": "n", "v": "x"}, {"k": "m", "v": LONE}]),
    ),
    "rows that differ": (
        "column 'v', row 2",
        lambda t: t.upsert([{"k": "n"}, {"k": "m"}, {"k": "l", "v": LONE}]),
    ),
    "a generator": (
        "column 'v', row 70000",
        lambda t: t.upsert({"k": str(i), "v": LONE if i == 70_000 else "x"} for i in range(70_001)),
    ),
    "a key of a row": ("column 'k', row 0", lambda t: t.upsert([{"k": LONE, "v": "x"}])),
    "columns": ("column 'v', row 1", lambda t: t.upsert({"k": ["n", "m"], "v": ["x", LONE]})),
    "numpy objects": (
        "column 'v', row 1",
        lambda t: t.upsert({"k": ["n", "m"], "v": np.array(["x", LONE], object)}),
    ),
    "a pandas frame": (
        "column 'v', row 1",
        lambda t: t.upsert(pd.DataFrame({"k": ["n", "m"], "v": pd.Series(["x", LONE], dtype=object)})),
    ),
    "update": ("column 'v', row 0", lambda t: t.update([{"k": "a", "v": LONE}])),
    "apply": ("column 'v', row 0", lambda t: t.apply([{"k": "n", "v": LONE, "_op": "insert"}])),
    "an operation": ("column '_op'", lambda t: t.apply([{"k": "n", "v": "x", "_op": LONE}])),
    "batch": ("column 'v', row 0", lambda t: _in_a_batch(t, [{"k": "n", "v": LONE}])),
    "delete of a list": ("column 'k', row 1", lambda t: t.delete(["a", LONE])),
    "delete of rows": ("column 'k', row 0", lambda t: t.delete([{"k": LONE}])),
    "set": ("'v' is string", lambda t: t.update(where=pc.field("k") == "a", set={"v": LONE})),
    "set by key": ("column 'v'", lambda t: t.update({"k": ["a"]}, set={"v": LONE})),
    "a clause": ("column 'v'", lambda t: t.merge({"k": ["n"]}).when_not_matched_insert({"v": LONE})),
    "a source": ("column 'v', row 0", lambda t: t.merge([{"k": "a", "v": LONE}]).when_matched().execute()),
    "a column of its own": (
        "column 'w', row 0",
        lambda t: t.merge([{"k": "a", "w": LONE}]).when_matched_delete().execute(),
    ),
    "if": ("filter on 'v'", lambda t: t.delete(["a"], if_=[("v", "==", LONE)])),
    "modify": ("key column 'k'", lambda t: t.modify(LONE, lambda row: row)),
    "what modify gives": ("column 'v', row 0", lambda t: t.modify("a", lambda row: {"v": LONE})),
    "get in a batch": ("key column 'k'", lambda t: _read_in_a_batch(t, LONE)),
    "get": ("key column 'k'", lambda t: t.get(LONE)),
    "get of a tuple": ("key column 'k'", lambda t: t.get((LONE,))),
    "get of a dict": ("key column 'k'", lambda t: t.get({"k": LONE})),
    "get at a time": ("key column 'k'", lambda t: t.get(LONE, at=t.timestamp)),
    "get_many": ("row 1: key column 'k'", lambda t: t.get_many(["a", LONE])),
    "get_many of columns": ("column 'k', row 1", lambda t: t.get_many({"k": ["a", LONE]})),
    "key_range": ("key column 'k'", lambda t: t.scan(key_range=(LONE, None)).to_table()),
    "a filter": ("filter on 'v'", lambda t: t.scan(where=[("v", "==", LONE)]).to_table()),
    "a filter of a list": ("filter on 'v'", lambda t: t.scan(where=[("v", "in", ["x", LONE])]).to_table()),
    "count": ("filter on 'v'", lambda t: t.count([("v", "<", LONE)])),
    "delete by a filter": ("filter on 'v'", lambda t: t.delete(where=[("v", "==", LONE)])),
    "update by a filter": ("filter on 'v'", lambda t: t.update(where=[("v", "==", LONE)], set={"v": "x"})),
    "changes by a filter": ("filter on 'v'", lambda t: list(t.changes(where=[("v", "==", LONE)]))),
    "scan tokens": ("filter on 'v'", lambda t: t.scan_tokens(where=[("v", "==", LONE)])),
    "a default": ("column 'w', default", lambda t: t.alter(add=[kc.Column("w", "string", default=LONE)])),
    "a changed default": ("column 'v', default", lambda t: t.alter(change={"v": {"default": LONE}})),
    "history_of": ("key column 'k'", lambda t: t.history_of(LONE)),
    "sql": ("sql takes the text", lambda t: t.sql(f"SELECT '{LONE}'")),
    "sql of a value": ("DuckDB says", lambda t: t.sql("SELECT * FROM this WHERE v = $v", v=LONE)),
    "sql that writes": ("$v", lambda t: t.sql("UPDATE this SET v = $v WHERE k = 'a'", v=LONE)),
    "a name that is asked for": ("no column", lambda t: t.scan([LONE])),
    "min_max": ("no column", lambda t: t.scan().min_max(LONE)),
    "a set with a token": (
        "'v' is string",
        lambda t: t.update(where=pc.field("k") == "a", set={"v": LONE}, txn=("app", 1)),
    ),
    "a filter with a token": (
        "filter on 'v'",
        lambda t: t.delete(where=[("v", "==", LONE)], txn=("app", 1)),
    ),
    "rows with a token": ("column 'v', row 0", lambda t: t.upsert([{"k": "n", "v": LONE}], txn=("app", 1))),
    "a token": ("txn", lambda t: t.upsert([{"k": "n"}], txn=(LONE, 1))),
}


def _in_a_batch(table: kc.Table, rows: Any) -> None:
    with table.batch() as batch:
        batch.insert([{"k": "before"}])
        batch.upsert(rows)


def _read_in_a_batch(table: kc.Table, key: Any) -> None:
    with table.batch() as batch:
        batch.insert([{"k": "before"}])
        batch.get(key)


@pytest.mark.parametrize("door", TEXT_DOORS)
def test_python_text_that_cannot_be_written(tmp_path: Path, door: str) -> None:
    named, act = TEXT_DOORS[door]
    columns = [kc.Column("k", "string"), kc.Column("v", "string")]
    table = kc.create_table(tmp_path / "t", columns, "k", options=OPTIONS)
    table.insert([{"k": "a", "v": "b"}])
    before, timestamp = state(table), table.timestamp
    with pytest.raises(kc.InvalidArgument) as caught:
        act(table)
    assert named in str(caught.value)
    assert state(table) == before
    assert table.timestamp == timestamp
    table.upsert([{"k": "a", "v": "c"}])
    table.close()
    with kc.open_table(tmp_path / "t", "rw") as table:
        assert table.get("a") == {"k": "a", "v": "c"}


def test_a_default_that_cannot_be_written_makes_no_table(tmp_path: Path) -> None:
    columns = [kc.Column("k", "int64"), kc.Column("v", "string", default=LONE)]
    with pytest.raises(kc.InvalidArgument, match="column 'v', default"):
        kc.create_table(tmp_path / "t", columns, "k")
    assert not (tmp_path / "t").exists()


def test_bounds_of_a_range_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(kc.InvalidArgument, match="cannot be written as UTF-8"):
        kc.create_table(
            tmp_path / "t",
            [kc.Column("k", "string")],
            "k",
            partition_by=kc.RangePartition(["k"], bounds=[(None, LONE)]),
        )
