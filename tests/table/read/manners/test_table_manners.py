"""A table as Python, notebooks and other packages meet it: length, membership, head, Arrow's stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.inside import picture_of
from tests.support.tables import Make

COLUMNS = [kc.Column("k", "int64"), kc.Column("<b>", "string", default="<script>")]
ROWS = [{"k": k, "<b>": f"v{k}"} for k in range(10)]


@pytest.fixture
def table(make: Make) -> kc.Table:
    made = make(COLUMNS, "k", partition_by=[kc.HashPartition("k", 3)])
    made.insert(ROWS)
    return made


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["k"])


def test_length_and_truth(table: kc.Table, make: Make, path: Any) -> None:
    assert len(table) == 10
    table.delete([3, 4])
    assert len(table) == 8
    empty = make(COLUMNS, "k", at=path.with_name("empty"))
    assert len(empty) == 0 and bool(empty), "a table without rows is a table"


def test_membership(table: kc.Table) -> None:
    assert 5 in table and (5,) in table and {"k": 5} in table and np.int64(5) in table
    assert 50 not in table
    table.delete(5)
    assert 5 not in table
    with pytest.raises(kc.InvalidArgument, match="'k'"):
        "five" in table  # noqa: B015


def test_membership_of_several_key_columns(make: Make) -> None:
    pairs = make([kc.Column("a", "int64"), kc.Column("b", "string")], ["a", "b"])
    pairs.insert([{"a": 1, "b": "x"}])
    assert (1, "x") in pairs and (1, "y") not in pairs and {"b": "x", "a": 1} in pairs


def test_head(table: kc.Table) -> None:
    assert table.head().num_rows == 5 and table.head(3).num_rows == 3 and table.head(99).num_rows == 10
    assert table.head(0).num_rows == 0 and table.head(0).schema == table.schema
    assert all(row in ROWS for row in table.head().to_pylist())
    assert table.head(2, ["<b>"]).column_names == ["<b>"]
    with pytest.raises(kc.InvalidArgument):
        table.head(-1)


def test_head_reads_no_more_than_it_needs(make: Make) -> None:
    """By the pages that are asked for, not by the clock."""
    table = make([kc.Column("k", "int64"), kc.Column("v", "int64")], "k")
    table.insert(pa.table({"k": range(300_000), "v": range(300_000)}))
    table.flush()
    before = table.metrics()["page_cache_misses"]
    assert table.head().num_rows == 5
    few = table.metrics()["page_cache_misses"] - before
    assert len(table.to_table()) == 300_000
    assert table.metrics()["page_cache_misses"] - before > 4 * max(few, 1)


EVERYTHING: dict[str, Callable[[Any], list[dict[str, Any]]]] = {
    "to_table": lambda t: t.to_table().to_pylist(),
    "to_pandas": lambda t: t.to_pandas().to_dict("records"),
    "to_polars": lambda t: t.to_polars().to_dicts(),
    "pyarrow": lambda t: pa.table(t).to_pylist(),
    "a reader": lambda t: pa.RecordBatchReader.from_stream(t).read_all().to_pylist(),
    "Polars": lambda t: pl.DataFrame(t).to_dicts(),
    "a series of Polars": lambda t: pl.from_arrow(t).to_list(),  # type: ignore[union-attr]
    "DuckDB": lambda t: duckdb.sql("SELECT * FROM t").to_arrow_table().to_pylist(),
}


@pytest.mark.parametrize("door", EVERYTHING)
def test_everything_of_it(table: kc.Table, door: str) -> None:
    assert by_key(EVERYTHING[door](table)) == ROWS
    assert by_key(EVERYTHING[door](table)) == ROWS, "again"
    table.update({"k": [0], "<b>": ["new"]})
    assert by_key(EVERYTHING[door](table))[0]["<b>"] == "new", "as it is now"


def test_its_schema_travels(table: kc.Table) -> None:
    assert pa.schema(table) == table.schema
    wanted = pa.schema([("k", pa.int32()), ("<b>", pa.large_string())])
    assert pa.table(table, schema=wanted).schema.types == wanted.types


def test_rows_go_from_table_to_table(table: kc.Table, make: Make, path: Any) -> None:
    other = make(COLUMNS, "k", at=path.with_name("other"))
    assert other.insert(table).inserted == 10 and by_key(other.to_table().to_pylist()) == ROWS


def test_what_would_be_wrong_is_told(table: kc.Table) -> None:
    """pandas makes a row of each batch and a column of each cell, and numpy has one type for all columns."""
    for given in (table, table.scan(), table.changes(since=0)):
        for make in (pd.DataFrame, np.asarray):
            with pytest.raises(kc.InvalidArgument, match=r"is no array: to_pandas\(\) makes a frame of it"):
                make(given)
    for walk in (list, iter, pd.Series):
        with pytest.raises(kc.InvalidArgument, match=r"table\.scan\(\)|to_pandas"):
            walk(table)
    assert sum(batch.num_rows for batch in table.scan()) == 10


def test_pictures_of_it(table: kc.Table) -> None:
    assert table.path in repr(table) and "mode='rw'" in repr(table)
    assert repr(table.partitions) == "<PartitionSchema hash(k) into 3>"
    scan = table.scan(["k"], [("k", ">", 3)], key_range=(2, 7), order="key", limit=3)
    assert repr(scan).startswith(f"<kudu_core.Scan: table {table.path}; at {scan.timestamp} (20")
    assert repr(scan).endswith("; columns k; where (k > 3); keys [(4), (7)); order key; limit 3>")
    assert repr(table.scan()).endswith("; columns k, <b>>")
    with table.snapshot() as now:
        assert repr(now).startswith(f"<kudu_core.Snapshot {now.timestamp} (20") and table.path in repr(now)
        assert "closed" not in repr(now)
    assert repr(now).endswith(", closed>")


def test_pictures_of_ranges(make: Make) -> None:
    ranges = kc.RangePartition("k", [(0, 10), (10, None)])
    table = make(COLUMNS, "k", partition_by=[ranges])
    assert repr(table.partitions) == "<PartitionSchema range(k) of 2>"
    table.alter(drop_range=(0, 10))
    assert repr(table.partitions) == "<PartitionSchema range(k) of 1>"


def test_pictures_for_notebooks_are_escaped_and_small(table: kc.Table) -> None:
    long = table.scan(where=[("k", "in", list(range(5000)))])
    result = table.upsert([{"k": 1}])
    shown = [picture_of(table), picture_of(long), picture_of(long.explain()), picture_of(result)]
    for html in shown:
        assert html.startswith("<p><b>") and html.endswith("</table>")
        assert len(html) < 2500 and "<b>k" not in html and "<script>" not in html
    assert "<td>&lt;b&gt;</td><td>string</td>" in shown[0] and "&lt;script&gt;" in shown[0]
    assert "<td>k</td><td>int64</td><td>1</td><td>no</td>" in shown[0]
    assert "<td>columns</td><td>k, &lt;b&gt;</td>" in shown[1]
    assert "<td>rowsets</td><td>3 of 3 read</td>" in shown[2]
    assert "<tr><td>0</td><td>1</td><td>0</td><td>0</td><td>0</td></tr>" in shown[3]
    assert "Changes" in picture_of(table.changes(since=0))


def test_pictures_read_no_rows_and_outlive_the_handle(table: kc.Table) -> None:
    scan = table.scan()
    table.close()
    for thing in (table, scan):
        assert table.path in repr(thing) and table.path in picture_of(thing)
    for read in (len, lambda t: 5 in t, lambda t: t.head(), pa.table):
        with pytest.raises(kc.Closed):
            read(table)  # type: ignore[operator]


def test_a_wide_table_has_a_small_picture(make: Make) -> None:
    wide = make([kc.Column(f"c{n}", "int64") for n in range(300)], ["c0"])
    html = picture_of(wide)
    assert html.count("<tr>") == 102 and "<td>c99</td>" in html and "c100" not in html
