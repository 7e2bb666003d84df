"""The functions of SQL that Arrow can compute, by the names that sqlglot gives them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.sql.meaning.casting import brought_together
from kudu_core.sql.meaning.comparing import compared
from kudu_core.sql.meaning.typed import (
    Typed,
    folded,
    is_moment,
    is_number,
    is_text,
    literal,
    must_be,
    null_of,
    refused,
    with_a_digit,
)

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types
_BOOL, _TEXT, _INT64 = pa.bool_(), pa.string(), pa.int64()
Translate = Callable[[Any], Typed]
Meaning = Callable[[Translate, Any], Typed]


def _number_of(translate: Translate, tree: exp.Expr) -> Typed:
    part = translate(tree.this)
    must_be(part, is_number(part.type) or part.is_null, "a number")
    return part.as_type(pa.float64()) if part.is_null else part


def _text_of(translate: Translate, tree: exp.Expr) -> Typed:
    part = translate(tree.this)
    must_be(part, is_text(part.type) or part.is_null, "text")
    return part.as_type(_TEXT) if part.is_null else part


def known_text(translate: Translate, tree: exp.Expr, whole: exp.Expr) -> str:
    """What must be text that is written down."""
    part = translate(tree)
    must_be(part, is_text(part.type), "text")
    if part.constant is None:
        raise refused(whole, "that text is written down, or given as a $parameter")
    return str(part.constant.as_py())


def known_whole(translate: Translate, tree: exp.Expr, whole: exp.Expr) -> int:
    """What must be a whole number that is written down."""
    part = translate(tree)
    if part.constant is None or not _t.is_integer(part.type):
        raise refused(whole, "that number is a whole one, written down or given as a $parameter")
    return int(part.constant.as_py())


def _abs(translate: Translate, tree: exp.Expr) -> Typed:
    part = _number_of(translate, tree)
    if _t.is_unsigned_integer(part.type):
        return part
    return folded(Typed(tree, part.type, pc.abs_checked(part.expression)), part)


def _rounded(how: Callable[..., pc.Expression]) -> Meaning:
    def meaning(translate: Translate, tree: exp.Expr) -> Typed:
        part = with_a_digit(_number_of(translate, tree))
        if _t.is_integer(part.type):
            return part
        return folded(Typed(tree, part.type, how(part.expression)), part)

    return meaning


def _round(translate: Translate, tree: exp.Expr) -> Typed:
    part = with_a_digit(_number_of(translate, tree))
    decimals = tree.args.get("decimals")
    digits = 0 if decimals is None else known_whole(translate, decimals, tree)
    if _t.is_integer(part.type) and digits >= 0:
        return part
    x = pc.round(part.expression, ndigits=digits, round_mode="half_towards_infinity")
    return folded(Typed(tree, part.type, x), part)


def _cased(how: Callable[..., pc.Expression]) -> Meaning:
    def meaning(translate: Translate, tree: exp.Expr) -> Typed:
        part = _text_of(translate, tree)
        return folded(Typed(tree, _TEXT, how(part.expression)), part)

    return meaning


def _length(translate: Translate, tree: exp.Expr) -> Typed:
    part = translate(tree.this)
    if _t.is_binary(part.type):
        return Typed(tree, _INT64, pc.binary_length(part.expression).cast(_INT64))
    part = _text_of(translate, tree)
    return folded(Typed(tree, _INT64, pc.utf8_length(part.expression).cast(_INT64)), part)


def _substring(translate: Translate, tree: exp.Expr) -> Typed:
    part = _text_of(translate, tree)
    start = known_whole(translate, tree.args["start"], tree)
    given = tree.args.get("length")
    length = None if given is None else known_whole(translate, given, tree)
    if start < 1 or (length is not None and length < 0):
        raise refused(tree, "characters are counted from 1 on, forwards")
    stop = None if length is None else start - 1 + length
    x = pc.utf8_slice_codeunits(part.expression, start=start - 1, stop=stop)
    return folded(Typed(tree, _TEXT, x), part)


def _trim(translate: Translate, tree: exp.Expr) -> Typed:
    part = _text_of(translate, tree)
    given = tree.args.get("expression")
    characters = " " if given is None else known_text(translate, given, tree)
    side = str(tree.args.get("position") or "").upper()
    how = {"LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}.get(side, pc.utf8_trim)
    return folded(Typed(tree, _TEXT, how(part.expression, characters=characters)), part)


def _replace(translate: Translate, tree: exp.Expr) -> Typed:
    part = _text_of(translate, tree)
    pattern = known_text(translate, tree.expression, tree)
    given = tree.args.get("replacement")
    by = "" if given is None else known_text(translate, given, tree)
    if not pattern:
        return part
    x = pc.replace_substring(part.expression, pattern=pattern, replacement=by)
    return folded(Typed(tree, _TEXT, x), part)


def _found(how: Callable[..., pc.Expression]) -> Meaning:
    def meaning(translate: Translate, tree: exp.Expr) -> Typed:
        part = _text_of(translate, tree)
        pattern = known_text(translate, tree.expression, tree)
        return folded(Typed(tree, _BOOL, how(part.expression, pattern)), part)

    return meaning


def _joined_text(translate: Translate, tree: exp.Expr) -> Typed:
    """``a || b``: NULL where one of them is."""
    return _join(tree, [translate(tree.this), translate(tree.expression)])


def _concat(translate: Translate, tree: exp.Expr) -> Typed:
    """``CONCAT(a, b, ...)``: without those that are NULL."""
    return _join(tree, [translate(part) for part in tree.expressions], skip_null=True)


def _join(tree: exp.Expr, parts: list[Typed], *, skip_null: bool = False) -> Typed:
    texts = []
    for part in parts:
        as_text = is_text(part.type) or _t.is_integer(part.type) or part.is_null or _t.is_decimal(part.type)
        must_be(part, as_text, "text (CAST it to VARCHAR)")
        text = part.as_type(_TEXT).expression
        texts.append(pc.coalesce(text, literal("", _TEXT)) if skip_null else text)
    x = pc.binary_join_element_wise(*texts, literal("", _TEXT))
    return folded(Typed(tree, _TEXT, x), *parts)


def _coalesce(translate: Translate, tree: exp.Expr) -> Typed:
    type_, parts = brought_together(tree, [translate(tree.this), *map(translate, tree.expressions)])
    if _t.is_null(type_):
        return parts[0]
    return folded(Typed(tree, type_, pc.coalesce(*(part.expression for part in parts))), *parts)


def _null_if(translate: Translate, tree: exp.Expr) -> Typed:
    part, other = translate(tree.this), translate(tree.expression)
    if part.is_null or other.is_null:
        return part
    same = is_true(compared(tree, "eq", part, other).expression)
    x = pc.if_else(same, literal(None, part.type), part.expression)
    return folded(Typed(tree, part.type, x), part, other)


def is_true(condition: pc.Expression) -> pc.Expression:
    """Of a condition that may be NULL, which then is false."""
    return pc.if_else(condition.is_valid(), condition, literal(False, _BOOL))


def _case(translate: Translate, tree: exp.Expr) -> Typed:
    given = tree.args.get("ifs") or [tree]
    subject = None if "ifs" not in tree.args or tree.this is None else translate(tree.this)
    conditions, values = [], []
    for one in given:
        condition = translate(one.this)
        if subject is not None:
            condition = compared(tree, "eq", subject, condition)
        must_be(condition, _t.is_boolean(condition.type) or condition.is_null, "a condition")
        conditions.append(condition)
        values.append(translate(one.args["true"]))
    otherwise = tree.args.get("default", tree.args.get("false"))
    last = null_of(tree, pa.null()) if otherwise is None else translate(otherwise)
    type_, parts = brought_together(tree, [*values, last])
    if _t.is_null(type_):
        return last
    x = parts[-1].expression
    for condition, value in zip(reversed(conditions), reversed(parts[:-1]), strict=True):
        if not condition.is_null:
            x = pc.if_else(is_true(condition.expression), value.expression, x)
    return folded(Typed(tree, type_, x), *conditions, *parts)


def _extreme(how: Callable[..., pc.Expression], *, largest: bool) -> Meaning:
    """The largest or smallest of several values, without those that are NULL; NaN is larger than numbers."""

    def meaning(translate: Translate, tree: exp.Expr) -> Typed:
        type_, parts = brought_together(tree, [translate(tree.this), *map(translate, tree.expressions)])
        if _t.is_null(type_):
            return parts[0]
        if not (is_number(type_) or is_moment(type_) or is_text(type_) or _t.is_boolean(type_)):
            raise refused(tree, "it is of numbers, text, dates and timestamps")
        x = how(*(part.expression for part in parts))
        if largest and _t.is_floating(type_):
            nans = [is_true(pc.is_nan(part.expression)) for part in parts]
            any_nan = nans[0]
            for one in nans[1:]:
                any_nan = operator.or_(any_nan, one)
            x = pc.if_else(any_nan, literal(float("nan"), type_), x)
        return folded(Typed(tree, type_, x), *parts)

    return meaning


_FIELDS: dict[str, Callable[..., pc.Expression]] = {
    "YEAR": pc.year, "QUARTER": pc.quarter, "MONTH": pc.month, "DAY": pc.day, "HOUR": pc.hour,
    "MINUTE": pc.minute, "SECOND": pc.second,
}  # fmt: skip
_OF_DATES = ("YEAR", "QUARTER", "MONTH", "DAY")


def _field(tree: exp.Expr, name: str, part: Typed) -> Typed:
    if name not in _FIELDS:
        raise refused(tree, f"of a moment there are {', '.join(_FIELDS)}")
    must_be(part, is_moment(part.type), "a date or a timestamp")
    if _t.is_date(part.type) and name not in _OF_DATES:
        return folded(Typed(tree, _INT64, pc.if_else(part.expression.is_valid(), literal(0, _INT64),
                                                     literal(None, _INT64))), part)  # fmt: skip
    return folded(Typed(tree, _INT64, _FIELDS[name](part.expression)), part)


def _extract(translate: Translate, tree: exp.Expr) -> Typed:
    return _field(tree, tree.this.name.upper(), translate(tree.expression))


def _named_field(translate: Translate, tree: exp.Expr) -> Typed:
    return _field(tree, type(tree).__name__.upper(), translate(tree.this))


def _truncated(translate: Translate, tree: exp.Expr) -> Typed:
    part = translate(tree.this)
    must_be(part, is_moment(part.type), "a date or a timestamp")
    unit = tree.args["unit"].name.lower()
    if unit not in ("second", "minute", "hour", "day", "week", "month", "quarter", "year"):
        raise refused(tree, "a moment is cut to a second, minute, hour, day, week, month, quarter or year")
    if _t.is_date(part.type) and unit in ("second", "minute", "hour", "day"):
        return part
    return folded(Typed(tree, part.type, pc.floor_temporal(part.expression, unit=unit)), part)


FUNCTIONS: dict[str, tuple[Meaning, tuple[str, ...]]] = {
    "Abs": (_abs, ("this",)),
    "Ceil": (_rounded(pc.ceil), ("this",)),
    "Floor": (_rounded(pc.floor), ("this",)),
    "Round": (_round, ("this", "decimals")),
    "Lower": (_cased(pc.utf8_lower), ("this",)),
    "Upper": (_cased(pc.utf8_upper), ("this",)),
    "Length": (_length, ("this",)),
    "Substring": (_substring, ("this", "start", "length")),
    "Trim": (_trim, ("this", "position", "expression")),
    "Replace": (_replace, ("this", "expression", "replacement")),
    "StartsWith": (_found(pc.starts_with), ("this", "expression")),
    "EndsWith": (_found(pc.ends_with), ("this", "expression")),
    "Contains": (_found(pc.match_substring), ("this", "expression")),
    "DPipe": (_joined_text, ("this", "expression", "safe")),
    "Concat": (_concat, ("expressions", "safe", "coalesce")),
    "Coalesce": (_coalesce, ("this", "expressions")),
    "Nullif": (_null_if, ("this", "expression")),
    "Case": (_case, ("this", "ifs", "default")),
    "If": (_case, ("this", "true", "false")),
    "Greatest": (_extreme(pc.max_element_wise, largest=True), ("this", "expressions", "ignore_nulls")),
    "Least": (_extreme(pc.min_element_wise, largest=False), ("this", "expressions", "ignore_nulls")),
    "Extract": (_extract, ("this", "expression")),
    "TimestampTrunc": (_truncated, ("this", "unit")),
    "DateTrunc": (_truncated, ("this", "unit")),
    **{name.title(): (_named_field, ("this",)) for name in _FIELDS},
}
"""What each means, and the arguments of it that are understood."""


__all__ = ["FUNCTIONS", "Meaning", "Translate", "is_true", "known_text", "known_whole"]
