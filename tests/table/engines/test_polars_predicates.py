"""What of Polars' predicates is handed down is true, false and NULL of the same rows as to Polars."""

from __future__ import annotations

import datetime as dt
import math
import os
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from polars.io.plugins import register_io_source

import kudu_core as kc
from kudu_core.engines.arrow.polars_predicates import translated
from tests.support.inside import schema_of

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
C = pl.col
UTC = dt.UTC
WORDS = ["", "a", "ab", "abc", "b", "\u00e4", "\u00e4b", "z\U0001f600", "zz", "\uffff"]
FLOATS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, 0.1, -7.25, 5e-324, 1e300]
# Of each type, the values that its cells and its constants are drawn from.
DRAWN: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 1, 5, 127]),
    "i64": (pa.int64(), [-(2**63), -(2**53) - 1, -1, 0, 1, 2**53 + 1, 2**63 - 1]),
    "u32": (pa.uint32(), [0, 1, 7, 2**31, 2**32 - 1]),
    "u64": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "f32": (pa.float32(), [x for x in FLOATS if x not in (5e-324, 1e300)]),
    "f64": (pa.float64(), FLOATS),
    "flag": (pa.bool_(), [True, False]),
    "s": (pa.string(), WORDS),
    "raw": (pa.binary(), [word.encode() for word in WORDS] + [b"\x00", b"\xff\xff"]),
    "day": (pa.date32(), [dt.date(*day) for day in ((1, 1, 1), (1969, 12, 31), (2026, 1, 1), (9999, 1, 1))]),
    "at": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, d, 1, 2, 3, d, UTC) for d in range(1, 6)]),
    "local": (pa.timestamp("us"), [dt.datetime(2026, 1, d, 1, 2, 3, d) for d in range(1, 6)]),
    "price": (pa.decimal128(12, 2), [Decimal(x) for x in ("-9.99", "0", "0.01", "1.50", "9999999999.99")]),
}  # fmt: skip
SCHEMA = pa.schema([pa.field("k", pa.int64(), False), *((name, type_) for name, (type_, _) in DRAWN.items())])
ROWS = 400


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kc.Table]:
    draw = random.Random(5)
    path: Path = tmp_path_factory.mktemp("predicates") / "t"
    columns = {name: [draw.choice([None, *cells]) for _ in range(ROWS)] for name, (_, cells) in DRAWN.items()}
    data = pa.table({"k": range(ROWS), **columns}, schema=SCHEMA)
    with kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual"}) as table:
        table.insert(data.slice(0, 300))
        table.flush()
        table.upsert(data.slice(250))
    with kc.open_table(path) as reader:
        yield reader


def polars_of(table: kc.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table.scan(order="key").to_table())
    assert isinstance(frame, pl.DataFrame)
    return frame


def as_asked(predicate: pl.Expr, schema: pl.Schema) -> pl.Expr | None:
    """The predicate as Polars hands it to a source, None where it hands none."""
    asked: list[pl.Expr | None] = []

    def source(_columns: Any, given: pl.Expr | None, _rows: Any, _size: Any) -> Iterator[pl.DataFrame]:
        asked.append(given)
        yield schema.to_frame()

    register_io_source(source, schema=schema).filter(predicate).collect()
    return asked[0] if asked else None


def leaf(draw: random.Random) -> pl.Expr:
    """A condition on one column that is handed down, of a constant of the column's type."""
    name = draw.choice(list(DRAWN))
    type_, cells = DRAWN[name]
    column = C(name)
    value = draw.choice([x for x in cells if x == x and x not in (math.inf, -math.inf)])
    lowest, highest = pl.lit(min(cells[-1], value)), pl.lit(max(cells[-1], value))
    constant = pl.lit(value, pl.Decimal(12, 2)) if name == "price" and draw.random() < 0.5 else pl.lit(value)
    kinds: list[Callable[[], pl.Expr]] = [column.is_null, column.is_not_null]
    if name == "flag":
        kinds = [*kinds, lambda: column, lambda: ~column]
    else:
        compare: list[Callable[[], pl.Expr]] = [
            lambda: column == constant, lambda: column != constant, lambda: column < constant,
            lambda: column <= constant, lambda: column > constant, lambda: column >= constant,
            lambda: column.eq_missing(constant), lambda: column.ne_missing(constant),
            lambda: constant < column, lambda: constant >= column,
            lambda: column.is_between(lowest, highest, draw.choice(["both", "left", "right", "none"])),
        ]  # fmt: skip
        kinds += compare
    if pa.types.is_floating(type_):
        kinds += [column.is_nan, column.is_not_nan]
    elif name != "flag":
        listed = draw.sample(cells, draw.randrange(len(cells)))
        if name == "price":
            kinds.append(lambda: column.is_in(pl.Series(listed, dtype=pl.Decimal(12, 2)).implode()))
            kinds.append(lambda: column.is_in([value, Decimal("1.5")]))
        else:
            dtype = pl.Series(pa.array([], type_)).dtype
            given = pl.Series([*listed, *draw.choice([[], [None]])], dtype=dtype).implode()
            kinds.append(lambda: column.is_in(given))
    if name == "s":
        kinds.append(lambda: column.str.starts_with(draw.choice(["", "a", "ab", "\u00e4", "z"])))
    return draw.choice(kinds)()


def left_to_polars(draw: random.Random) -> pl.Expr:
    return draw.choice(
        [
            C("f64") == pl.lit(math.nan), C("f64") > -math.inf, C("flag") ^ C("flag"),
            C("i64").cast(pl.Float64) > 0.5, C("s").str.ends_with("b"), C("s") == C("s").str.to_uppercase(),
            C("i8") + 1 > C("u32"), C("f64").is_in([0.0, 1.5]),
            C("price").cast(pl.Decimal(5, 2), strict=False) > Decimal(1), C("price") < Decimal("0.123"),
            C("price").cast(pl.Decimal(15, 1)) == Decimal(0),
            C("i64").is_in([1, None], nulls_equal=True), C("i8") * 2 == 2,
            C("price") > 0.5, C("day") < dt.datetime(2026, 1, 1), C("f32").is_infinite(),
        ]
    )  # fmt: skip


def tree(draw: random.Random, leaves: Callable[[random.Random], pl.Expr], depth: int) -> pl.Expr:
    if depth == 0 or draw.random() < 0.2:
        return leaves(draw)
    kind = draw.choice("&|~")
    if kind == "~":
        return ~tree(draw, leaves, depth - 1)
    left, right = tree(draw, leaves, depth - 1), tree(draw, leaves, depth - 1)
    return left & right if kind == "&" else left | right


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 4))
def test_handed_down_means_the_same(reader: kc.Table, seed: int) -> None:
    """Compared as three values, and by pyarrow, so that nothing depends on how ours evaluates them."""
    draw = random.Random(seed)
    own, arrow = polars_of(reader), ds.InMemoryDataset(reader.scan(order="key").to_table())
    for number in range(150):
        given = as_asked(tree(draw, leaf, draw.randrange(4)), own.schema)
        if given is None:
            continue
        where, whole = translated(given, schema_of(reader), own.schema)
        if not whole and where is None and "when" in str(given):
            continue  # Polars has made of a condition that is always true a choice that is none of ours
        assert where is not None and whole, f"seed {seed}, {number}: {given}"
        wanted = own.select(given.alias("is"))["is"].to_list()
        found = arrow.to_table({"is": where})["is"].to_pylist()
        assert found == wanted, f"seed {seed}, {number}: {given} as {where}"


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 4))
def test_any_predicate(reader: kc.Table, seed: int) -> None:
    """Also of those of which Polars applies a part, or all."""
    draw = random.Random(seed)
    own = polars_of(reader)

    def any_leaf(draw: random.Random) -> pl.Expr:
        return draw.choice([leaf, leaf, left_to_polars])(draw)

    for number in range(100):
        predicate = tree(draw, any_leaf, draw.randrange(4))
        names = draw.sample(own.columns, draw.randrange(1, 5))
        wanted = own.filter(predicate)
        found = reader.lazy().filter(predicate).select([*names, C("k").alias("key")]).collect().sort("key")
        assert found.select(names).equals(wanted.select(names)), f"seed {seed}, {number}: {predicate}"
        some = reader.lazy().filter(predicate).head(3).collect()
        assert len(some) == min(3, len(wanted)), f"seed {seed}, {number}: {predicate}"


def test_each_kind_is_left_to_polars(reader: kc.Table) -> None:
    """What this page's tests call so is not handed down: else they compare nothing."""
    schema = polars_of(reader).schema
    drawn = [left_to_polars(random.Random(seed)) for seed in range(99)]
    for predicate in {str(one): one for one in drawn}.values():
        given = as_asked(predicate, schema)
        if given is not None:
            where, whole = translated(given, schema_of(reader), schema)
            assert where is None and not whole, f"{predicate} as {given}: {where}"


def test_a_part_is_handed_down(reader: kc.Table) -> None:
    schema = polars_of(reader).schema
    given = as_asked((C("i8") > 5) & (C("i8") * 2 == 2) & (C("s") == "a"), schema)
    assert given is not None
    where, whole = translated(given, schema_of(reader), schema)
    assert where is not None and not whole
    assert where.equals((pc.field("i8") > pa.scalar(5, pa.int8())) & (pc.field("s") == "a"))
    either = as_asked((C("i8") > 5) | (C("i8") * 2 == 2), schema)
    assert either is not None and translated(either, schema_of(reader), schema) == (None, False)


def test_what_has_no_text_is_left_to_polars(reader: kc.Table) -> None:
    def serialize(format: str) -> str:
        raise pl.exceptions.ComputeError("a function of Python")

    given: Any = SimpleNamespace(meta=SimpleNamespace(serialize=serialize))
    assert translated(given, schema_of(reader), polars_of(reader).schema) == (None, False)
