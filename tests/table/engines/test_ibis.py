"""ibis over the engines that take a table: what it asks of them reaches the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

import kudu_core as kc
from tests.table.engines.conftest import ROWS, SCHEMA

Read = Callable[[Callable[[kc.Table], Any]], tuple[Any, int]]


@pytest.fixture(params=["duckdb", "polars"])
def connected(request: pytest.FixtureRequest) -> Iterator[Callable[[kc.Table], Any]]:
    """The table as ibis has it."""
    ibis = pytest.importorskip("ibis", reason="ibis is not installed: not tested with it")
    if request.param == "polars":
        yield lambda table: ibis.polars.connect(tables={"t": table.lazy()}).table("t")
        return
    with duckdb.connect() as db:
        yield lambda table: ibis.duckdb.from_connection(db.register("t", table.to_dataset())).table("t")


@pytest.mark.filterwarnings("ignore")  # ibis' own, of the engines
def test_ibis(connected: Callable[[kc.Table], Any], read_by: Read) -> None:
    def found(query: Callable[[Any], Any]) -> tuple[Any, int]:
        return read_by(lambda table: query(connected(table)).to_pyarrow().to_pylist())

    rows, pages = found(lambda t: t.filter(t.k == 70_000).select("v"))
    assert rows == [{"v": 140_000}] and pages <= 2
    rows, pages = found(lambda t: t.filter(t.v.between(1_000, 1_010)).select("k").order_by("k"))
    assert [row["k"] for row in rows] == list(range(500, 506)) and pages <= 3
    rows, pages = found(lambda t: t.limit(5))
    assert len(rows) == 5 and pages <= 3 * len(SCHEMA)
    assert found(lambda t: t.aggregate(n=t.count(), v=t.v.sum()))[0] == [{"n": ROWS, "v": ROWS * (ROWS - 1)}]
