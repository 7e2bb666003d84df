"""``table.lazy()``: Polars' own answers, of what the query needs and no more."""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.inside import engine_of
from tests.support.tables import Make
from tests.table.engines.conftest import ROWS, SCHEMA

C = pl.col
Read = Callable[[Callable[[kc.Table], Any]], tuple[Any, int]]


def test_head_reads_the_first_rows_only(read_by: Read) -> None:
    found, pages = read_by(lambda t: t.lazy().head(5).collect())
    assert found.shape == (5, len(SCHEMA)) and pages <= 2 * len(SCHEMA)
    found, pages = read_by(lambda t: t.lazy().select("v").head(5).collect())
    assert found.columns == ["v"] and len(found) == 5 and pages <= 2
    found, pages = read_by(lambda t: t.lazy().filter(C("v") >= 2000).select("v").head(5).collect())
    assert found["v"].min() >= 2000 and len(found) == 5 and pages <= 4


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_head_comes_before_a_filter_on_it(reader: kc.Table, engine: Any) -> None:
    """Polars gives both to the source, in whichever order they were written."""
    first = reader.lazy().head(100).filter(C("w") >= 0)
    assert len(first.collect(engine=engine)) == 100
    none = reader.lazy().head(100).filter(C("v") < 0)
    assert len(none.collect(engine=engine)) == 0
    some = reader.lazy().head(100).filter(C("w") >= 50).select("s").collect(engine=engine)
    assert some.columns == ["s"] and len(some) == 50
    assert len(reader.lazy().filter(C("w") >= 50).head(100).collect(engine=engine)) == 100
    assert len(reader.lazy().slice(10, 20).collect(engine=engine)) == 20
    assert len(reader.lazy().head(0).collect(engine=engine)) == 0


@pytest.mark.parametrize(
    ("where", "rows", "most_pages"),
    [
        (C("k") == 70_000, 1, 2),
        (C("k").is_in([5, 7, 600_000]), 3, 4),
        (C("v").is_between(1_000, 1_010), 6, 3),
        (C("s") == "row 0070000", 1, 3),
        (C("s").str.starts_with("row 00700"), 100, 3),
        (C("d") == dt.date(1970, 1, 5), 1000, 3),
        (C("p") < Decimal("4.5"), 5, 3),
        (C("p").is_between(Decimal(7), Decimal("7.99")), 1, 3),
        ((C("k") < 5) | (C("k") == 9), 6, 2),
        (C("s").is_null(), 0, 0),
        (~(C("v") >= 10), 5, 3),
        ((C("k") < 5_000) & (C("w") + 1 == 6), 5, 2),  # of which half is Polars'
    ],
    ids=str,
)
def test_predicates_prune(read_by: Read, where: pl.Expr, rows: int, most_pages: int) -> None:
    found, pages = read_by(lambda t: t.lazy().filter(where).select("k").collect())
    assert len(found) == rows and pages <= most_pages


def test_a_join_with_few_keys(reader: kc.Table) -> None:
    keys = pl.LazyFrame({"k": [3, 70_000, -1]})
    assert keys.join(reader.lazy(), on="k").select("v").collect()["v"].sort().to_list() == [6, 140_000]


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_whole_queries(reader: kc.Table, engine: Any) -> None:
    own = pl.from_arrow(reader.scan().to_table())
    assert isinstance(own, pl.DataFrame)

    def query(frame: pl.LazyFrame) -> pl.LazyFrame:
        return frame.group_by("w").agg(C("v").sum(), C("s").max(), pl.len()).sort("w")

    assert query(reader.lazy()).collect(engine=engine).equals(query(own.lazy()).collect())
    assert reader.lazy().select(pl.len()).collect(engine=engine).item() == ROWS
    threes = reader.lazy().filter(C("w") == 3).select(pl.len())
    assert threes.collect(engine=engine).item() == ROWS // 1000 + 1
    assert reader.lazy().collect_schema() == own.schema
    twice = pl.concat([reader.lazy().filter(C("k") < 5), reader.lazy().filter(C("k") >= ROWS - 5)])
    assert twice.collect(engine=engine)["k"].sort().to_list() == [*range(5), *range(ROWS - 5, ROWS)]


def test_a_frame_is_one_snapshot(make: Make) -> None:
    table = make(history_retention_s=0)
    table.insert({"k": list(range(100)), "a": [1] * 100})
    before, then = table.lazy(), table.timestamp
    table.update({"k": list(range(100)), "a": [2] * 100})
    table.delete([0])
    table.alter(rename={"a": "b"})
    table.flush()
    table.compact(full=True)
    table.gc()
    narrow = before.filter(C("k") < 50)
    del before
    gc.collect()
    assert narrow.select("a").collect()["a"].to_list() == [1] * 50
    assert table.lazy(at=then).select(C("b").sum()).collect().item() == 100
    assert table.lazy().select(C("b").sum()).collect().item() == 2 * 99
    del narrow
    gc.collect()
    assert engine_of(table).pins.oldest is None
    frame = table.lazy()
    table.close()
    with pytest.raises(kc.Closed, match="was closed"):
        frame.collect()
    with pytest.raises(kc.Closed, match="was closed"):
        table.lazy()


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_no_rows(make: Make, engine: Any) -> None:
    table = make()
    for _ in range(2):
        assert table.lazy().filter(C("k") > 5).collect(engine=engine).shape == (0, 4)
        assert table.lazy().filter(C("k") > 5).select("s").collect(engine=engine).shape == (0, 1)
        sums = table.lazy().filter(C("k") > 5).select(C("k").sum(), pl.len())
        assert sums.collect(engine=engine).row(0) == (0, 0)
        table.upsert({"k": [1, 2]})
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="nope"):
        table.lazy().select("nope").collect()


def test_without_polars(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    monkeypatch.setitem(__import__("sys").modules, "polars.io.plugins", None)
    with pytest.raises(kc.NotSupported, match="pip install polars"):
        table.lazy()


def test_types_that_polars_has_not(make: Make, tmp_path: Path) -> None:
    """Polars panics of such arrays."""
    table = make(pa.schema([("k", pa.int64()), ("v", pa.decimal256(30, 2))]))
    table.insert({"k": [1, 2], "v": [Decimal("1.25"), None]})
    assert table.lazy().filter(C("v") == Decimal("1.25")).collect().rows() == [(1, Decimal("1.25"))]
    assert table.lazy().collect()["v"].to_list() == [Decimal("1.25"), None]
    interval, long = pa.month_day_nano_interval(), pa.decimal256(60, 2)
    types = (interval, long, pa.struct([("a", pa.list_(interval))]), pa.dictionary(pa.int32(), long))
    for number, type_ in enumerate(types):
        with pytest.raises(kc.NotSupported, match="no type for column 'v'"):
            make(pa.schema([("k", pa.int64()), ("v", type_)]), at=tmp_path / str(number)).lazy()
