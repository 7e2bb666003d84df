"""``table.sql``: what each statement does, and what is said of those that are none of ours."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.tables import Make

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = [
    kc.Column("k", pa.string(), nullable=False),
    kc.Column("n", pa.int32(), default=7),
    kc.Column("d", pa.decimal128(9, 2)),
    kc.Column("st", pa.struct([("a", pa.int64())])),
]
OTHER = pa.table({"k": ["a1", "zz"], "m": [10, 20]})


@pytest.fixture
def table(make: Make, tmp_path: Path) -> kc.Table:
    made = make(SCHEMA, "k", at=tmp_path / "Orders")
    numbers = [(part, i) for part in "ab" for i in range(5)]
    made.insert([{"k": f"{part}{i}", "n": i, "d": Decimal(i) / 2, "st": {"a": i}} for part, i in numbers])
    return made


def rows(table: kc.Table, text: str, **parameters: Any) -> list[tuple[Any, ...]]:
    found = table.sql(text, **parameters)
    assert isinstance(found, pa.Table)
    return [tuple(row.values()) for row in found.to_pylist()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT k FROM this WHERE n = 1 ORDER BY k", [("a1",), ("b1",)]),
        ("  -- all\n /* of */ SELECT count(*) FROM orders", [(10,)]),
        ('(SELECT sum(st.a) FROM "Orders")', [(20,)]),
        ("WITH x AS (SELECT max(n) AS m FROM this) SELECT m FROM x", [(4,)]),
        ("FROM this SELECT k WHERE k LIKE 'b_' AND n > 3", [("b4",)]),
        ("SELECT k FROM this WHERE k LIKE 'a%' AND NOT k LIKE 'a1%' AND n < 3", [("a0",), ("a2",)]),
        ("SELECT count(*) FROM this WHERE k NOT LIKE 'b1%' AND k NOT ILIKE 'A%'", [(4,)]),
        ("SELECT count(*) FROM this WHERE (k LIKE 'b%' OR n = 0) IS NOT TRUE", [(4,)]),
        ("VALUES (1, 'x')", [(1, "x")]),
        ("SELECT $n + 1, $s", [(42, "it's")]),
        ("SELECT m FROM other JOIN this USING (k)", [(10,)]),
        ("SELECT m FROM frame ORDER BY m", [(10,), (20,)]),
        ("SELECT x FROM plain", [(5,)]),
        ("SELECT y FROM dicts", [(6,)]),
        ("SELECT n FROM more", [(1,)]),
    ],
)
def test_a_query_runs_in_duckdb(table: kc.Table, make: Make, tmp_path: Path, text: str, found: Any) -> None:
    more = make(pa.schema([("n", pa.int64())]), "n", at=tmp_path / "more")
    more.insert([{"n": 1}])
    data = {"other": OTHER, "frame": pl.DataFrame(OTHER), "more": more, "plain": {"x": [5]}}
    data["dicts"] = [{"y": 6}]
    assert rows(table, text, n=41, s="it's", **data) == found


def test_a_query_tells_its_plan(table: kc.Table) -> None:
    [plan] = rows(table, "EXPLAIN SELECT k FROM this WHERE k LIKE 'a%'")
    assert "PYTHON_ARROW_SCAN" in plan[1].upper().replace(" ", "_") or "ARROW" in plan[1].upper()
    assert [name for name, *_ in rows(table, "DESCRIBE this")] == ["k", "n", "d", "st"]


def test_a_prefix_is_not_read_past(make: Make, tmp_path: Path) -> None:
    """Pages of one rowset in three, as with the range written out."""
    table = make(pa.schema([("k", pa.string()), ("v", pa.int64())]), "k", ingest_threshold_rows=100)
    for part in "abc":
        table.insert({"k": [f"{part}{i:06}" for i in range(100_000)], "v": list(range(100_000))})
    path = table.path
    table.close()

    def read(text: str) -> tuple[Any, int]:
        with kc.open_table(path) as reader:
            found = rows(reader, text)
            return found, int(reader.metrics()["page_cache_misses"])

    whole, every_page = read("SELECT sum(v) FROM this WHERE k NOT LIKE 'x%'")
    assert whole == [(3 * sum(range(100_000)),)]
    found, pages = read("SELECT sum(v) FROM this WHERE k LIKE 'b0000%'")
    assert found == [(sum(range(100)),)]
    assert read("SELECT sum(v) FROM this WHERE k >= 'b0000' AND k < 'b0001'") == (found, pages)
    assert pages < every_page / 5


def test_a_query_has_one_snapshot_and_lets_it_go(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, made = kc.Table.to_dataset, []

    def to_dataset(self: kc.Table) -> Any:
        found = usual(self)
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(kc.Table, "to_dataset", to_dataset)
    both = rows(table, "SELECT (SELECT count(*) FROM this), (SELECT count(*) FROM orders)")
    assert both == [(10, 10)]
    gc.collect()
    assert len(made) == 1 and made[0]() is None, "which holds the snapshot"
    table.sql("DELETE FROM this WHERE true")
    assert rows(table, "SELECT count(*) FROM this") == [(0,)]


def test_times_without_a_zone_are_in_utc(tmp_path: Path) -> None:
    """Wherever the machine is, as in conditions."""
    program = (
        "import pyarrow as pa, kudu_core as kc\n"
        "t = kc.create_table('t', pa.schema([('tm', pa.timestamp('us', 'UTC'))]), 'tm')\n"
        "t.insert([{'tm': '2026-01-31T12:00:00Z'}])\n"
        "text = \"tm = TIMESTAMP '2026-01-31 12:00:00'\"\n"
        "assert t.count(text) == 1\n"
        "assert t.sql(f'SELECT count(*) AS n FROM this WHERE {text}').to_pylist() == [{'n': 1}]\n"
        "t.close()"
    )
    env = os.environ | {"TZ": "Asia/Tokyo", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=env, check=True, timeout=100)


def test_updates(table: kc.Table) -> None:
    text = "UPDATE this SET n = n * $by, st.a = NULL WHERE k LIKE 'a%' AND n > 2"
    assert table.sql(text, by=10).updated == 2
    assert table.get("a4") == {"k": "a4", "n": 40, "d": Decimal("2.00"), "st": {"a": None}}
    assert table.sql("UPDATE Orders AS t SET d = t.n, N = 1 WHERE t.k = 'b3'").updated == 1
    assert table.get("b3", ["n", "d"]) == {"n": 1, "d": Decimal("3.00")}
    text = "UPDATE this SET n = (SELECT max(m) FROM o) WHERE k IN (SELECT k FROM o)"
    assert table.sql(text, o=OTHER).updated == 1
    assert table.get("a1", ["n"]) == {"n": 20}
    of_rows = "WITH x AS (SELECT k FROM this WHERE n = 20) UPDATE this SET n = 0 WHERE k IN (SELECT k FROM x)"
    assert table.sql(of_rows).updated == 1
    assert table.sql("UPDATE this SET n = 5 WHERE true").updated == 10


def test_deletions(table: kc.Table) -> None:
    assert table.sql("DELETE FROM this AS t WHERE t.n > 3").deleted == 2
    text = "DELETE FROM this WHERE k IN (SELECT k FROM gone) OR k = $k"
    assert table.sql(text, gone=OTHER, k="b0").deleted == 2
    assert table.sql("DELETE FROM this WHERE k = (SELECT k FROM o WHERE m > 100)", o=OTHER).deleted == 0
    assert len(table) == 6


def test_insertions(table: kc.Table) -> None:
    assert table.sql("INSERT INTO this (k, d) VALUES ('x', 1.005), ($k, NULL)", k="y").inserted == 2
    assert table.get("x") == {"k": "x", "n": 7, "d": Decimal("1.01"), "st": None}
    copied = table.sql("INSERT INTO Orders SELECT 'c' || k, n + 1, d, st FROM this WHERE k = 'a4'")
    assert copied.inserted == 1
    assert table.get("ca4") == {"k": "ca4", "n": 5, "d": Decimal("2.00"), "st": {"a": 4}}
    skipped = table.sql("INSERT INTO this BY NAME SELECT 1 AS n, k FROM o ON CONFLICT DO NOTHING", o=OTHER)
    assert (skipped.inserted, skipped.ignored) == (1, 1) and table.get("a1", ["n"]) == {"n": 1}
    assert table.sql("INSERT OR IGNORE INTO this (k) VALUES ('a1')").ignored == 1
    text = "WITH x AS (SELECT 'a1' AS k) INSERT OR REPLACE INTO this (k, n) SELECT k, 99 FROM x"
    assert table.sql(text).updated == 1
    assert table.get("a1") == {"k": "a1", "n": 99, "d": Decimal("0.50"), "st": {"a": 1}}
    with pytest.raises(kc.RowErrors, match="already_present"):
        table.sql("INSERT INTO this (k) VALUES ('new'), ('a1')")
    assert table.get("new") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("UPDATE this SET n = 1", "UPDATE without WHERE is about every row; say so: WHERE true"),
        ("DELETE FROM this", "DELETE without WHERE"),
        ("UPDATE that SET n = 1 WHERE true", "the table is called this or Orders, not 'that'"),
        ("UPDATE this SET n = 1, n = 2 WHERE true", "column 'n' is set twice"),
        ("UPDATE this SET k = 'x' WHERE true", "'k' is a key column"),
        ("UPDATE this SET n = 2.5 WHERE true", "`2.5` is decimal.* CAST or ROUND it"),
        ("UPDATE this SET n = d WHERE true", "set: "),
        ("UPDATE this SET n = o.m FROM o WHERE o.k = this.k", "with FROM `FROM o` is not understood; MERGE"),
        ("UPDATE this SET n = 1 WHERE true RETURNING k", "with RETURNING"),
        ("DELETE FROM this USING o WHERE o.k = this.k", "DELETE with USING `o` is not understood"),
        ("UPDATE this SET q = 1 WHERE true", "no column 'q'"),
        ("DELETE FROM this WHERE n", "`n` is int32, no condition"),
        ("DELETE FROM this WHERE n IN (SELECT k, m FROM o)", "gives 2 columns; one is asked for"),
        ("DELETE FROM this WHERE n = (SELECT m FROM o)", "gives 2 rows; one is asked for"),
        ("DELETE FROM this WHERE EXISTS (SELECT 1)", "write IN with a query"),
        ("DELETE FROM this WHERE n = $x", r"no value is given for \$x"),
        ("INSERT INTO this VALUES ('x')", "DuckDB says: .*4 columns but 1 values"),
        ("INSERT INTO this (k, q) VALUES ('x', 1)", "no column 'q'; there are k, n"),
        ("INSERT INTO this (k, n) VALUES ('x', 'y')", "Could not convert string 'y'"),
        ("INSERT INTO this (k) VALUES ('a1') ON CONFLICT (k) DO UPDATE SET n = 1", "MERGE computes new ones"),
        ("INSERT INTO this (k) VALUES ('q') RETURNING k", "with RETURNING"),
        ("INSERT INTO this DEFAULT VALUES", "DEFAULT|VALUES"),
        ("SELECT nobody FROM this", "DuckDB says: .*nobody"),
        ("SELECT 1 FROM that", "DuckDB says: .*that"),
        ("SELECT $y", r"no value is given for \$y; given are: \$v"),
        ("SELECT * FROM bad", "a parameter is no table"),
        ("SELECT 1; SELECT 2", "one statement is asked for, there are 2"),
        ("UPDATE this SET n = 1 WHERE true; SELECT 1", "one statement is asked for, there are 2"),
        ("UPDATE this SET n = WHERE true", r"(?s)line 1, at '.*\^"),
        ("COPY this TO 'x.csv'", r"sql\(\) runs SELECT.*; for COPY there is DuckDB"),
        ("CREATE TABLE x (k INT)", r"for CREATE there is kudu_core.create_table\(\)"),
        ("ALTER TABLE this ADD COLUMN x INT", r"for ALTER there is table.alter\(\)"),
        ("SET threads = 1", r"sql\(\) runs SELECT"),
        ("SELEC 1", "DuckDB says: .*SELEC"),
        ("", "the text of one statement"),
        ("  ", "the text of one statement"),
    ],
    ids=lambda given: given[:50],
)
def test_what_is_refused_changes_nothing(table: kc.Table, text: str, said: str) -> None:
    before = table.timestamp
    with pytest.raises((kc.InvalidArgument, kc.NotSupported), match=said):
        table.sql(text, o=OTHER, v=1, **({"bad": [{"y": 6}, {"y": "x"}]} if "bad" in text else {}))
    assert table.timestamp == before


def test_a_parameter_is_not_called_like_the_table(table: kc.Table) -> None:
    for name in ("this", "orders"):
        with pytest.raises(kc.InvalidArgument, match=f"'{name}' is the table itself"):
            table.sql("SELECT 1", **{name: OTHER})


def test_a_reader_reads_and_does_not_write(table: kc.Table) -> None:
    table.flush()
    with kc.open_table(table.path) as reader:
        assert rows(reader, "SELECT count(*) FROM this") == [(10,)]
        with pytest.raises(kc.ReadOnly):
            reader.sql("DELETE FROM this WHERE true")
    table.close()
    with pytest.raises(kc.Closed):
        table.sql("SELECT 1 FROM this")


def test_without_duckdb_writes_are_understood(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert table.sql("UPDATE this SET n = 1 WHERE k = 'a2'").updated == 1
    for text in ("SELECT 1", "INSERT INTO this (k) VALUES ('x')"):
        with pytest.raises(kc.NotSupported, match=r"pip install 'kudu-core\[sql\]'"):
            table.sql(text)


def test_damage_met_by_a_query_is_no_mistake_of_its_text(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("v", pa.int64())]), "k")
    table.insert({"k": list(range(1000)), "v": list(range(1000))})
    table.flush()
    path = Path(table.path)
    table.close()
    [file] = path.rglob("*.rows")
    raw = bytearray(file.read_bytes())
    raw[100:200] = bytes(100)
    file.write_bytes(raw)
    with kc.open_table(path) as reader, pytest.raises(kc.KuduError) as told:
        reader.sql("SELECT sum(v), sum(k) FROM this")
    assert not isinstance(told.value, kc.InvalidArgument) and file.name in str(told.value)
