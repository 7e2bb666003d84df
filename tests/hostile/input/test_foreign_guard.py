"""The guard of the tests of foreign data: a new way in, or a new type, needs hostile cases."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.read.scan import Scan
from kudu_core.table.read.snapshot import Snapshot
from kudu_core.table.write.batch import Batch
from tests.hostile.input.test_foreign_buffers import KEY_DOORS
from tests.hostile.input.test_foreign_names import TEXT_DOORS
from tests.hostile.input.test_foreign_values import PREDICATE_DOORS
from tests.support.cases.foreign import HOSTILE, VALUES, spoiled
from tests.support.cases.odd import ODD
from tests.support.hostile.doors import DOORS

GUARDED = {
    "insert": ("insert", "bulk", "insert, if"),
    "upsert": ("upsert", "spilled", "upsert, if"),
    "update": ("update", "update, set", "update, if", "set by key"),
    "delete": ("delete", "delete of an array", "delete, if"),
    "merge": ("merge", "a clause", "a column of its own", "merge, by source"),
    "modify": ("modify", "what modify gives"),
    "apply": ("apply",),
    "batch": ("batch.insert", "batch.upsert", "batch.update", "get in a batch"),
    "get": ("get", "get of a tuple", "get of a dict"),
    "get_many": ("get_many", "get_many of an array"),
    "scan": ("scan", "key_range"),
    "head": ("scan",),
    "count": ("count",),
    "changes": ("changes",),
    "scan_tokens": ("scan_tokens",),
    "change_tokens": ("change_tokens",),
    "alter": ("a default", "a changed default"),
    "history_of": ("history_of",),
    "sql": ("sql", "sql of a value", "sql that writes"),
    "to_dataset": ("dataset",),
    "snapshot": ("snapshot",),
    "create_index": (),  # names alone: tests/table/read/indexed
}
"""Methods of a table that take or lead to values of somebody else's, and the doors that stand for them."""
FOREIGN = {
    "change", "data", "keys", "key", "where", "set", "key_range", "add", "columns", "op_column", "source",
    "if_", "parameters", "text",
}  # fmt: skip
"""Names of arguments that carry values, names or expressions of the caller's."""
OWN = {
    "add_range", "at", "batch_rows", "budget_s", "by", "dictionary", "drop", "drop_range", "dst",
    "full", "function", "images", "limit", "n", "net", "on", "on_conflict", "on_duplicate", "on_error",
    "name", "on_missing", "on_repeat", "options", "order", "partition_by", "path", "progress", "rename",
    "self", "sequence_by", "since", "storage_options", "target_rows", "token", "tries", "ttl", "txn",
    "until", "wait", "_requests",
}  # fmt: skip
"""Names of arguments that carry none: choices, numbers, times, paths, and what the table itself gave out."""


def _public(cls: type) -> dict[str, Any]:
    return {n: f for n, f in inspect.getmembers(cls, inspect.isfunction) if not n.startswith("_")}


@pytest.mark.parametrize("cls", [kc.Table, Batch, Snapshot, Scan], ids=lambda c: c.__name__)
def test_every_argument_is_known_to_be_foreign_or_not(cls: type) -> None:
    """An argument of a new name has to be put into one of the two sets, and with it behind a door."""
    known = FOREIGN | OWN | ({"column", "requested_schema"} if cls is Scan else set())
    for name, function in _public(cls).items():
        for argument in inspect.signature(function).parameters:
            assert argument in known, f"{cls.__name__}.{name}({argument}=): is it foreign data?"


def test_every_method_that_takes_foreign_data_has_a_door() -> None:
    doors = {*DOORS, *KEY_DOORS, *TEXT_DOORS, *PREDICATE_DOORS}
    for name, function in _public(kc.Table).items():
        if FOREIGN & set(inspect.signature(function).parameters):
            assert name in GUARDED, f"Table.{name} takes foreign data: give it a door here"
    for name, own in GUARDED.items():
        assert callable(getattr(kc.Table, name))
        assert set(own) <= doors
    calls = {n for n, f in _public(Batch).items() if {"data", "keys"} & set(inspect.signature(f).parameters)}
    known = {"insert", "upsert", "update", "delete", "apply", "get_many"}
    assert calls == known, "a call of a batch without a door"


def test_every_column_type_has_hostile_and_odd_arrays() -> None:
    from kudu_core.common.types.types import _SIMPLE

    # Arrays as they are stored; these types are given in no such array, but in one of their own.
    names = {type_.name for type_ in _SIMPLE} - {"uuid", "month_day_nano_interval", "null"}
    assert names <= {case.column for case in HOSTILE}
    assert names <= {case.column for case in ODD}
    assert any(name.startswith("decimal128") for name in VALUES)


def test_spoiling_is_behind_the_back_of_pyarrow() -> None:
    """What the cases rest on: an array that pyarrow would not make, made all the same."""
    array, spoil = spoiled(pa.int64(), [None, bytes(24)], [None, bytes(8)])
    spoil()
    with pytest.raises(pa.ArrowInvalid, match="too small"):
        array.validate()
