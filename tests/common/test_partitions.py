"""Which tablet a key belongs to, and which tablets a predicate needs."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kudu_core.common.partition.declared import HashPartition, RangePartition
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.partition.spark_hash import xxhash64
from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.keys import encode_keys, encode_prefix
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.predicates import compile_where
from kudu_core.errors import InvalidArgument

GOLDEN = json.loads((Path(__file__).parent / "golden" / "spark_xxhash64.json").read_text())["cases"]
SCHEMA = declare(
    [Column("v", "float64"), Column("host", "string"), Column("day", "int32"), Column("n", "int64")],
    ["host", "day", "n"],
)


def _array(type_: ColumnType, cells: list[Any]) -> pa.Array:
    if type_.name == "binary":
        cells = [bytes.fromhex(cell) for cell in cells]
    elif type_.kind == 4:
        cells = [decimal.Decimal(cell) for cell in cells]
    elif type_.name == "uint64":
        cells = [int(cell) for cell in cells]
    return pa.array(cells, type_.arrow)


def _block(schema: Schema, arrays: list[pa.Array]) -> RowBlock:
    return conform(schema, pa.RecordBatch.from_arrays(arrays, names=list(schema.key_names))).block


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: ",".join(case["types"]))
def test_hashes_and_buckets_are_those_of_spark(case: dict[str, Any]) -> None:
    types = [ColumnType.parse(name) for name in case["types"]]
    schema = declare([Column(f"c{i}", t) for i, t in enumerate(types)], [f"c{i}" for i in range(len(types))])
    arrays = [_array(t, [row[0][i] for row in case["rows"]]) for i, t in enumerate(types)]
    block = _block(schema, arrays)
    columns = [(c.type, block.columns[c.id]) for c in schema.key_columns]
    found = xxhash64(columns, block.rows, 42).view(np.int64)
    assert found.tolist() == [int(row[1]) for row in case["rows"]]
    partitions = PartitionSchema.make(schema, HashPartition(schema.key_names, 7))
    assert partitions.route(block).tolist() == [row[2] for row in case["rows"]]


def _keys(*keys: tuple[str, int, int]) -> RowBlock:
    hosts, days, numbers = ([key[i] for key in keys] for i in range(3))
    return _block(
        SCHEMA, [pa.array(hosts, pa.string()), pa.array(days, pa.int32()), pa.array(numbers, pa.int64())]
    )


def test_without_partitions_there_is_one_tablet() -> None:
    partitions = PartitionSchema.make(SCHEMA)
    assert len(partitions.partitions) == 1
    assert partitions.route(_keys(("a", 1, 1), ("b", 2, 2))).tolist() == [0, 0]
    assert partitions.describe(partitions.partitions[0]) == "all rows"
    assert partitions.prune() == [0]
    assert partitions.prune(_terms(pc.field("host") == "a")) == [0]


def test_ranges_may_have_gaps_and_open_ends() -> None:
    partitions = PartitionSchema.make(SCHEMA, RangePartition("day", [(20, 30), (None, 10), (30, None)]))
    days = [-(2**31), 9, 10, 19, 20, 29, 30, 2**31 - 1]
    assert partitions.route(_keys(*(("h", day, 1) for day in days))).tolist() == [0, 0, -1, -1, 1, 1, 2, 2]
    assert [partitions.bounds(p) for p in partitions.partitions] == [
        (None, (10,)),
        ((20,), (30,)),
        ((30,), None),
    ]
    assert partitions.describe(partitions.partitions[1]) == "range(day) = [(20), (30))"


def test_a_bound_may_be_a_prefix_of_the_range_columns() -> None:
    partitions = PartitionSchema.make(
        SCHEMA, RangePartition(["host", "day"], [(None, ("b", 5)), (("b", 5), "c"), ("c", None)])
    )
    keys = [("a", 9, 0), ("b", 4, 0), ("b", 5, 0), ("b\0", 0, 0), ("c", -9, 0)]
    assert partitions.route(_keys(*keys)).tolist() == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("partition_by", "named"),
    [
        (HashPartition("v", 4), "'v'"),
        (HashPartition("zz", 4), "'zz'"),
        (HashPartition("host", 1), "buckets"),
        (HashPartition("host", 4097), "buckets"),
        (HashPartition("host", 2.5), "buckets"),  # type: ignore[arg-type]
        (HashPartition("host", 4, seed=-1), "seed"),
        (HashPartition([], 4), "column"),
        (HashPartition(["host", "host"], 4), "'host'"),
        ([HashPartition("host", 4), HashPartition(["day", "host"], 4)], "'host'"),
        ([HashPartition("host", 4096), HashPartition("day", 4096)], "partitions"),
        ([RangePartition("day", [(0, 1)]), RangePartition("n", [(0, 1)])], "at most one range"),
        (RangePartition("v", [(0, 1)]), "'v'"),
        (RangePartition("day", []), "range"),
        (RangePartition("day", [(5, 5)]), "empty"),
        (RangePartition("day", [(6, 5)]), "empty"),
        (RangePartition("host", [(None, "")]), "empty"),
        (RangePartition("day", [(0, 5), (4, 6)]), "overlaps"),
        (RangePartition("day", [(None, None), (4, 6)]), "overlaps"),
        (RangePartition("day", [("a", "b")]), "day"),
        (RangePartition("day", [5]), "lower, upper"),  # type: ignore[list-item]
        (RangePartition("day", [((1, 2), None)]), "day"),
        ("hash(host)", "HashPartition"),
    ],
)
def test_a_declaration_that_cannot_be_says_why(partition_by: object, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        PartitionSchema.make(SCHEMA, partition_by)


BOTH = PartitionSchema.make(
    SCHEMA,
    [
        HashPartition("host", 4),
        HashPartition(["n"], 3, seed=7),
        RangePartition("day", [(None, 10), (10, 20), (30, None)]),
    ],
)


def test_a_schema_survives_json() -> None:
    stored = json.loads(json.dumps(BOTH.to_json()))
    assert PartitionSchema.from_json(stored, SCHEMA) == BOTH
    for damage in ({"hash": [{"columns": [1], "buckets": 2, "seed": 1}]}, {"ranges": []}, {"range": [99]}):
        with pytest.raises((ValueError, KeyError, TypeError)):
            PartitionSchema.from_json({**stored, **damage}, SCHEMA)


def test_partitions_are_numbered_and_described() -> None:
    assert [p.ordinal for p in BOTH.partitions] == list(range(36))
    assert (
        BOTH.describe(BOTH.partitions[35])
        == "hash(host) = 3 of 4, hash(n) = 2 of 3, range(day) = [(30), open)"
    )


def test_ordinals_stay_when_ranges_come_and_go() -> None:
    keys = _keys(("a", 5, 1), ("a", 15, 1), ("a", 25, 1), ("a", 35, 1))
    before = BOTH.route(keys).tolist()
    more = BOTH.altered(SCHEMA, add=[(20, 30)])
    assert len(more.partitions) == 48
    assert more.partitions[:36] == BOTH.partitions
    after = more.route(keys).tolist()
    assert after[:2] == before[:2]
    assert after[3] == before[3]
    assert after[2] >= 36
    less = more.altered(SCHEMA, drop=[(None, 10)])
    assert less.route(keys).tolist() == [-1, *after[1:]]
    assert less.partitions[0].dropped
    assert set(less.prune()) == set(range(12, 48))
    assert set(less.prune(dropped=True)) == set(range(48))
    again = less.altered(SCHEMA, add=[(None, 10)])
    assert again.route(keys)[0] >= 48
    assert PartitionSchema.from_json(again.to_json(), SCHEMA) == again
    with pytest.raises(InvalidArgument, match="no range"):
        less.altered(SCHEMA, drop=[(None, 10)])
    with pytest.raises(InvalidArgument, match="overlaps"):
        more.altered(SCHEMA, add=[(29, 31)])
    one = PartitionSchema.make(SCHEMA, RangePartition("day", [(0, 1)]))
    with pytest.raises(InvalidArgument, match="at least one"):
        one.altered(SCHEMA, drop=[(0, 1)])


# ------------------------------------------------------------------------------------- pruning


def _terms(where: Any) -> tuple[Any, ...]:
    compiled = compile_where(where, SCHEMA)
    assert compiled is not None
    return compiled.terms


F = pc.field
COUNTS = [
    ((F("host") == "a") & (F("n") == 5) & (F("day") == 12), 1),
    ((F("host") == "a") & (F("day") == 12), 3),
    ((F("host") == "a"), 9),
    ((F("day") >= 20), 12),
    ((F("day") == 25), 0),
    ((F("day") < 5) | (F("day") > 35), 36),
    ((F("host") == "a") & F("host").isin(["a", "b"]), 9),
    ((F("host") == "a") & (F("day") > 2**31 - 1), 0),
    (F("v") > 5, 36),
    (F("host").isin(pa.array([], pa.string())), 0),
    (F("n").isin(list(range(100_000))), 36),
]


@pytest.mark.parametrize(("where", "count"), COUNTS, ids=lambda v: str(v)[:40])
def test_a_predicate_leaves_so_many_partitions(where: pc.Expression, count: int) -> None:
    assert len(BOTH.prune(_terms(where))) == count


def test_key_ranges_prune_too() -> None:
    by_key = PartitionSchema.make(
        SCHEMA,
        [HashPartition("host", 8), RangePartition(["host", "day"], [(None, ("m", 5)), (("m", 5), None)])],
    )

    def bounds(lower: Any, upper: Any) -> list[int]:
        encoded = tuple(None if b is None else encode_prefix(SCHEMA, b) for b in (lower, upper))
        return by_key.prune((), *encoded)

    assert len(bounds(None, None)) == 16
    assert len(bounds("n", None)) == 8
    assert len(bounds(None, "a")) == 8
    assert len(bounds(("m", 5, 1), None)) == 8
    assert len(bounds(None, ("m", 5))) == 8
    assert len(bounds(None, ("m", 5, 0))) == 16
    # All keys of one host: one bucket, and here both sides of the cut.
    assert len(bounds("m", "m\0")) == 2
    assert len(bounds(("q", 1), ("q", 7))) == 1
    assert bounds("b", "a") == []


HOSTS, DAYS, NUMBERS = st.sampled_from("abcd"), st.integers(0, 40), st.integers(0, 6)
KEY = st.tuples(HOSTS, DAYS, NUMBERS)


def test_key_ranges_prune_a_range_of_a_later_column() -> None:
    by_day = PartitionSchema.make(
        SCHEMA, [HashPartition("host", 4), RangePartition("day", [(i, i + 10) for i in range(0, 40, 10)])]
    )

    def bounds(lower: Any, upper: Any) -> list[int]:
        encoded = tuple(None if b is None else encode_prefix(SCHEMA, b) for b in (lower, upper))
        return by_day.prune((), *encoded)

    assert len(bounds(("a", 12), ("a", 18))) == 1
    assert len(bounds(("a", 12), ("a", 20))) == 1, "up to the end of a range"
    assert len(bounds(("a", 12), ("a", 20, 1))) == 2
    assert len(bounds(("a", 12), ("a\0",))) == 3, "the rest of a host"
    assert len(bounds(("a",), ("a", 20))) == 2
    assert len(bounds(("a", 12), ("b", 1))) == 16, "two hosts: any day"
    assert len(bounds(("a", 12, 3), ("a", 12, 4))) == 1


COMPARISONS = ["__eq__", "__lt__", "__le__", "__gt__", "__ge__"]


def _leaf(name: str, cells: st.SearchStrategy[Any]) -> st.SearchStrategy[pc.Expression]:
    compared = st.builds(lambda op, v: getattr(F(name), op)(v), st.sampled_from(COMPARISONS), cells)
    type_ = SCHEMA.by_name[name].type.arrow
    return compared | st.lists(cells, max_size=3).map(lambda v: F(name).isin(pa.array(v, type_)))


WHERE = st.recursive(
    st.one_of(_leaf("host", HOSTS), _leaf("day", DAYS), _leaf("n", NUMBERS)),
    lambda inner: st.tuples(inner, inner, st.booleans()).map(lambda t: t[0] & t[1] if t[2] else t[0] | t[1]),
    max_leaves=5,
)
EVERY = list(itertools.product("abcd", range(0, 41, 4), range(7)))
EVERY_BATCH = pa.table(
    {
        "host": [key[0] for key in EVERY],
        "day": pa.array([key[1] for key in EVERY], pa.int32()),
        "n": [key[2] for key in EVERY],
    }
)


@settings(max_examples=150, deadline=None)
@given(WHERE)
def test_no_partition_with_a_match_is_pruned(where: pc.Expression) -> None:
    compiled = compile_where(where, SCHEMA)
    assert compiled is not None
    kept = BOTH.prune(compiled.terms)
    mask = compiled.mask(EVERY_BATCH.to_batches()[0])
    routes = BOTH.route(_keys(*EVERY))
    needed = set(routes[mask].tolist()) - {-1}
    assert needed <= set(kept), where


@settings(max_examples=200, deadline=None)
@given(KEY, KEY, st.integers(1, 3), st.integers(1, 3))
def test_no_partition_with_a_key_between_is_pruned(one: Any, other: Any, first: int, second: int) -> None:
    keys = sorted((one, other))
    lower, upper = (encode_prefix(SCHEMA, k[:n]) for k, n in zip(keys, (first, second), strict=True))
    kept = set(BOTH.prune((), lower, upper))
    block = _keys(*EVERY)
    inside = [lower <= key < upper for key in encode_keys(SCHEMA, block)]
    assert set(BOTH.route(block)[inside].tolist()) - {-1} <= kept


def test_dates_and_times_partition() -> None:
    schema = declare([Column("t", "timestamp[us,UTC]"), Column("d", "date32")], ["t", "d"])
    days = [dt.datetime(2024, 1, d, tzinfo=dt.UTC) for d in (1, 2, 3)]
    partitions = PartitionSchema.make(schema, RangePartition("t", list(itertools.pairwise(days))))
    block = _block(schema, [pa.array(days, pa.timestamp("us", "UTC")), pa.array([dt.date(2024, 1, 1)] * 3)])
    assert partitions.route(block).tolist() == [0, 1, -1]
    assert partitions.bounds(partitions.partitions[0]) == ((days[0],), (days[1],))
