"""Random SQL expressions over a table of many types, for which DuckDB says what they mean."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("i8", pa.int8()),
        ("u8", pa.uint8()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("dec", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("c", pa.bool_()),
        ("day", pa.date32()),
        ("tm", pa.timestamp("us")),
        ("utc", pa.timestamp("us", "UTC")),
        ("Odd name", pa.int64()),
        ("st", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)
TEXTS = ["", "a", "ab", "abc", "abd", "b", "B", "Ab", "a%", "a_c", "x\\y", "a\nb", "é", "Éa", "10", "zz"]
FLOATS = [0.0, -0.0, 0.5, 1.0, 2.5, -1.5, 3.25, 100.0, -0.25, float("nan"), float("inf"), float("-inf"), 0.1]
_FIRST = datetime(2024, 1, 30, 22, 15)


def rows_of(random: Random, count: int) -> pa.Table:
    """Rows with many equal values, and NULL in a fifth of the cells."""

    def cells(draw: Callable[[], Any]) -> list[Any]:
        return [None if random.random() < 0.2 else draw() for _ in range(count)]

    small = lambda: random.choice([0, 1, 2, 3, 5, 7, -1, -2, -7])  # noqa: E731
    moment = lambda: _FIRST + timedelta(hours=random.randrange(0, 24 * 40, 5))  # noqa: E731
    columns = {
        "k": list(range(count)),
        "i8": cells(lambda: random.choice([0, 1, 2, 5, -3, 60, -60])),
        "u8": cells(lambda: random.choice([0, 1, 2, 5, 100])),
        "i32": cells(small),
        "i64": cells(small),
        "f32": cells(lambda: random.choice(FLOATS)),
        "f64": cells(lambda: random.choice(FLOATS)),
        "dec": cells(lambda: Decimal(random.choice(["0", "1.50", "2.25", "-1.50", "2.50", "7", "0.10"]))),
        "s": cells(lambda: random.choice(TEXTS)),
        "t": cells(lambda: random.choice(TEXTS)),
        "b": cells(lambda: random.random() < 0.5),
        "c": cells(lambda: random.random() < 0.5),
        "day": cells(lambda: moment().date()),
        "tm": cells(moment),
        "utc": cells(lambda: moment().replace(tzinfo=UTC)),
        "Odd name": cells(small),
        "st": [
            {"x": x, "y": y}
            for x, y in zip(cells(small), cells(lambda: random.choice(TEXTS)), strict=True)
        ],
    }
    return pa.table(columns, SCHEMA)


class SqlTexts:
    """Draws expressions.  Numbers stay so small that nothing overflows."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def condition(self, depth: int = 3) -> str:
        pick = self._random.random()
        if depth > 0 and pick < 0.35:
            join = self._one("AND", "OR")
            return f"({self.condition(depth - 1)} {join} {self.condition(depth - 1)})"
        if depth > 0 and pick < 0.45:
            return f"NOT ({self.condition(depth - 1)})"
        if depth > 0 and pick < 0.5:
            test = self._one("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NULL")
            return f"({self.condition(depth - 1)}) {test}"
        return self._one(
            self._compared, self._compared, self._compared_with_constant, self._compared_with_constant,
            self._listed, self._between, self._like, self._null, self._distinct, self._bool, self._found,
        )(depth)  # fmt: skip

    def number(self, depth: int) -> str:
        """Of any kind of number."""
        return self._one(self.integer, self.float, self.decimal)(depth)

    def integer(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.4:
            columns = ("i8", "u8", "i32", "i64", '"Odd name"', "st.x", "I64", "this.i32")
            return self._one(*columns, *map(str, range(-3, 8)))
        inner = lambda: self.integer(depth - 1)  # noqa: E731
        return self._one(
            lambda: f"({inner()} + {inner()})",
            lambda: f"(CAST({inner()} AS BIGINT) - {inner()})",
            lambda: f"({self._one('i32', 'i64', 'k')} * {self._one('i64', '2', '-3')})",
            lambda: f"({inner()} // {self._one('2', '3', '-2')})",
            lambda: f"({inner()} % {self._one('2', '3', '5')})",
            lambda: f"ABS(CAST({inner()} AS BIGINT))",
            lambda: f"LENGTH({self.text(depth - 1)})",
            lambda: f"COALESCE({inner()}, {inner()})",
            lambda: f"NULLIF({inner()}, {inner()})",
            lambda: f"GREATEST({inner()}, {inner()}, {inner()})",
            lambda: f"LEAST({inner()}, {inner()})",
            lambda: f"CASE WHEN {self.condition(0)} THEN {inner()} ELSE {inner()} END",
            lambda: f"CASE {self._one('i32', 'i64')} WHEN 1 THEN {inner()} WHEN 2 THEN {inner()} END",
            lambda: f"CAST({self._one('i32', 'dec', 'b', 'i64')} AS INTEGER)",
            lambda: f"CAST(ROUND({self._one('dec', '2.5', 'f_')}) AS BIGINT)".replace("f_", "i64 / 2"),
            lambda: f"(-{self._one('i32', 'i64')})",
            lambda: f"CAST(({self._one('i32', 'i64')} / 2) AS INTEGER)",
            lambda: f"YEAR({self._one('day', 'tm', 'utc')})",
            lambda: f"EXTRACT({self._one('month', 'quarter')} FROM {self._one('day', 'tm', 'utc')})",
            lambda: f"({self.day(0)} - {self.day(0)})",
        )()  # fmt: skip

    def float(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.5:
            return self._one("f64", "f64", "f32", "1e0", "2.5e0", "CAST(0.1 AS DOUBLE)")
        inner = lambda: self.float(depth - 1)  # noqa: E731
        return self._one(
            lambda: f"({self._one('f64', 'f32::DOUBLE')} {self._one('+', '-', '*')} {self.integer(0)})",
            lambda: f"({self.integer(0)} / {self.integer(0)})",
            lambda: f"(f64 / {self._one('2', '0.5', 'i32')})",
            lambda: f"{self._one('FLOOR', 'CEIL', 'ROUND', 'ABS')}({inner()})",
            lambda: f"ROUND(f64, {self._one('0', '1', '2')})",
            lambda: f"COALESCE({inner()}, {inner()})",
            lambda: f"{self._one('GREATEST', 'LEAST')}({inner()}, f64)",
            lambda: f"CAST({self._one('i32', 'dec', 'f32')} AS DOUBLE)",
            lambda: f"CASE WHEN {self.condition(0)} THEN {inner()} ELSE {inner()} END",
        )()

    def decimal(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.5:
            return self._one("dec", "dec", "1.5", "0.10", "-2.25")
        return self._one(
            lambda: f"(dec {self._one('+', '-', '*')} {self._one('1', '2', '1.5', 'dec', 'i32')})",
            lambda: f"CAST({self._one('i32', 'dec', 'i8')} AS DECIMAL(12, {self._one('0', '1', '3')}))",
            lambda: f"CAST(({self._one('i32', 'i64')} / 8) AS DECIMAL(12, {self._one('0', '1', '2')}))",
            lambda: f"ROUND({self._one('dec', '0.5', '9.95')}, {self._one('0', '1')})",
            lambda: f"{self._one('FLOOR', 'CEIL', 'ABS')}({self._one('dec', '0.5', '-9.95')})",
            lambda: f"COALESCE(dec, {self._one('1', '1.25', 'i32')})",
            lambda: f"GREATEST(dec, {self._one('1', '1.25')})",
        )()

    def text(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.5:
            return self._one("s", "t", "s", "t", "st.y", self._quoted())
        inner = lambda: self.text(depth - 1)  # noqa: E731
        return self._one(
            lambda: f"({inner()} || {inner()})",
            lambda: f"CONCAT({inner()}, {inner()})",
            lambda: f"{self._one('LOWER', 'UPPER')}({inner()})",
            lambda: f"SUBSTR({inner()}, {self._one('1', '2')}, {self._one('0', '1', '2')})",
            lambda: f"{self._one('TRIM', 'LTRIM', 'RTRIM')}(' ' || {inner()} || ' ')",
            lambda: f"REPLACE({inner()}, 'a', 'xy')",
            lambda: f"COALESCE({inner()}, {inner()})",
            lambda: f"NULLIF({inner()}, {inner()})",
            lambda: f"CAST({self._one('i32', 'dec', 'b', 'day', 'i8')} AS VARCHAR)",
            lambda: f"{self._one('GREATEST', 'LEAST')}({inner()}, {inner()})",
            lambda: f"CASE WHEN {self.condition(0)} THEN {inner()} END",
        )()

    def day(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.6:
            return self._one("day", "day", "DATE '2024-02-10'", "DATE '2024-02-29'")
        return self._one(
            lambda: f"(day + {self._one('1', '7', 'i8')})",
            lambda: "(day - 3)",
            lambda: f"CAST({self._one('tm', 'utc')} AS DATE)",
            lambda: "COALESCE(day, DATE '2024-02-10')",
            lambda: "(DATE '2024-01-31' + 10)",
        )()

    def moment(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.5:
            return self._one("tm", "tm", "TIMESTAMP '2024-02-10 08:15:00'", "TIMESTAMP '2024-02-01'")
        return self._one(
            lambda: f"(tm {self._one('+', '-')} INTERVAL {self._one('1 DAY', '36 HOUR', '1 WEEK')})",
            lambda: "(day + INTERVAL 5 HOUR)",
            lambda: "CAST(day AS TIMESTAMP)",
            lambda: f"DATE_TRUNC('{self._one('hour', 'day', 'week', 'month', 'quarter', 'year')}', tm)",
            lambda: f"(TIMESTAMP '2024-01-31 10:00' + INTERVAL {self._one('1 MONTH', '1 YEAR', '3 DAY')})",
            lambda: "(DATE '2024-03-31' - INTERVAL 1 MONTH)",
            lambda: "GREATEST(tm, TIMESTAMP '2024-02-10 08:15:00')",
        )()

    def utc(self, depth: int) -> str:
        return self._one(
            "utc", "utc", "TIMESTAMPTZ '2024-02-10 08:15:00+02'", "(utc + INTERVAL 1 DAY)",
            "CAST(tm AS TIMESTAMPTZ)",
        )  # fmt: skip

    # ---- conditions ----

    def _compared(self, depth: int) -> str:
        kind = self._one(self.number, self.number, self.number, self.text, self.day, self.moment, self.utc)
        return f"{kind(depth)} {self._comparison()} {kind(depth)}"

    def _compared_with_constant(self, depth: int) -> str:
        column, constants = self._one(
            ("i8", ("5", "2.5", "-3.0", "300", "-300", "2.0", "1e2", "'5'", "99999999999999999999", "NULL")),
            ("u8", ("0", "-1", "2.5", "255", "256")),
            ("i64", ("1", "9223372036854775807", "9223372036854775808", "-0.5", "7.00", "1e30")),
            ("f64", ("1", "0", "-0.0", "0.1", "2.5", "1e0", "'nan'::DOUBLE", "'inf'::DOUBLE")),
            ("f32", ("0.1", "0.5", "1", "CAST('nan' AS FLOAT)")),
            ("dec", ("1.5", "1.505", "2", "-1.499", "99999999.5", "'2.25'")),
            ("s", ("'ab'", "'a%'", "''", "'é'", "'it''s'")),
            ("day", ("'2024-02-10'", "DATE '2024-02-10'", "TIMESTAMP '2024-02-10 01:00'")),
            ("tm", ("'2024-02-10'", "'2024-02-10 08:15'", "DATE '2024-02-10'", "'2024-02-10T08:15:00'")),
            ("utc", ("'2024-02-10 08:15:00+02'", "'2024-02-10 08:15'", "TIMESTAMPTZ '2024-02-10 06:15:00Z'")),
            ('"odd NAME"', ("1", "2")),
        )  # fmt: skip
        sides = [column, self._one(*constants)]
        self._random.shuffle(sides)
        return f"{sides[0]} {self._comparison()} {sides[1]}"

    def _listed(self, depth: int) -> str:
        column, constants = self._one(
            ("i8", ("1", "2", "5", "300", "2.5", "NULL", "i32")),
            ("i64", ("1", "2", "3", "-7", "NULL")),
            ("f64", ("1", "0", "0.5", "-0.0", "NULL", "CAST('nan' AS DOUBLE)")),
            ("dec", ("1.5", "2", "2.255", "NULL")),
            ("s", ("'a'", "'ab'", "''", "NULL", "t")),
            ("day", ("'2024-02-10'", "DATE '2024-02-11'", "NULL")),
            ("tm", ("TIMESTAMP '2024-02-10 08:15:00'", "NULL")),
            ("b", ("true", "false", "NULL")),
        )
        values = ", ".join(self._one(*constants) for _ in range(self._random.randint(1, 4)))
        return f"{column} {self._one('IN', 'NOT IN')} ({values})"

    def _between(self, depth: int) -> str:
        # DuckDB brings all three to one type; between a FLOAT and a DOUBLE that is another comparison.
        kind = self._one(self.integer, self.decimal, self.text, self.day, self.moment)
        return f"{kind(depth - 1)} {self._one('', 'NOT ')}BETWEEN {kind(0)} AND {kind(0)}"

    def _like(self, depth: int) -> str:
        pattern = self._one(
            "a%", "ab%", "%b", "a_c", "%a%", "", "%", "_", "é%", "A%", "a\\%", "x\\y", "a%c", "a%%", "__%",
        )  # fmt: skip
        escaped = self._one("", "", "", " ESCAPE '\\'") if pattern not in ("x\\y",) else ""
        word = self._one("LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE")
        return f"{self.text(depth - 1)} {word} '{pattern}'{escaped}"

    def _found(self, depth: int) -> str:
        name = self._one("STARTS_WITH", "ENDS_WITH", "CONTAINS")
        return f"{name}({self.text(depth - 1)}, {self._quoted()})"

    def _null(self, depth: int) -> str:
        kind = self._one(self.number, self.text, self.day, self.condition)
        return f"({kind(depth - 1)}) IS {self._one('', 'NOT ')}NULL"

    def _distinct(self, depth: int) -> str:
        kind = self._one(self.number, self.text, self.day)
        return f"{kind(depth - 1)} IS {self._one('', 'NOT ')}DISTINCT FROM {kind(depth - 1)}"

    def _bool(self, depth: int) -> str:
        either = "(b = c)", "(b <> true)", "(b > c)", "COALESCE(b, c)"
        return self._one("b", "c", *either, "true", "(NULL = 1)")

    # ---- words ----

    def _comparison(self) -> str:
        return self._one("=", "<>", "<", "<=", ">", ">=", "!=", "==")

    def _quoted(self) -> str:
        return "'" + self._random.choice(TEXTS).replace("'", "''") + "'"

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)


__all__ = ["SCHEMA", "SqlTexts", "rows_of"]
