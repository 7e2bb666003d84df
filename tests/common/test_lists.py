"""Lists of many values mean what each of their values means, and cost no step for each."""

from __future__ import annotations

import itertools
import pickle
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kudu_core.common.partition.declared import HashPartition, RangePartition
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.where import keybounds, reading
from kudu_core.common.where.predicates import Filter, compile_where
from kudu_core.common.where.sets import ValueSet
from kudu_core.common.where.spans import Spans
from kudu_core.errors import InvalidArgument
from tests.support import cells
from tests.support.cases.constants import NAMES, OTHERS, constant, drawn

SCHEMA = declare([Column("k", "int64"), *(Column(name, cells.arrow_type(name)) for name in NAMES)], "k")


def test_a_list_ends_where_it_ends() -> None:
    (column,) = (c for c in SCHEMA.columns if c.name == "k")
    many = reading.Listed.of(column.type, pa.array([5, 1, 3]))
    assert many is not None and many == (1, 3, 5) and many[-1] == 5
    for place in (3, -4):
        with pytest.raises(IndexError):
            many[place]


@contextmanager
def one_by_one(few: int) -> Iterator[None]:
    """Lists of up to so many values are read value by value."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "FEW_VALUES", few)
        yield


def compiled(where: pc.Expression, few: int) -> Filter | str | None:
    with one_by_one(few):
        try:
            return compile_where(where, SCHEMA)
        except InvalidArgument as error:
            return str(error)


def listed(rng: random.Random, name: str) -> pa.Array:
    """Values of the column's type, or all of another one; some twice, some NULL."""
    own = cells.arrow_type(name)
    if rng.random() < 0.5:
        return cells.to_arrow(rng.choices([*cells.ugly(own), None], k=rng.randrange(1, 30)), own)
    type_ = rng.choice(OTHERS)
    found = []
    while len(found) < 12:
        try:
            found.append(drawn(rng, type_) if rng.random() < 0.9 else pa.scalar(None, type_))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            continue  # the type does not take it
    return pa.array(found[: rng.randrange(1, 12)], type_)


def predicate(rng: random.Random) -> pc.Expression:
    name = rng.choice(NAMES)
    options = pc.SetLookupOptions(listed(rng, name), skip_nulls=rng.random() < 0.4)
    where = pc.Expression._call("is_in", [pc.field(name)], options)
    if rng.random() < 0.3:
        where = ~where
    if rng.random() < 0.4:
        other = pc.field(name) >= pc.scalar(constant(rng, name))
        where = where & other if rng.random() < 0.5 else where | other
    return where


def shown(found: Filter) -> list[str]:
    """The terms as ``explain`` has them; which of the zeros stands for both is left open."""
    return [str(term).replace("-0.0", "0.0") for term in found.terms]


def test_a_list_means_what_its_values_mean(seed: int, long: bool) -> None:
    terms = conditions = 0
    for case in range(20_000 if long else 500):
        rng = random.Random(seed * 100_000 + case)
        where = predicate(rng)
        few, many = compiled(where, 1 << 30), compiled(where, 0)
        if isinstance(few, str) or few is None:
            assert few == many
            continue
        assert isinstance(many, Filter)
        said = f"seed {seed}, case {case}: {where}"
        assert many.terms == few.terms, said
        assert [term.physical() for term in many.terms] == [term.physical() for term in few.terms], said
        assert [term.passing for term in many.terms] == [term.passing for term in few.terms], said
        assert shown(many) == shown(few), said
        assert many.conditions == few.conditions, said
        assert (many.rest is None) == (few.rest is None), said
        again = pickle.loads(pickle.dumps(many))
        assert (again.terms, again.conditions) == (many.terms, many.conditions), said
        terms += len(many.terms)
        conditions += len(many.conditions)
    assert terms > 50 and conditions > 50


def numbers(rng: random.Random, many: bool) -> tuple[ValueSet, set[int]]:
    """A set of numbers below 40, as intervals of either kind; the same numbers."""
    held = {number for number in range(40) if rng.random() < rng.choice((0.1, 0.5, 0.9))}
    edges = [n for n in range(41) if (n in held) != (n - 1 in held)]
    pairs = tuple(zip(edges[::2], edges[1::2], strict=True))
    return ValueSet(Spans.of(pairs) if many else pairs, rng.random() < 0.5), held


def test_spans_are_sets(seed: int) -> None:
    universe = ValueSet(((0, 40),), True)
    for case in range(400):
        rng = random.Random(seed * 1000 + case)
        (one, first), (two, second) = numbers(rng, rng.random() < 0.7), numbers(rng, True)

        def holds(found: ValueSet) -> set[int]:
            return {number for low, high in found.intervals for number in range(low, high)}

        def apart(found: ValueSet) -> bool:
            return all(a[1] < b[0] for a, b in itertools.pairwise(found.intervals))

        for found, wanted in (
            (one & two, first & second),
            (one | two, first | second),
            (two | one, first | second),
            (one.without(two), first - second),
            (two.without(one), second - first),
            (universe.without(two), set(range(40)) - second),
        ):
            assert holds(found) == wanted and apart(found), case
        assert universe.without(two).null == (not two.null)
        low, high = sorted((rng.randrange(40), rng.randrange(40)))
        assert two.meets(low, high) == bool(second & set(range(low, high + 1)))
        assert two.meets(low, None) == any(n >= low for n in second)


def test_spans_reach_both_ends_of_the_line() -> None:
    most = (1 << 64) - 1
    assert tuple(~Spans.of(())) == ((0, 1 << 64),)
    assert tuple(~Spans.of(((0, 1 << 64),))) == ()
    assert tuple(~Spans.of(((0, 5), (most, 1 << 64)))) == ((5, most),)
    assert tuple(Spans.of(((0, 1), (most, 1 << 64))) | Spans.of(((1, most),))) == ((0, 1 << 64),)
    assert Spans.of(((1, 2),)) == ((1, 2),) and hash(Spans.of(((1, 2),))) == hash(((1, 2),))


@pytest.mark.parametrize("name", ["int64", "string", "timestamp[us,UTC]", "decimal128(10,2)"])
def test_keys_and_partitions_are_pruned_alike(name: str, seed: int) -> None:
    schema = declare([Column("a", cells.arrow_type(name)), Column("b", "int32")], ["a", "b"])
    declared = [HashPartition("a", 16), HashPartition("b", 4), RangePartition("b", [(None, 50), (50, None)])]
    partitions = PartitionSchema.make(schema, declared)
    pool = [cell for cell in cells.ugly(cells.arrow_type(name)) if cell is not None]
    for case in range(40):
        rng = random.Random(seed * 1000 + case)
        some = cells.to_arrow(rng.choices(pool, k=12), cells.arrow_type(name))
        where = pc.field("a").isin(some) & pc.field("b").isin(rng.choices(range(100), k=rng.choice((1, 20))))
        found = []
        for few in (0, 1 << 30):
            with one_by_one(few):
                compiled = compile_where(where, schema)
            assert compiled is not None
            bounds = keybounds.key_bounds(schema, compiled.terms)
            found.append((bounds, partitions.prune(compiled.terms, *bounds)))
        assert found[0] == found[1]


def test_both_zeros_pass_the_guard_of_a_list() -> None:
    schema = declare([Column("k", "int64"), Column("f", "float64"), Column("n", "int64")], "k")
    batch = pa.record_batch({"k": [1, 2, 3], "f": [-0.0, 0.0, 5.0], "n": [1, 1, 0]})
    fails = pc.divide(pc.scalar(10), pc.field("n")) == 10
    for values in ([0.0, 1.0], [-0.0, 1.0], [0.0, -0.0]):
        either = (pc.field("f") == values[0]) | (pc.field("f") == values[1])
        for few in (0, 1 << 30):
            with one_by_one(few):
                found = compile_where(either & fails, schema)
                exact = compile_where(pc.field("f").isin(values) & fails, schema)
            assert found is not None and exact is not None
            assert found.mask(batch).tolist() == [True, True, False], "the third row would divide by zero"
            assert exact.mask(batch).tolist() == [-0.0 in map(abs, values) and str(-0.0) in map(str, values),
                                                  "0.0" in map(str, values), False]  # fmt: skip


def calls_of(where: Any, schema: Any) -> int:
    """How many functions, compiled ones too, compiling a predicate calls."""
    count = 0

    def counted(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        found = compile_where(where, schema)
    finally:
        sys.setprofile(None)
    assert found is not None and len(found.terms) == 1
    return count


@pytest.mark.parametrize("name", ["int64", "int8", "float64", "date32", "timestamp[us,UTC]"])
def test_no_step_is_taken_for_each_number_of_a_list(name: str) -> None:
    made = np.arange(4000) % 100
    values = pa.array(made.astype("i8")).cast(pa.int32() if name == "date32" else pa.int64())
    values = values.cast(cells.arrow_type(name))
    few, many = (calls_of(pc.field(name).isin(values[:count]), SCHEMA) for count in (100, 4000))
    assert many == few
