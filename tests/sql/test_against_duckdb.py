"""Random conditions and new values over random rows mean what they mean in DuckDB.

``--seed`` chooses where the seeds begin; ``--long`` draws more of them.
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.sql.sql_texts import SCHEMA, SqlTexts, rows_of

SHORT, LONG = 8, 300
"""Seeds."""
ROWS, TEXTS = 60, 40


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first = metafunc.config.getoption("--seed")
    seeds = LONG if metafunc.config.getoption("--long") else SHORT
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(first, first + seeds))


def both(path: Path, random: Random) -> tuple[kc.Table, Any]:
    """The same rows here and in DuckDB, here in two rowsets and in memory."""
    rows = rows_of(random, ROWS)
    table = kc.create_table(path / "t", SCHEMA, "k", options={"maintenance": "manual"})
    third = ROWS // 3
    for first in range(0, ROWS, third):
        table.insert(rows.slice(first, third))
        if first < 2 * third:
            table.flush()
    other = duckdb.connect()
    other.execute("SET TimeZone = 'UTC'")
    other.register("given", rows)
    other.execute("CREATE TABLE this AS SELECT * FROM given")
    return table, other


def answered(ask: Any) -> Any:
    """What it says, or that it fails."""
    try:
        return ask()
    except (kc.InvalidArgument, duckdb.Error) as error:
        return f"{type(error).__module__}: {error}"


def fails(answer: Any) -> bool:
    return isinstance(answer, str)


def test_conditions_find_the_same_rows(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    table, other = both(tmp_path, random)
    texts, found = SqlTexts(random), 0
    with table:
        for _ in range(TEXTS):
            text = texts.condition()
            asked = f"SELECT k FROM this WHERE {text}"
            wanted = answered(lambda asked=asked: sorted(k for (k,) in other.execute(asked).fetchall()))
            got = answered(lambda text=text: sorted(table.scan(["k"], text).to_table()["k"].to_pylist()))
            assert (fails(got) and fails(wanted)) or got == wanted, f"seed {seed}: {text}"
            found += 0 if fails(got) else 0 < len(got) < ROWS
    assert found > TEXTS // 4, "conditions that say nothing"


ASSIGNED = {
    "i64": "integer", "f64": "float", "s": "text", "b": "condition", "day": "day", "tm": "moment",
}  # fmt: skip


def test_updates_and_deletions_leave_the_same_rows(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    table, other = both(tmp_path, random)
    texts, done = SqlTexts(random), 0
    with table:
        for _ in range(TEXTS // 2):
            where = texts.condition(2)
            if random.random() < 0.2:
                text = f"DELETE FROM this WHERE {where} AND k % 5 = {random.randrange(5)}"
            else:
                names = random.sample(sorted(ASSIGNED), 2)
                new = ", ".join(f"{name} = {getattr(texts, ASSIGNED[name])(2)}" for name in names)
                text = f"UPDATE this SET {new} WHERE {where}"
            # Products of products leave what the columns hold; both say so, and nothing is changed.
            wanted = answered(lambda text=text: other.execute(text) and 1)
            got = answered(lambda text=text: table.sql(text))
            assert fails(wanted) == fails(got), f"seed {seed}: {text}: {wanted} / {got}"
            done += not fails(got)
            rows = table.scan(order="key").to_table().to_pylist()
            there = other.sql("SELECT * FROM this ORDER BY k").to_arrow_table().cast(SCHEMA).to_pylist()
            assert len(rows) == len(there), f"seed {seed}: {text}"
            for one, two in zip(rows, there, strict=True):
                assert {name: plain(value) for name, value in one.items()} == {
                    name: plain(value) for name, value in two.items()
                }, f"seed {seed}: {text}"
    assert done > TEXTS // 4


def plain(value: Any) -> Any:
    """NaN is one value, and so are both zeros; the last bits of a float are not told."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.12g}") + 0.0
    return value


def test_the_rows_have_what_matters() -> None:
    rows = rows_of(Random(0), 500)
    assert all(rows[name].null_count for name in rows.column_names if name not in ("k", "st"))
    assert pa.compute.sum(pa.compute.is_nan(rows["f64"])).as_py()
