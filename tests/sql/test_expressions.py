"""What SQL conditions become, what they find, and what is said of those that become nothing."""

from __future__ import annotations

import datetime as dt
import pickle
import re
import subprocess
import sys
import uuid
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.sql.translate import expression_of
from tests.support.tables import Make

F = pc.field
SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("u8", pa.uint8()),
        ("f", pa.float64()),
        ("f32", pa.float32()),
        ("p", pa.decimal128(10, 2)),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("secs", pa.timestamp("s")),
        ("st", pa.struct([("a", pa.int64()), ("in", pa.struct([("x", pa.string())]))])),
        ("id", pa.uuid()),
        ("code", pa.dictionary(pa.int32(), pa.string())),
        ("weird name", pa.int64()),
        ("Case", pa.int64()),
        ("case2", pa.int64()),
        ("CASE2", pa.int64()),
    ]
)


def scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(value, type_)


N = pa.int32()
UTC_US = pa.timestamp("us", "UTC")
FIRST_ID = "00000000-0000-0000-0000-000000000001"
ALWAYS = pc.if_else(F("n").is_valid(), pc.scalar(True), pa.scalar(None, pa.bool_()))
NEVER = pc.if_else(F("n").is_valid(), pc.scalar(False), pa.scalar(None, pa.bool_()))


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("n > 5", F("n") > scalar(5, N)),
        ("5 < N", F("n") > scalar(5, N)),
        ("n >= '7'", F("n") >= scalar(7, N)),
        ("n > 2.5", F("n") > scalar(2, N)),
        ("n < 2.5", F("n") <= scalar(2, N)),
        ("n >= -2.5", F("n") > scalar(-3, N)),
        ("n = 2.5", NEVER),
        ("n <> 2.5", ALWAYS),
        ("n < 3000000000", ALWAYS),
        ("n > 1e10", NEVER),
        ("n >= -1e30", ALWAYS),
        ("n = 1 + 2 * 3", F("n") == scalar(7, N)),
        ("n BETWEEN 1 AND 3", (F("n") >= scalar(1, N)) & (F("n") <= scalar(3, N))),
        ("p < 1.555", F("p") <= scalar(Decimal("1.55"), pa.decimal128(10, 2))),
        ("p = 1.5", F("p") == scalar(Decimal("1.50"), pa.decimal128(10, 2))),
        ("f < 1", F("f") < 1.0),
        ("f > 0.1", (F("f") > 0.1) | pc.is_nan(F("f"))),
        ("f32 = 0.1", F("f32") == scalar(0.1, pa.float32())),
        ("s LIKE 'ab%'", pc.starts_with(F("s"), "ab")),
        ("s LIKE 'ab'", F("s") == "ab"),
        (r"s LIKE 'a!%%' ESCAPE '!'", pc.starts_with(F("s"), "a%")),
        ("s LIKE '%a_'", pc.match_like(F("s"), "%a_")),
        (r"s LIKE 'a\_%b'", pc.match_like(F("s"), "a\\\\_%b")),
        ("s ILIKE 'ab%'", pc.match_like(F("s"), "ab%", ignore_case=True)),
        ("day >= '2024-02-01'", F("day") >= scalar(dt.date(2024, 2, 1), pa.date32())),
        ("day > TIMESTAMP '2024-02-01 10:00:00'", F("day") > scalar(dt.date(2024, 2, 1), pa.date32())),
        (
            "at < TIMESTAMP '2024-01-31' + INTERVAL 1 MONTH",
            F("at") < scalar(dt.datetime(2024, 2, 29), UTC_US),
        ),
        ("at = '2024-01-01 10:00+02'", F("at") == scalar(dt.datetime(2024, 1, 1, 8), UTC_US)),
        ("secs <= '2024-01-01 00:00:00.5'", F("secs") <= scalar(dt.datetime(2024, 1, 1), pa.timestamp("s"))),
        ("st.a = 1", F("st", "a") == scalar(1, pa.int64())),
        ("this.st.\"in\".X = 'y'", F("st", "in", "x") == "y"),
        ('"weird name" IS NULL', F("weird name").is_null()),
        ("st IS NOT NULL", ~F("st").is_null()),
        ("\"case\" = 1", F("Case") == scalar(1, pa.int64())),
        ("case2 = 1", F("case2") == scalar(1, pa.int64())),
        (f"id = '{FIRST_ID}'", F("id") == scalar(uuid.UUID(int=1).bytes, pa.binary())),
        ("code = 'x'", F("code") == "x"),
        ("NOT b OR n IS NULL", ~F("b") | F("n").is_null()),
        ("n = $n", F("n") == scalar(7, N)),
        ("s = $s AND day < $day", (F("s") == "it's") & (F("day") < scalar(dt.date(2024, 1, 1), pa.date32()))),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_condition_becomes_an_expression(text: str, expression: pc.Expression) -> None:
    """One that prunes: constants are of their columns' types."""
    given = {"n": np.int64(7), "s": "it's", "day": dt.date(2024, 1, 1)}
    found = expression_of(text, SCHEMA, parameters=given)
    assert found.equals(expression), found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n >", r"(?s)at '>': something is missing.*\n  n >\n    \^$"),
        ("n > 5 AND\n AND b", r"(?s)line 2, at 'AND'.*\n   AND b\n   \^\^\^$"),
        ("n 5", "line 1, at '5'"),
        ("(n > 5", "Expecting \\)"),
        ("s = 'abc", "a quote or a comment not closed"),
        ("", "the text is empty"),
        ("n > 5; b", "one condition"),
        ("n, b", "one condition"),
        ("SELECT n FROM this", "line 1"),
        ("n AS m", "one condition"),
        ("nobody > 5", r"no column 'nobody'; there are n, u8, f"),
        ('s = "text"', "no column 'text'.*text stands in single quotes"),
        ("CasE2 = 1", r"'CasE2' may be 'case2' or 'CASE2'"),
        ("st.q = 1", r"no field 'q' in 'st'; it has a, in"),
        ("n.a = 1", r"no field 'a' in 'n', which is int32"),
        ("soundex(s) = 'x'", r"`SOUNDEX\(s\)` cannot be computed here"),
        ("n > 5 AND sum(n) > 7", r"`SUM\(n\)` cannot .* a SELECT in table.sql\(\)"),
        ("n IN (SELECT 1)", "queries inside of conditions are for table.sql"),
        ("s LIKE s", "the pattern of LIKE is written down"),
        ("s > 5", "string does not compare with int64; CAST"),
        ("n = 'x'", "`'x'` is no int32"),
        ("n = '1.5'", "`'1.5'` is no int32"),
        ("secs = '2024-01-01 00:00+02'", r"is no timestamp\[s\]"),
        ("day = 'yesterday'", r"is no date32\[day\]"),
        ("id = 'x'", "`'x'` is no UUID"),
        ("n + s > 1", "`s` is string; a number is asked for"),
        ("n AND b", "`n` is int32; a condition is asked for"),
        ("f // 2 = 1", r"// and % are of integers, and `f` is double; FLOOR\(a / b\)"),
        ("day + INTERVAL 1 MONTH > day", "move them to the other side"),
        ("n = $m", r"no value is given for \$m; given are: \$n"),
        ("n = ?", "give parameters names"),
        ("n BETWEEN SYMMETRIC 3 AND 1", "of it symmetric is not understood"),
        ("TRY_CAST(s AS INT) = 1", "write CAST"),
        ("CAST(f AS VARCHAR) = '1'", "no value of double becomes string"),
        ("CAST(s AS STRUCT(a INT)) IS NULL", "no value is cast to"),
        ("CASE WHEN b THEN 1 ELSE 'x' END = 1", "`'x'` is no int64|gives int64 or string"),
        ("st = 1", "does not compare"),
        ("st.a IS NULL = b AND now() > at", r"`now\(\)` cannot be computed"),
        ("CURRENT_DATE > day", r"give the day as a \$parameter"),
        ("TRIM(LEADING 'a' FROM s COLLATE x) = ''", "cannot be computed|line 1"),
        ("(" * 3000 + "b" + ")" * 3000, "inside one another"),
    ],
    ids=lambda given: given[:40] if isinstance(given, str) else "",
)
def test_what_becomes_nothing_is_quoted(text: str, said: str) -> None:
    with pytest.raises(kc.InvalidArgument, match=said):
        expression_of(text, SCHEMA, parameters={"n": 1})


WORDS = (
    "n s f day 'a' '2024-01-01' 1 2.5 NULL TRUE ( ) , + - * / // % = < AND OR NOT IN LIKE ILIKE BETWEEN IS "
    "CASE WHEN THEN ELSE END CAST AS INT DATE INTERVAL $n ? :: || COALESCE NULLIF ROUND GREATEST LENGTH st . "
    "[ ] { : SELECT FROM this WHERE ESCAPE DISTINCT EXTRACT TRIM SUBSTR OVER SUM EXISTS ANY ALL -> @ & ^ ~ # "
    "; -- /* ' \" \\ x'ab' e'a' \0 1e400 0x1F COLLATE ZONE FILTER => STRUCT ARRAY DEFAULT IF TRY_CAST "
    "DECIMAL(1,AT) DATE_TRUNC"
)


def test_any_text_is_an_expression_or_a_mistake(pytestconfig: pytest.Config) -> None:
    """Nothing of sqlglot's or Arrow's own errors comes out."""
    seed = pytestconfig.getoption("--seed")
    random, words = Random(seed), WORDS.split(" ")
    read = 0
    for _ in range(2_000):
        text = " ".join(random.choice(words) for _ in range(random.randint(1, 8)))
        try:
            expression_of(text, SCHEMA, parameters={"n": 1})
            read += 1
        except (kc.InvalidArgument, kc.NotSupported):
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}: {text!r}") from error
    assert read


def test_many_parts_are_read(table: kc.Table) -> None:
    many = range(1_000)
    assert table.count(" OR ".join(f"k = {i}" for i in many)) == 3
    assert table.count(" AND ".join(f"k <> {i}" for i in many)) == 0
    listed = pa.array(list(many), pa.uint16())
    for values in (list(many), np.arange(1_000), listed, pa.chunked_array([listed])):
        assert table.count(kc.expr("k IN $values", values=values)) == 3


def test_broken_values_are_refused(table: kc.Table) -> None:
    offsets = pa.py_buffer(np.array([0, 1], np.int32))
    broken = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])  # no UTF-8
    for value in (broken, broken[0], "\ud800", object()):
        with pytest.raises(kc.InvalidArgument, match=r"\$value"):
            table.count(kc.expr("s IN $value", value=value))
    with pytest.raises(kc.InvalidArgument):
        table.count("s = '\ud800'")


def test_two_rows_are_told_apart() -> None:
    both = ("old", "new")
    assert expression_of("old.n < new.n", SCHEMA, rows=both).equals(F("old", "n") < F("new", "n"))
    source = pa.schema([("n", pa.int64()), ("more", pa.string())])
    found = expression_of("more = 'x' AND new.n = 1 AND OLD.st.a = 2", (SCHEMA, source), rows=both)
    one = F("new", "more") == "x"
    two, three = F("new", "n") == scalar(1, pa.int64()), F("old", "st", "a") == scalar(2, pa.int64())
    # Of three parts the first two stand together.
    assert found.equals((one & two) & three)
    with pytest.raises(kc.InvalidArgument, match=r"`n` may be old.n and new.n"):
        expression_of("n = 1", (SCHEMA, source), rows=both)


@pytest.fixture
def table(make: Make) -> kc.Table:
    made = make(SCHEMA.insert(0, pa.field("k", pa.int64(), nullable=False)))
    made.insert(
        {
            "k": [1, 2, 3], "n": [1, 2, None], "f": [0.5, float("nan"), None], "s": ["ab", "b", None],
            "day": [dt.date(2024, 2, 1), None, dt.date(2023, 1, 1)], "u8": [200, 7, None],
            "st": [{"a": 1, "in": {"x": "y"}}, None, {"a": None, "in": None}],
        }
    )  # fmt: skip
    return made


def keys(table: kc.Table, where: Any) -> list[int]:
    found: list[int] = table.scan(["k"], where, order="key").to_table()["k"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n / 2 = 0.5", [1]),
        ("n // 2 = 0", [1]),
        ("n // (n - 1) IS NULL", [1, 3]),
        ("10 % NULLIF(n, 1) = 0", [2]),
        ("f > 1e300", [2]),
        ("f = f", [1, 2]),
        ("NOT n > 1", [1]),
        ("NOT (n > 1 AND f > 0)", [1]),
        ("n NOT IN (2, NULL)", []),
        ("n IN (2, NULL)", [2]),
        ("n IN ()", []),
        ("n IS DISTINCT FROM 2", [1, 3]),
        ("st.a = 1 AND st.\"in\".x = 'y'", [1]),
        ("st IS NULL", [2]),
        ("u8 > n * 150", [1]),
        ("CASE WHEN n = 1 THEN 'x' WHEN n = 2 THEN s END = 'b'", [2]),
        ("COALESCE(n, 7) = 7", [3]),
        ("GREATEST(n, NULL, 2) = 2 AND LEAST(f, 3) <= 3", [1, 2, 3]),
        ("LENGTH(s || '!') = 3 AND UPPER(s) = 'AB'", [1]),
        ("day + INTERVAL 1 DAY = TIMESTAMP '2024-02-02'", [1]),
        ("year(day) = 2023", [3]),
        ("ROUND(f, 0) = 1", [1]),
        ("f < 1 AND CAST(f + 2 AS INT) = 2", [1]),
        ("f < 1 AND CAST(f AS DECIMAL(3, 0)) = CAST(0.5 AS DECIMAL(3, 0))", [1]),
        ("true", [1, 2, 3]),
        ("1 = 2", []),
        ("NULL", []),
    ],
)
def test_what_a_condition_finds(table: kc.Table, text: str, found: list[int]) -> None:
    assert keys(table, text) == found
    assert table.count(text) == len(found)


def test_the_largest_integers_compare(make: Make) -> None:
    made = make(pa.schema([("k", pa.int64()), ("u", pa.uint64())]))
    most = (1 << 64) - 1
    made.insert({"k": [-1, 0, (1 << 63) - 1], "u": [most, 0, (1 << 63) - 1]})
    assert keys(made, "u > k") == [-1] and keys(made, "k = u") == [0, (1 << 63) - 1]
    assert keys(made, f"u = {most}") == [-1] and keys(made, f"u > {most}") == []
    assert keys(made, "k < 1e19 AND k > -9223372036854775809 AND u >= -1") == [-1, 0, (1 << 63) - 1]
    assert keys(made, "k IN (9223372036854775807, 9223372036854775808)") == [(1 << 63) - 1]


def test_every_where_takes_text(table: kc.Table) -> None:
    text = "s LIKE 'a%'"
    assert table.count(text) == 1
    with table.snapshot() as now:
        assert now.scan(["k"], text).to_pylist() == [{"k": 1}]
        [token] = table.scan_tokens(["k"], text)
        assert table.scan_token(pickle.loads(pickle.dumps(token))).to_pylist() == [{"k": 1}]
        assert pickle.loads(pickle.dumps(table.scan(["k"], text))).to_pylist() == [{"k": 1}]
        assert table.changes(where=text).to_table()["k"].to_pylist() == [1]
        assert table.update(where=text, set={"s": "plain + text"}).updated == 1
        assert table.get(1, ["s"]) == {"s": "plain + text"}
        assert table.delete(where=kc.expr("k IN $keys", keys=[1, 2])).deleted == 2
        assert now.scan(where="true").count() == 3
    assert table.delete(where="true").deleted == 1


def test_new_values_are_marked_text(table: kc.Table) -> None:
    set_ = {"n": kc.expr("n + $x", x=10), "s": kc.expr("s || '!'"), "f": 2.0, "st.a": kc.expr("n")}
    assert table.update(where=kc.expr("n >= $least", least=1), set=set_).updated == 2
    assert table.get(1, ["n", "s", "f", "st"]) == {
        "n": 11, "s": "ab!", "f": 2.0, "st": {"a": 1, "in": {"x": "y"}}
    }  # fmt: skip
    for text, said in [
        ("n / 2", "set: .*Float value 5.5"),
        ("2.5", "`2.5` is decimal.* no value of the column, which is int32"),
        ("s", "`s` is string, and no value of the column"),
        ("nobody", "set: column 'n': SQL: no column 'nobody'"),
        ("300000 * 300000", "column 'n'.*"),
    ]:
        with pytest.raises(kc.InvalidArgument, match=said):
            table.update(where="k = 1", set={"n": kc.expr(text)})
    assert table.update(where="k = 1", set={"n": kc.expr("CAST(n / 2 AS INT)")}).updated == 1
    assert table.get(1, ["n"]) == {"n": 6}


def test_a_named_write_knows_its_text(table: kc.Table) -> None:
    """As the expression that it becomes."""
    first = table.update(where="n > 1", set={"f": 5.0}, txn=("job", 1))
    again = table.update(where=F("n") > scalar(1, N), set={"f": 5.0}, txn=("job", 1))
    assert again.deduplicated and again.timestamp == first.timestamp
    every = table.update(where="true", set={"f": 6.0}, txn=("job", 2))
    assert table.update(where="true", set={"f": 6.0}, txn=("job", 2)).timestamp == every.timestamp
    with pytest.raises(kc.TokenMismatch):
        table.update(where="n > 0", set={"f": 6.0}, txn=("job", 2))


def test_text_follows_the_schema(table: kc.Table) -> None:
    """A text that was read before is read anew where columns are others."""
    assert keys(table, "n = 1") == [1]
    table.alter(rename={"n": "m", "Case": "N"})
    assert keys(table, "m = 1") == [1] and keys(table, "n = 1") == []


def test_a_prefix_is_a_range_of_keys(make: Make) -> None:
    table = make(pa.schema([("k", pa.string()), ("v", pa.int64())]), "k", ingest_threshold_rows=100)
    for part in "abc":
        table.insert({"k": [f"{part}{i:05}" for i in range(20_000)], "v": list(range(20_000))})

    def looked_at(where: str) -> tuple[int, int]:
        plan = table.scan(where=where).explain()
        return plan.rowsets - plan.rowsets_pruned, plan.rows_by_keys

    assert looked_at("k LIKE 'b0001%'") == (1, 10) == (1, table.count("k LIKE 'b0001%'"))
    assert looked_at("starts_with(k, 'b0001')") == (1, 10)
    assert looked_at("k LIKE 'b0001%' AND v % 2 = 0") == (1, 10)
    assert looked_at("k LIKE 'b0001_'")[0] == 1
    assert looked_at("k LIKE '%0001'") == (3, 60_000)
    assert looked_at("k >= 'b' AND k < 'b00002'") == (1, 2)


def test_text_is_read_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from kudu_core.table.opened import kept_plans

    calls = []
    usual = kept_plans.without_text
    monkeypatch.setattr(kept_plans, "without_text", lambda *given: calls.append(given) or usual(*given))
    table = make(pa.schema([("k", pa.int64())]))
    for _ in range(3):
        assert table.count("k > 1") == 0
    assert len(calls) == 1
    table.count(kc.expr("k > $k", k=1))
    table.count(kc.expr("k > $k", k=2))
    assert len(calls) == 3, "the values of parameters are not told apart by the text"


def test_without_sqlglot_the_extra_is_named(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(kc.NotSupported, match=re.escape("pip install 'kudu-core[sql]'")):
        table.count("n > 41")


def test_text_costs_nobody_who_writes_none() -> None:
    program = (
        "import sys, tempfile, kudu_core as kc\n"
        "t = kc.create_table(tempfile.mkdtemp() + '/t', [('k', 'int64')], 'k')\n"
        "t.insert([{'k': 1}]); t.count([('k', '>', 0)]); t.close()\n"
        "assert not {'sqlglot', 'duckdb', 'kudu_core.sql.translate'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)
