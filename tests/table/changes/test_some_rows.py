"""Rows that lie close together are read without those between, and are what the whole range has there."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.disk.diskrowset import DiskRowsAt
from tests.support.inside import tablet_of
from tests.support.tables import Make

ROWS = 3000
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("n", pa.int32()),
        ("text", pa.string()),
        ("word", pa.string()),
        ("flag", pa.bool_()),
        ("changed", pa.int64()),
        ("label", pa.string()),
    ]
)


@pytest.fixture
def table(make: Make) -> kc.Table:
    """Nulls, texts, words of a dictionary, changes in files and in memory, and a column that came later."""
    table, r = make(SCHEMA), random.Random(3)
    table.insert(
        {
            "k": range(ROWS),
            "n": [None if k % 7 == 0 else r.randrange(1 << 20) for k in range(ROWS)],
            "text": [None if k % 11 == 0 else "x" * r.randrange(40) + str(k) for k in range(ROWS)],
            "word": [r.choice(["red", "green", "blue"]) for _ in range(ROWS)],
            "flag": [None if k % 13 == 0 else bool(k % 2) for k in range(ROWS)],
            "changed": range(ROWS),
            "label": [str(k) for k in range(ROWS)],
        }
    )
    table.flush()
    table.update({"k": range(0, ROWS, 5), "changed": range(0, -ROWS, -5), "label": ["y"] * (ROWS // 5)})
    table.flush()
    table.update({"k": range(0, ROWS, 9), "changed": [None] * len(range(0, ROWS, 9))})
    table.alter(add=[kc.Column("late", pa.int64(), default=7)])
    return table


def test_some_rows_are_those_of_the_range(table: kc.Table) -> None:
    tablet, rng = tablet_of(table), np.random.default_rng(4)
    [rowset] = tablet.view.rowsets
    columns = tablet.context.schema().columns
    for snapshot in (table.timestamp, 2**64 - 1):
        state = rowset.opened_at(snapshot, [column.id for column in columns])
        assert isinstance(state, DiskRowsAt)
        for count in (1, 2, 50, 1500, ROWS - 1, ROWS):
            rows = np.sort(rng.choice(ROWS, count, replace=False)).astype(np.int64)
            found = state.columns_of(columns, rows)
            assert found.keys() == {column.id for column in columns}
            for column in columns:
                whole = state.column(column, 0, ROWS).take(rows).to_arrow(column.type)
                assert found[column.id].to_arrow(column.type).equals(whole), (column.name, count)


def test_net_changes_read_no_row_between(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns that nobody changed are not taken from a range, which would copy them once more."""
    since = table.timestamp
    keys = [k for k in range(ROWS) if k % 3]
    until = table.update({"k": keys, "changed": [-7] * len(keys)}).timestamp
    rows = table.changes(since, until, net=True).to_table()
    assert rows["k"].to_pylist() == keys and set(rows["changed"].to_pylist()) == {-7}
    wanted = table.scan(["k", "n", "text", "word", "flag"], order="key").to_table()
    assert rows.select(wanted.column_names).to_pydict() == wanted.take(pa.array(keys)).to_pydict()
    asked: list[int] = []
    usual = DiskRowsAt.columns_of

    def counted(state: DiskRowsAt, columns: Any, some: Any) -> Any:
        asked.append(len(some))
        return usual(state, columns, some)

    monkeypatch.setattr(DiskRowsAt, "columns_of", counted)
    table.changes(since, until, net=True).to_table()
    assert len(keys) in asked
