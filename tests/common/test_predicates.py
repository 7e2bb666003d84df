"""Predicates: pyarrow's meaning, and terms that never rule out a row that passes."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kudu_core.common.rows.conform import conform
from kudu_core.common.rows.keys import encode_key, encode_keys
from kudu_core.common.schema.schema import Column, declare
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where import expressions, keybounds
from kudu_core.common.where.predicates import compile_where
from kudu_core.common.where.terms import Term
from kudu_core.errors import InvalidArgument

D = decimal.Decimal
F = pc.field
SCHEMA = declare(
    [
        Column("k", "string"),
        Column("i", "int32"),
        Column("u", "uint64"),
        Column("f", "float64"),
        Column("g", "float32"),
        Column("b", "bool"),
        Column("s", "string"),
        Column("y", "binary"),
        Column("d", "date32"),
        Column("t", "timestamp[us,UTC]"),
        Column("n", "timestamp[us]"),
        Column("m", "decimal128(10,2)"),
    ],
    ["k", "i"],
)
T0 = dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
BATCH = pa.record_batch(
    {
        "k": ["a", "ab", "b", "c", "a\0", ""],
        "i": pa.array([-5, 0, 1, 2, 5, 2**31 - 1], pa.int32()),
        "u": pa.array([0, 1, None, 2**63, 5, 2**64 - 1], pa.uint64()),
        "f": [0.0, -0.0, math.nan, None, 2.5, -math.inf],
        "g": pa.array([0.1, 0.5, math.nan, None, 2.0, math.inf], pa.float32()),
        "b": [True, False, None, True, False, None],
        "s": ["x", "xy", None, "", "grüße", "x%"],
        "y": [b"\xff", b"", None, b"\0", b"x", b"xy"],
        "d": pa.array([0, 1, None, -1, 19000, 5], pa.date32()),
        "t": pa.array([T0, None, T0, T0 + dt.timedelta(days=1), T0, T0], pa.timestamp("us", "UTC")),
        "n": pa.array([0, 1, None, 5, 6, 7], pa.timestamp("us")),
        "m": pa.array([D("1.50"), D("0.00"), None, D("-3.25"), D("100.00"), D("2.00")], pa.decimal128(10, 2)),
    }
)


def _selected(batch: pa.RecordBatch, expression: pc.Expression) -> list[int]:
    """Rows that pyarrow's own filter keeps."""
    numbered = pa.Table.from_batches([batch]).append_column("row", pa.array(range(batch.num_rows)))
    return numbered.filter(expression)["row"].to_pylist()


# expression, terms as text with column names
READ = [
    (F("i") > 5, ["i gt 5"]),
    (pc.scalar(5) < F("i"), ["i gt 5"]),
    ((F("i") >= 1) & (F("k") == "a") & (F("s") != "x"), ["i ge 1", "k eq 'a'"]),
    (F("i") > 2.5, ["i ge 3"]),
    (F("i") <= 2.5, ["i le 2"]),
    (F("i") == 2.5, []),
    (F("i") == 2.0, ["i eq 2"]),
    (F("i") == 2**40, []),
    (F("u") == pa.scalar(2**63, pa.uint64()), [f"u eq {2**63}"]),
    (F("u") == float(2**53), []),
    (F("f") > 1, ["f gt 1.0"]),
    (F("f") == pa.scalar(math.nan), []),
    (F("g") > 0.1, []),
    (F("g") > 0.5, ["g gt 0.5"]),
    (F("b"), ["b eq True"]),
    (~F("b"), ["b eq False"]),
    (~(F("i") < 5), ["i ge 5"]),
    (~(F("f") < 5), []),
    (F("s").is_null(), ["s is_null"]),
    (F("f").is_null(nan_is_null=True), []),
    (F("s").is_valid(), ["s not_null"]),
    (~F("s").is_valid(), ["s is_null"]),
    (F("i").isin([3, 1, 1]), ["i in (1, 3)"]),
    (F("i").isin([3, None]), ["i in (3,)"]),
    (F("u").isin([3, None]), []),
    (F("u").isin([-3]), []),
    (F("f").isin([1.5, math.nan]), []),
    (F("g").isin([0.1]), []),
    ((F("i") == 1) | (F("i") == 7) | F("i").isin([9]), ["i in (1, 7, 9)"]),
    ((F("i") == 1) | (F("u") == 7), []),
    (pc.starts_with(F("s"), "ab"), ["s prefix 'ab'"]),
    (pc.starts_with(F("s"), "ab", ignore_case=True), []),
    (pc.match_like(F("s"), "ab%c"), ["s prefix 'ab'"]),
    (pc.match_like(F("s"), "%c"), []),
    (pc.starts_with(F("y"), "ab"), ["y prefix b'ab'"]),
    (F("y") == b"\xff", ["y eq b'\\xff'"]),
    (F("s") == b"x", []),
    (F("d") == dt.date(2024, 1, 2), ["d eq datetime.date(2024, 1, 2)"]),
    (F("d") > dt.datetime(2024, 1, 2), []),
    (F("t") >= pa.scalar(T0, pa.timestamp("ns", "Asia/Tokyo")), [f"t ge {T0!r}"]),
    (F("t") > pa.scalar(1, pa.timestamp("ns", "UTC")), []),
    (F("n") > dt.datetime(2024, 1, 2), [f"n gt {dt.datetime(2024, 1, 2)!r}"]),
    (F("m") == D("1.5"), ["m eq Decimal('1.50')"]),
    (F("m") == D("1.555"), []),
    (pc.if_else(F("i").is_valid(), F("i").isin([1]), None), ["i not_null", "i in (1,)"]),
    (F("i").cast("int64") == 5, []),
    (F("i") + 1 == 5, []),
    (F("i") == F("u"), []),
    (pc.match_substring(F("s"), "x"), []),
    (F("i") == pa.scalar(None, pa.int32()), []),
]


@pytest.mark.parametrize(("expression", "expected"), READ, ids=lambda v: str(v)[:60])
def test_terms_are_read_off_expressions_that_mean_what_pyarrow_means(
    expression: pc.Expression, expected: list[str]
) -> None:
    found = compile_where(expression, SCHEMA)
    assert found is not None
    names = {c.id: c.name for c in SCHEMA.columns}
    shown = [
        f"{names[t.column_id]} {t.op}" + ("" if t.value is None else f" {t.value!r}") for t in found.terms
    ]
    assert shown == expected
    try:
        kept = _selected(BATCH, expression)
    except pa.ArrowInvalid:
        # Only rows that no term rules out are looked at.
        rows = [
            row
            for row in range(BATCH.num_rows)
            if all(term.may_match(*_zone(BATCH.slice(row, 1), term)) for term in found.terms)
        ]
        try:
            kept = [row for row in rows if _selected(BATCH.slice(row, 1), expression)]
        except pa.ArrowInvalid:
            with pytest.raises(InvalidArgument):
                found.mask(BATCH)
            return
    assert np.flatnonzero(found.mask(BATCH)).tolist() == kept
    for row in kept:
        for term in found.terms:
            assert term.may_match(*_zone(BATCH.slice(row, 1), term)), f"{term} against row {row}"
    again = pickle.loads(pickle.dumps(found))
    assert np.flatnonzero(again.mask(BATCH)).tolist() == kept
    assert again.terms == found.terms


def _zone(batch: pa.RecordBatch, term: Term) -> tuple[Any, Any, int, int, int]:
    """What a zone map would say of a column of the batch."""
    cells = batch.column(SCHEMA.by_id[term.column_id].name).to_pylist()
    nans = [c for c in cells if isinstance(c, float) and math.isnan(c)]
    known = [c for c in cells if c is not None and not (isinstance(c, float) and math.isnan(c))]
    return min(known, default=None), max(known, default=None), cells.count(None), len(nans), len(cells)


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (F("zz") == 1, "'zz'"),
        (F("i") == "x", "int32"),
        (F("i") + 1, "bool"),
        (F("t") > dt.datetime(2024, 1, 1), "timezone"),
        (F("f") > 2**53 + 1, "range"),
        (F(0) == 1, "numbered"),
        (F("i", "x") == 1, "i.x"),
        ([("zz", "=", 1)], "'zz'"),
        ([("i", "~", 1)], "'~'"),
        ([("i", "in", 5)], "list"),
        ([("i", "in", "ab")], "list"),
        ([("i", ">")], "column, op, value"),
        ([[]], "filter"),
        (["i"], "i"),
        ("i = 1", "i = 1"),
        (5, "5"),
        (pc.scalar(5), "bool"),
    ],
)
def test_a_wrong_predicate_says_what_is_wrong(where: object, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        compile_where(where, SCHEMA)


LISTS: list[Any] = [
    [("i", "=", 1)],
    [("i", ">", 0), ("s", "!=", "x")],
    [[("i", "<", 0)], [("k", ">=", "b"), ("b", "==", True)]],
    [("s", "in", ["x", "xy"])],
    [("s", "not in", {"x"})],
    [("m", "<=", D("1.5"))],
    [("f", ">", -1)],
]


@pytest.mark.parametrize("where", LISTS, ids=str)
def test_filter_lists_mean_what_pyarrow_says(where: Any) -> None:
    found = compile_where(where, SCHEMA)
    assert found is not None
    assert np.flatnonzero(found.mask(BATCH)).tolist() == _selected(BATCH, pq.filters_to_expression(where))


MORE_LISTS: list[Any] = [
    [("s", "in", ["x", None])],
    [("u", "in", [2**64 - 1, 1])],
    [[("i", "=", 1)], [("i", "in", [2, 3])], [("i", "==", 4)]],
    [("d", ">", dt.date(2024, 1, 1)), ("t", "<=", dt.datetime(2024, 1, 1, tzinfo=dt.UTC))],
    [("y", ">=", b"a"), ("g", "<", 0.1), ("f", "=", None)],
    ("i", ">", 2.5),
]


@pytest.mark.parametrize("where", [*LISTS, *MORE_LISTS], ids=str)
def test_filter_lists_become_the_tree_of_their_expression(where: Any) -> None:
    found = compile_where(where, SCHEMA)
    assert found is not None
    spelled = compile_where(found.expression, SCHEMA)
    assert spelled is not None
    assert (found.terms, found.columns) == (spelled.terms, spelled.columns)
    assert found.conditions == spelled.conditions
    assert str(found.rest) == str(spelled.rest)


def test_values_of_filter_lists_take_the_columns_type() -> None:
    # As an expression this is an error of Arrow's: an int64 literal needs 19 digits before the point.
    found = compile_where([("m", ">", 1), ("g", "in", [0.5, 2])], SCHEMA)
    assert found is not None
    assert np.flatnonzero(found.mask(BATCH)).tolist() == [4]
    assert len(found.terms) == 2


def test_constant_predicates() -> None:
    assert compile_where(None, SCHEMA) is None
    assert compile_where([], SCHEMA) is None
    assert compile_where(pc.scalar(True), SCHEMA) is None
    for never in (pc.scalar(False), pc.scalar(None).cast(pa.bool_()), pc.scalar(1) > pc.scalar(2)):
        found = compile_where(never, SCHEMA)
        assert found is not None
        assert found.columns == {"k"}
        assert not found.mask(BATCH).any()


def test_an_expression_that_cannot_be_read_is_still_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "_metadata", lambda schema: [("novelty", "1")])
    found = compile_where(F("i") > 1, SCHEMA)
    assert found is not None
    assert found.terms == ()
    assert found.columns == set(SCHEMA.names)
    assert np.flatnonzero(found.mask(BATCH)).tolist() == [3, 4, 5]


def test_errors_of_values_are_the_callers() -> None:
    found = compile_where(pc.divide(pc.scalar(1), F("i")) > 0, SCHEMA)
    assert found is not None
    with pytest.raises(InvalidArgument, match="zero"):
        found.mask(BATCH)


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
    kept = _selected(batch, where)
    assert np.flatnonzero(found.mask(batch)).tolist() == kept
    bounds = keybounds.key_bounds(SCHEMA, found.terms)
    keys = list(encode_keys(SCHEMA, conform(SCHEMA, batch).block))
    for row in kept:
        assert _inside(keys[row], bounds)
        for term in found.terms:
            assert term.may_match(*_zone(batch.slice(row, 1), term))
    for term in found.terms:
        assert not kept or term.may_match(*_zone(batch, term))
