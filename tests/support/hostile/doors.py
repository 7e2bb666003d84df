"""The doors by which somebody else's Arrow data come into a table, and what must be so after each refusal."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.types.types import ColumnType
from kudu_core.table.jobs import commit
from tests.support.bulk import MEMORY_LIMIT_BYTES, small_runs
from tests.support.cases.foreign import ROWS, VALUES, Hostile
from tests.support.inside import applied_writes_of, handle_of

OLD, NEW = [0, 1, 2], [100, 101, 102]
"""Keys that are there, and keys that are not."""
OPTIONS = {"maintenance": "manual", "durability": "none", "memory_limit_bytes": MEMORY_LIMIT_BYTES}


def make(path: Path, **options: Any) -> kc.Table:
    """A key, a text, and a column of each type."""
    columns = [kc.Column("k", "int64"), *(kc.Column(name, name) for name in VALUES)]
    table = kc.create_table(path, columns, "k", options={**OPTIONS, **options})
    table.insert(
        {"k": OLD, **{name: pa.array(v, ColumnType.parse(name).arrow) for name, v in VALUES.items()}}
    )
    return table


class ArrayProducer:
    """What speaks Arrow's C protocol for one batch and nothing else."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.batch.__arrow_c_array__(requested_schema)


class _Stream:
    """The same for a stream of them."""

    def __init__(self, *batches: pa.RecordBatch) -> None:
        self.batches = batches

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.batches[0].schema, iter(self.batches))
        return reader.__arrow_c_stream__(requested_schema)


class _Column:
    """A column that speaks the protocol."""

    def __init__(self, array: pa.Array) -> None:
        self.array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.array.__arrow_c_array__(requested_schema)


class _CArray(ctypes.Structure):
    """The first fields of the C data interface's struct."""


_CArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_CArray))),
]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype = ctypes.c_void_p
pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


class Edited(ArrayProducer):
    """A producer that fills in the struct of the protocol wrongly: its second column, or all of it."""

    def __init__(self, batch: pa.RecordBatch, edit: Callable[[Any, Any], None]) -> None:
        super().__init__(batch)
        self.edit = edit

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        schema, array = self.batch.__arrow_c_array__(requested_schema)
        whole = _CArray.from_address(pointer_of(array, b"arrow_array"))
        self.edit(whole, whole.children[1].contents)
        return schema, array


# ---- the forms in which an array is handed over; each breaks it at the last moment

Form = Callable[[list[int], str, pa.Array, Callable[[], None]], Any]


def as_batch(
    keys: list[int], name: str, array: pa.Array, spoil: Callable[[], None], op: str | None = None
) -> pa.RecordBatch:
    arrays, names = [pa.array(keys, pa.int64()), array], ["k", name]
    if op is not None:
        arrays, names = [*arrays, pa.array([op] * len(keys))], [*names, "_op"]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    spoil()
    return batch


def _table(keys: list[int], name: str, array: pa.Array, spoil: Callable[[], None]) -> pa.Table:
    table = pa.table({"k": pa.array(keys, pa.int64()), name: array})
    spoil()
    return table


def _dict(keys: list[int], name: str, array: pa.Array, spoil: Callable[[], None]) -> dict[str, Any]:
    spoil()
    return {"k": keys, name: array}


def _chunks(keys: list[int], name: str, array: pa.Array, spoil: Callable[[], None]) -> dict[str, Any]:
    good = pa.nulls(1, array.type)
    chunked = pa.chunked_array([good, array, good])
    spoil()
    return {"k": [90, *keys, 91], name: chunked}


def _column(keys: list[int], name: str, array: pa.Array, spoil: Callable[[], None]) -> dict[str, Any]:
    spoil()
    return {"k": keys, name: _Column(array)}


FORMS: dict[str, Form] = {
    "batch": as_batch,
    "table": _table,
    "dict of arrays": _dict,
    "dict of chunks": _chunks,
    "dict of a column that exports itself": _column,
    "reader": lambda *a: pa.RecordBatchReader.from_batches((b := as_batch(*a)).schema, [b]),
    "list of batches": lambda *a: [as_batch(*a)],
    "exports an array": lambda *a: ArrayProducer(as_batch(*a)),
    "exports a stream": lambda *a: _Stream(as_batch(*a)),
}


# ---- the doors

Broken = Callable[..., Any]
Door = Callable[[kc.Table, Broken, Path], object]
"""Given a table with the keys ``OLD``, what makes a broken batch with keys, and a folder for scratch."""


def _in_batch(call: str) -> Door:
    def door(table: kc.Table, broken: Broken, folder: Path) -> object:
        with table.batch() as batch:
            batch.insert({"k": [500]})
            getattr(batch, call)(broken(OLD if call == "update" else NEW))
        return batch.result

    return door


def _bulk(table: kc.Table, broken: Broken, folder: Path) -> object:
    assert table.options.ingest_threshold_rows <= ROWS
    return table.upsert(broken(NEW))


def _spilled(table: kc.Table, broken: Broken, folder: Path) -> object:
    """The rows before are in files of staging already when the broken ones come."""
    bad = broken(NEW)
    good = pa.RecordBatch.from_arrays(
        [pa.array([200, 201, 202]), pa.nulls(3, bad.column(1).type)], names=bad.schema.names
    )
    with small_runs(spill=True):
        return table.upsert(iter([good, good.slice(0, 1), bad]))


def _staged(table: kc.Table, broken: Broken, folder: Path) -> object:
    """What a task of a distributed write does with its rows."""
    batch = broken(NEW)
    columns = [(n, "int64" if n == "k" else n) for n in batch.schema.names]
    job = commit.begin(handle_of(table), "upsert", columns)
    try:
        stager = commit.stager(job, "attempt")
        stager.append(batch)
        return stager.finish()
    finally:
        commit.abandon(job)


def _spark_task(table: kc.Table, broken: Broken, folder: Path) -> object:
    """The function that runs in Spark's Python workers, without Spark."""
    staging = pytest.importorskip("kudu_core.engines.spark.staging")
    batch = broken(NEW)
    columns = [(n, "int64" if n == "k" else n) for n in batch.schema.names]
    job = commit.begin(handle_of(table), "upsert", columns)
    try:
        return staging.stage(job, [batch])
    finally:
        commit.abandon(job)


DOORS: dict[str, Door] = {
    "insert": lambda t, broken, _: t.insert(broken(NEW)),
    "insert, ignored": lambda t, broken, _: t.insert(broken(OLD), on_conflict="ignore"),
    "upsert": lambda t, broken, _: t.upsert(broken(NEW)),
    "upsert of rows that are there": lambda t, broken, _: t.upsert(broken(OLD)),
    "update": lambda t, broken, _: t.update(broken(OLD)),
    "update, ignored": lambda t, broken, _: t.update(broken(NEW), on_missing="ignore"),
    "apply": lambda t, broken, _: t.apply(broken(NEW, op="insert")),
    "apply of updates": lambda t, broken, _: t.apply(broken(OLD, op="update")),
    "batch.insert": _in_batch("insert"),
    "batch.upsert": _in_batch("upsert"),
    "batch.update": _in_batch("update"),
    "merge": lambda t, broken, _: t.merge(broken(NEW)).when_not_matched_insert().execute(),
    "merge of rows that are there": lambda t, broken, _: t.merge(broken(OLD)).when_matched().execute(),
    "merge that leaves the column": lambda t, broken, _: t.merge(broken(OLD)).when_matched_delete().execute(),
    "insert, if": lambda t, broken, _: t.insert(broken(NEW), if_=kc.new("k") > 0),
    "upsert, if": lambda t, broken, _: t.upsert(broken(OLD), if_=kc.old("k") >= 0),
    "update, set": lambda t, broken, _: t.update(broken(OLD), set={"int64": kc.old("k")}),
    "errors returned": lambda t, broken, _: t.upsert(broken(NEW), on_error="return"),
    "with a token": lambda t, broken, _: t.upsert(broken(NEW), txn=("app", 1)),
    "bulk": _bulk,
    "spilled": _spilled,
    "staged": _staged,
    "spark task": _spark_task,
}
OPTIONS_OF = {"bulk": {"ingest_threshold_rows": 1}, "spilled": {"ingest_threshold_rows": 1}}


def state(table: kc.Table) -> tuple[Any, ...]:
    rows = table.scan(order="key").to_table()
    return (
        rows,
        table.count(),
        applied_writes_of(table),
        sorted(p.name for p in Path(table.path, "staging").glob("*")),
    )


def refused(table: kc.Table, door: Door, case: Hostile, form: Form, folder: Path) -> None:
    """One array at one door."""
    before, timestamp = state(table), table.timestamp
    array, spoil = case.make()
    with pytest.raises(kc.InvalidArgument) as caught:
        door(table, lambda keys, **more: form(keys, case.column, array, spoil, **more), folder)
    assert f"column {case.column!r}" in str(caught.value), (case, caught.value)
    assert "\n" not in str(caught.value)
    assert state(table) == before, case
    assert table.timestamp == timestamp, "a record was written"


def written_and_opened_again(table: kc.Table, number: int) -> kc.Table:
    """The next write works, and both ways of opening find it."""
    table.upsert([{"k": 1000, "int64": number}])
    expected = table.scan(order="key").to_table()
    expected.validate(full=True)
    path = table.path
    table.close()
    with kc.open_table(path) as reader:
        assert reader.scan(order="key").to_table().equals(expected)
    table = kc.open_table(path, "rw")
    assert table.scan(order="key").to_table().equals(expected)
    assert table.get(1000)["int64"] == number  # type: ignore[index]
    return table
