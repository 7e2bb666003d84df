"""``scan.min_max``: what pyarrow says of the same rows, and no page read where statistics are exact."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.inside import page_cache_of
from tests.support.tables import Make

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [-(2**31), 2**31 - 1, 0, 5]),
    "u": (pa.uint64(), [0, 2**64 - 1, 7]),
    "f": (pa.float64(), [-0.0, 1.5, float("nan"), float("inf"), -3.25]),
    "s": (pa.string(), ["", "a", "b" * 40, "b" * 41, "z\u00fc"]),
    "d": (pa.decimal128(10, 2), [decimal.Decimal("-1.50"), decimal.Decimal("99999999.99")]),
    "t": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1990, 1, 2, tzinfo=dt.UTC), dt.datetime(2030, 1, 1, tzinfo=dt.UTC)],
    ),
    "b": (pa.bool_(), [True, False]),
}


def test_it_is_what_pyarrow_says(make: Make, seed: int, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), *((name, type_) for name, (type_, _) in TYPES.items())])
    for run in range(12):
        rng = random.Random(f"{seed}-{run}")
        table = make(schema, at=tmp_path / f"t{run}")
        times = []
        for start in range(0, 90, 30):
            share = rng.choice((0.0, 0.3, 1.0))
            rows = [
                {
                    "k": k,
                    **{n: None if rng.random() < share else rng.choice(v) for n, (_, v) in TYPES.items()},
                }
                for k in range(start, start + 30)
            ]
            times.append(table.insert(rows).timestamp)
            if rng.random() < 0.7:
                table.flush()
            if rng.random() < 0.3:
                table.update([{"k": start, "i": 77, "s": "zz"}])
            if rng.random() < 0.3:
                table.delete([start + 1])
            if rng.random() < 0.3:
                table.flush()
        for at in (None, times[0], times[1]):
            for where in (None, pc.field("k") > 40):
                for name, (type_, _) in TYPES.items():
                    scan = table.scan([name], where, at=at)
                    column = scan.to_table()[name].drop_null()
                    if pa.types.is_floating(type_):
                        column = column.filter(pc.invert(pc.is_nan(column)))
                    expected = pc.min_max(column).as_py()
                    assert scan.min_max(name) == (expected["min"], expected["max"]), (name, at, where)


def test_statistics_answer_where_they_are_exact(make: Make) -> None:
    table = make()
    table.insert([{"k": k, "a": k * 3, "s": f"w{k}"} for k in range(1000)])
    table.flush()
    cache = page_cache_of(table)
    before = cache.statistics()
    assert table.scan().min_max("a") == (0, 2997)
    assert table.scan().min_max("s") == ("w0", "w999")
    after = cache.statistics()
    assert (before.hits, before.misses) == (after.hits, after.misses), "a page was asked for"
    table.delete([999])
    assert table.scan().min_max("a") == (0, 2994)
    with pytest.raises(kc.InvalidArgument, match="limit"):
        table.scan(limit=3).min_max("a")
    with pytest.raises(kc.InvalidArgument, match="nope"):
        table.scan().min_max("nope")


EXTREMES: dict[str, tuple[Any, int, int]] = {
    "int8": (pa.int8(), -(2**7), 2**7 - 1),
    "int64": (pa.int64(), -(2**63), 2**63 - 1),
    "uint8": (pa.uint8(), 0, 2**8 - 1),
    "uint64": (pa.uint64(), 0, 2**64 - 1),
    "date32": (pa.date32(), -(2**31), 2**31 - 1),
    "timestamp": (pa.timestamp("us"), -(2**63), 2**63 - 1),
    "timestamp with zone": (pa.timestamp("us", "UTC"), -(2**63), 2**63 - 1),
    "decimal": (pa.decimal128(38, 3), 1 - 10**38, 10**38 - 1),
}
HOLDS_TIMES = {"date32": pa.int32(), "timestamp": pa.int64(), "timestamp with zone": pa.int64()}


def _extremes(name: str) -> pa.Array:
    type_, low, high = EXTREMES[name]
    if name in HOLDS_TIMES:
        return pa.array([low, 7, high], HOLDS_TIMES[name]).cast(type_)
    if name == "decimal":
        exact = decimal.Context(prec=60)
        return pa.array([decimal.Decimal(v).scaleb(-type_.scale, exact) for v in (low, 7, high)], type_)
    return pa.array([low, 7, high], type_)


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("layout", ["memory", "flushed", "churned"])
def test_the_ends_of_every_type(make: Make, name: str, layout: str) -> None:
    """Also of times that Python does not have: those come as Arrow's scalars, and go back in as they are."""
    column = _extremes(name)
    table = make(pa.schema([("k", column.type), ("v", column.type)]))
    table.insert(pa.table({"k": column, "v": column}))
    if layout != "memory":
        table.flush()
    if layout == "churned":
        table.update(pa.table({"k": column, "v": column}))
    for field in ("k", "v"):
        low, high = table.scan().min_max(field)
        for got, expected in ((low, column[0]), (high, column[2])):
            if name in HOLDS_TIMES:
                assert isinstance(got, pa.Scalar)
                assert got.equals(expected)
            else:
                assert got == expected.as_py()
        assert table.scan(where=pc.field(field) == low).count() == 1
    assert table.scan(where=pc.field("k") > column[1]).min_max("v")[0] == high
    if name in HOLDS_TIMES:
        assert table.get_many(pa.table({"k": column}))["v"].combine_chunks().equals(column)
        with pytest.raises(
            kc.InvalidArgument, match=r"column 'k': .* lies outside the years 1 to 9999.*as Arrow"
        ):
            table.get(low)
        with pytest.raises(kc.InvalidArgument, match="lies outside the years 1 to 9999"):
            table.get(high, at=table.timestamp)
    else:
        assert table.get(low) == {"k": low, "v": low}


def test_a_time_that_python_has_is_one_of_pythons(make: Make) -> None:
    table = make(pa.schema([("k", pa.date32())]))
    table.insert({"k": pa.array([-(2**31), 5], pa.int32()).cast(pa.date32())})
    low, high = table.scan().min_max("k")
    assert isinstance(low, pa.Scalar)
    assert high == dt.date(1970, 1, 6)
