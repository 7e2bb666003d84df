"""What predicates rule out: pages by their zones, keys by bounds; never a row that passes."""

from __future__ import annotations

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
from kudu_core.common.where.predicates import compile_where
from kudu_core.common.where.terms import Term
from tests.common.test_predicates import SCHEMA, F, selected, zone_of

# ------------------------------------------------------------------------------------------ zones

_INT = ColumnType.parse("int64")
_FLOAT = ColumnType.parse("float64")
_STRING = ColumnType.parse("string")


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
        ("is_null", None, False),
        ("not_null", None, True),
    ],
)
def test_zones(op: str, value: object, matches: bool) -> None:
    term = Term(1, op, value, _INT)
    assert term.may_match(10, 20, 0, 0, 5) is matches
    if op not in ("is_null", "not_null"):
        assert not term.may_match(None, None, 5, 0, 5), "only nulls"
        assert term.may_match(None, None, 0, 0, 5) is (value != ()), "nothing known"
    else:
        assert term.may_match(None, None, 5, 0, 5) is (op == "is_null")
        assert term.may_match(10, 20, 1, 0, 5)


def test_nan_satisfies_no_comparison() -> None:
    for op in ("eq", "lt", "gt", "le", "ge"):
        assert not Term(1, op, 1.0, _FLOAT).may_match(None, None, 1, 4, 5)
    assert Term(1, "not_null", None, _FLOAT).may_match(None, None, 1, 4, 5)
    assert Term(1, "ge", 1.0, _FLOAT).may_match(0.0, 1.0, 1, 2, 5)


def test_bounds_of_strings_may_be_cut_anywhere() -> None:
    low, high = "grüße"[:3].encode()[:-1], b"h"
    assert Term(1, "eq", "grüße", _STRING).may_match(low, high, 0, 0, 1)
    assert not Term(1, "eq", "gr", _STRING).may_match("grü", high, 0, 0, 1)
    assert Term(1, "prefix", "gr", _STRING).may_match("grü", "grz", 0, 0, 1)
    assert Term(1, "prefix", "grü", _STRING).may_match("a", "z", 0, 0, 1)
    assert not Term(1, "prefix", "b", _STRING).may_match("c", "d", 0, 0, 1)
    assert not Term(1, "prefix", "b", _STRING).may_match("a", "az", 0, 0, 1)


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
            assert term.may_match(*zone_of(batch.slice(row, 1), term))
    for term in found.terms:
        assert not kept or term.may_match(*zone_of(batch, term))
