"""What predicates rule out: values by their bounds, keys by theirs; never a row that passes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.keys import encode_key, encode_keys
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where import keybounds
from kudu_core.common.where.analysis import Term
from kudu_core.common.where.predicates import compile_where
from kudu_core.common.where.sets import ValueSet
from tests.common.test_predicates import SCHEMA, F, meets, satisfied, selected

# ------------------------------------------------------------------------------------------ bounds

_INT = ColumnType.parse("int64")
_FLOAT = ColumnType.parse("float64")
_STRING = ColumnType.parse("string")


def passing_of(type_: ColumnType, op: str, value: object) -> ValueSet:
    found = Term(1, op, value, type_).passing
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("op", "value", "matches"),
    [
        ("eq", 9, False),
        ("eq", 10, True),
        ("eq", 20, True),
        ("eq", 21, False),
        ("lt", 10, False),
        ("lt", 11, True),
        ("le", 9, False),
        ("le", 10, True),
        ("gt", 20, False),
        ("gt", 19, True),
        ("ge", 21, False),
        ("ge", 20, True),
        ("in", (1, 9, 21), False),
        ("in", (1, 15, 30), True),
        ("in", (), False),
        ("in", (20,), True),
    ],
)
def test_terms_leave_bounds_that_they_meet(op: str, value: object, matches: bool) -> None:
    passing = passing_of(_INT, op, value)
    assert meets(passing, _INT, 10, 20) is matches
    assert passing.meets(None, None) is (value != ()), "nothing known"


def test_nan_satisfies_no_comparison() -> None:
    for op in ("eq", "lt", "gt", "le", "ge"):
        for nan in (math.nan, -math.nan):
            assert not meets(passing_of(_FLOAT, op, 1.0), _FLOAT, nan, nan)


def test_bounds_of_strings_may_be_cut_anywhere() -> None:
    low, word = "grüße"[:3].encode()[:-1], "grü".encode()
    assert passing_of(_STRING, "eq", "grüße").meets(low, b"h")
    assert not passing_of(_STRING, "eq", "gr").meets(word, b"h")
    assert passing_of(_STRING, "prefix", "gr").meets(word, b"grz")
    assert passing_of(_STRING, "prefix", "grü").meets(b"a", b"z")
    assert not passing_of(_STRING, "prefix", "b").meets(b"c", b"d")
    assert not passing_of(_STRING, "prefix", "b").meets(b"a", b"az")


# ------------------------------------------------------------------------------------- key bounds

BOUNDS: list[tuple[pc.Expression, Any, Any]] = [
    (F("u") == 1, None, None),
    (F("i") == 1, None, None),
    (F("k") == "a", "a", "a\0"),
    (F("k") > "a", "a\0", None),
    (F("k") <= "a", None, "a\0"),
    (F("k") < "a", None, "a"),
    ((F("k") == "a") & (F("i") == 5), ("a", 5), ("a", 6)),
    ((F("k") == "a") & (F("i") > 5), ("a", 6), "a\0"),
    ((F("k") == "a") & (F("i") <= 5), "a", ("a", 6)),
    ((F("k") == "a") & (F("i") <= 2**31 - 1), "a", "a\0"),
    ((F("k") == "a") & F("i").isin([3, 9]), ("a", 3), ("a", 10)),
    (pc.starts_with(F("k"), "ab"), "ab", "ac"),
    (pc.starts_with(F("k"), "ab") & (F("k") > "abc"), "abc\0", "ac"),
]


@pytest.mark.parametrize(("where", "lower", "upper"), BOUNDS, ids=lambda v: str(v)[:50])
def test_terms_become_key_bounds(where: pc.Expression, lower: Any, upper: Any) -> None:
    found = compile_where(where, SCHEMA)
    assert found is not None
    bounds = keybounds.key_bounds(SCHEMA, found.terms)
    codec = SCHEMA.key_codec
    wanted = tuple(None if b is None else codec.encode_prefix(b) for b in (lower, upper))
    # Bounds may lie between the encodings of keys: they must part them as the wanted ones do.
    edges = [
        key
        for k in ("", "a", "a\0", "ab", "abc", "abc\0", "ac", "b", "c")
        for key in (encode_key(SCHEMA, (k, i)) for i in (-(2**31), 0, 3, 5, 6, 9, 10, 2**31 - 1))
    ]
    for key in edges:
        assert _inside(key, bounds) == _inside(key, wanted), key


def _inside(key: bytes, bounds: Any) -> bool:
    lower, upper = bounds
    return (lower is None or lower <= key) and (upper is None or key < upper)


@pytest.mark.parametrize(
    "where",
    [
        (F("k") == "a") & (F("k") == "b"),
        (F("k") > "b") & (F("k") < "a"),
        (F("k") > "a") & (F("k") <= "a"),
        F("k").isin(pa.array([], pa.string())),
        (F("k") == "a") & (F("i") > 5) & (F("i") < 5),
    ],
    ids=str,
)
def test_terms_that_contradict_leave_no_keys(where: pc.Expression) -> None:
    found = compile_where(where, SCHEMA)
    assert found is not None
    assert keybounds.is_empty(keybounds.key_bounds(SCHEMA, found.terms))


CELLS: dict[str, Any] = {
    "k": st.text(st.sampled_from("\0ab"), max_size=3),
    "i": st.sampled_from([-(2**31), -1, 0, 1, 5, 2**31 - 1]),
    "u": st.integers(0, 4),
}
ARROW = {"k": pa.string(), "i": pa.int32(), "u": pa.uint64()}


def _leaves(name: str) -> st.SearchStrategy[pc.Expression]:
    cells, type_ = CELLS[name], ARROW[name]
    compared = st.builds(
        lambda op, v: getattr(F(name), op)(pa.scalar(v, type_)),
        st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]),
        cells,
    )
    listed = st.lists(cells, max_size=3).map(lambda v: F(name).isin(pa.array(v, type_)))
    leaf = compared | listed | st.just(F(name).is_null())
    if name == "k":
        leaf = leaf | cells.map(lambda v: pc.starts_with(F("k"), v))
    return leaf | leaf.map(lambda e: ~e)


EXPRESSIONS = st.recursive(
    st.one_of(*(_leaves(name) for name in CELLS)),
    lambda inner: st.tuples(inner, inner, st.booleans()).map(lambda t: t[0] & t[1] if t[2] else t[0] | t[1]),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(
    EXPRESSIONS,
    st.lists(st.tuples(CELLS["k"], CELLS["i"], st.none() | CELLS["u"]), min_size=1, max_size=12),
)
def test_pruning_never_loses_a_row(where: pc.Expression, rows: list[tuple[Any, ...]]) -> None:
    found = compile_where(where, SCHEMA)
    assert found is not None
    columns = [pa.array([row[n] for row in rows], t) for n, t in enumerate(ARROW.values())]
    batch = pa.RecordBatch.from_arrays(columns, names=list(ARROW))
    kept = selected(batch, where)
    assert np.flatnonzero(found.mask(batch)).tolist() == kept
    bounds = keybounds.key_bounds(SCHEMA, found.terms)
    keys = list(encode_keys(SCHEMA, conform(SCHEMA, batch).block))
    for row in kept:
        assert _inside(keys[row], bounds)
        for term in found.terms:
            assert satisfied(term, batch, row)
