"""Calls of a batch that were put into the form of a schema which was altered before the commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.string())])


@pytest.mark.parametrize("operation", ["insert", "upsert", "update"])
def test_what_a_call_says_of_other_columns_stands(tmp_path: Path, operation: str) -> None:
    expected = [{"k": 1, "a": 10}, {"k": 2, "a": 20}, {"k": 3, "a": 30}]
    with kc.create_table(tmp_path / "t", SCHEMA, ["k"]) as table:
        if operation != "insert":
            table.upsert([{"k": 1, "a": 1, "b": "one"}, {"k": 2, "a": 2, "b": "two"}])
        with table.batch() as batch:
            getattr(batch, operation)([{"k": 1, "a": 10, "b": "ten"}, {"k": 2, "a": 20, "b": "twenty"}])
            batch.upsert([{"k": 3, "a": 30, "b": "thirty"}])
            table.alter(drop=["b"])
        assert table.scan(order="key").to_pylist() == expected
    with kc.open_table(tmp_path / "t") as table:
        assert table.scan(order="key").to_pylist() == expected
