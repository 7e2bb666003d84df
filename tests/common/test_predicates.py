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

from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.types.types import ColumnType
from kudu_core.common.types.values import physical
from kudu_core.common.where import expressions
from kudu_core.common.where.analysis import Term
from kudu_core.common.where.predicates import compile_where
from kudu_core.common.where.sets import ValueSet, place_of
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


def selected(batch: pa.RecordBatch, expression: pc.Expression) -> list[int]:
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
        kept = selected(BATCH, expression)
    except pa.ArrowInvalid:
        # Only rows that no term rules out are looked at.
        rows = [n for n in range(BATCH.num_rows) if all(satisfied(t, BATCH, n) for t in found.terms)]
        try:
            kept = [row for row in rows if selected(BATCH.slice(row, 1), expression)]
        except pa.ArrowInvalid:
            with pytest.raises(InvalidArgument):
                found.mask(BATCH)
            return
    assert np.flatnonzero(found.mask(BATCH)).tolist() == kept
    for row in kept:
        for term in found.terms:
            assert satisfied(term, BATCH, row), (term, row)
    again = pickle.loads(pickle.dumps(found))
    assert np.flatnonzero(again.mask(BATCH)).tolist() == kept
    assert again.terms == found.terms


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
    assert np.flatnonzero(found.mask(BATCH)).tolist() == selected(BATCH, pq.filters_to_expression(where))


MORE_LISTS: list[Any] = [
    [("s", "in", ["x", None])],
    [("u", "in", [2**64 - 1, 1])],
    [[("i", "=", 1)], [("i", "in", [2, 3])], [("i", "==", 4)]],
    [("d", ">", dt.date(2024, 1, 1)), ("t", "<=", dt.datetime(2024, 1, 1, tzinfo=dt.UTC))],
    [("y", ">=", b"a"), ("g", "<", 0.1), ("f", "=", 1)],
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


@pytest.mark.parametrize("op", ["=", "==", "!=", "<", ">="])
@pytest.mark.parametrize("null", [None, pa.scalar(None), pa.scalar(None, pa.string())], ids=repr)
def test_comparisons_with_null_say_how_null_is_asked_for(op: str, null: Any) -> None:
    nots, written = ("not ", "~pc") if op == "!=" else ("", "pc")
    told = rf"""'s': .*{op} None, is .*; "is {nots}null" is written {written}\.field\('s'\)\.is_null"""
    with pytest.raises(InvalidArgument, match=told):
        compile_where([("i", ">", 0), ("s", op, null)], SCHEMA)
    assert compile_where(pc.field("s").is_null() & (pc.field("i") > 0), SCHEMA) is not None


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


def satisfied(term: Term, batch: pa.RecordBatch, row: int) -> bool:
    """Whether a cell is one of the values that a term stands for."""
    cell = batch.column(SCHEMA.by_id[term.column_id].name)[row].as_py()
    if term.passing is None:
        return (cell is None) == (term.op == "is_null")
    return cell is not None and meets(term.passing, term.type, cell, cell)


def meets(passing: ValueSet, type_: ColumnType, low: Any, high: Any) -> bool:
    return passing.meets(*(place_of(type_, physical(type_, cell)) for cell in (low, high)))
