"""Predicates that fail on some rows: whether a query fails depends on its rows, never on where they lie.

``10 / b >= 5`` fails on a row with b = 0.  It must not fail because of a row that was deleted, of what a row
was or will be at another time, or of one that another part of the predicate rules out.  The same history is
laid out in several ways, and every call is made at several times in each; what comes out, rows or an error,
is compared with a model that looks at one row after the other.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make

F = pc.field
TEN = pc.scalar(10)
SCHEMA = [
    kc.Column("k", "int64"),
    kc.Column("b", "int64"),
    kc.Column("u", "uint64"),
    kc.Column("s", "string"),
    kc.Column("t", "timestamp[us]"),
]
FAR = dt.datetime(9000, 1, 1)
CELLS: dict[str, tuple[Any, ...]] = {
    "b": (0, 1, 2, 3, None),
    "u": (0, 5, 2**63, 2**64 - 1, None),
    "s": ("1", "22", "x", "", None),
    "t": (dt.datetime(2024, 1, 1), FAR, None),
}

Row = dict[str, Any]
Meaning = Callable[[Row], bool]


def _divided(row: Row) -> bool:
    if row["b"] is None:
        return False
    if row["b"] == 0:
        raise ZeroDivisionError
    return int(10 / row["b"]) >= 5


def _small(row: Row) -> bool:
    """pyarrow casts a uint64 to compare it with an int64, which fails from 2**63 on.  But rows that the
    comparison itself rules out are not looked at."""
    return row["u"] is not None and row["u"] < 6


def _number(row: Row) -> bool:
    if row["s"] is None:
        return False
    return int(row["s"]) > 5


def _fine(row: Row) -> bool:
    """A comparison with a finer unit: the column is cast, which fails on far times."""
    if row["t"] is None:
        return False
    if row["t"] >= FAR:
        raise OverflowError
    return True


DIVIDED = TEN / F("b") >= 5
NUMBER = F("s").cast(pa.int64()) > 5
SMALL = F("u") < pa.scalar(6, pa.int64())
NANO = F("t") != pa.scalar(1, pa.timestamp("ns"))

PREDICATES: dict[str, tuple[Any, Meaning]] = {
    "divided": (DIVIDED, _divided),
    "guarded": ((F("b") != 0) & DIVIDED, lambda r: r["b"] not in (0, None) and _divided(r)),
    "guarded behind": (DIVIDED & (F("b") > 0), lambda r: r["b"] not in (0, None) and _divided(r)),
    "guarded by a list": (F("b").isin([1, 2]) & DIVIDED, lambda r: r["b"] in (1, 2) and _divided(r)),
    "guarded by another column": (
        (F("s") == "1") & DIVIDED,
        lambda r: r["s"] == "1" and _divided(r),
    ),
    "guarded by the key": ((F("k") < 40) & DIVIDED, lambda r: r["k"] < 40 and _divided(r)),
    "guarded by key and value": (
        (F("k") >= 20) & (F("b") >= 1) & DIVIDED,
        lambda r: r["k"] >= 20 and r["b"] is not None and r["b"] >= 1 and _divided(r),
    ),
    "guarded by NULL": (F("b").is_null() & ~(DIVIDED.is_null()), lambda r: False),
    "one of two": (
        (F("s") == "x") | DIVIDED,
        lambda r: _divided(r) or r["s"] == "x",  # both sides are evaluated on every row
    ),
    "number": (NUMBER, _number),
    "number, guarded": (F("s").isin(["1", "22"]) & NUMBER, lambda r: r["s"] in ("1", "22") and _number(r)),
    "small": (SMALL, _small),
    "small and divided": (SMALL & DIVIDED, lambda r: _small(r) and _divided(r)),
    "small numbers": (SMALL & NUMBER, lambda r: _small(r) and _number(r)),
    "finer unit": (NANO, _fine),
    "finer unit, guarded": (
        (F("t") < pa.scalar(FAR, pa.timestamp("us"))) & NANO,
        lambda r: r["t"] is not None and r["t"] < FAR and _fine(r),
    ),
    "filter list": ([("u", "<", 6), ("b", "!=", 0)], lambda r: _small(r) and r["b"] not in (0, None)),
    "not": (~DIVIDED, lambda r: r["b"] is not None and not _divided(r)),
}
"""An expression, and what it says of a row; an exception: it fails on this row."""

FAILS = "fails"


def expected(rows: dict[int, Row] | list[Row], meaning: Meaning) -> Any:
    try:
        given = rows.values() if isinstance(rows, dict) else rows
        return sorted(row["k"] for row in given if meaning(row))
    except (ArithmeticError, ValueError):
        return FAILS


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except kc.InvalidArgument as error:
        assert "where" in str(error)
        return FAILS


# ---- one history, laid out in several ways

Step = tuple[str, list[Row]]


def history(rng: random.Random) -> Iterator[Step]:
    """Rows that make a predicate fail come, go, and become others."""

    def row(key: int) -> Row:
        return {"k": key, **{name: rng.choice(cells) for name, cells in CELLS.items()}}

    keys = list(range(60))
    yield "upsert", [row(k) for k in keys[:40]]
    for _ in range(5):
        act = rng.random()
        if act < 0.4:
            yield "upsert", [row(k) for k in rng.sample(keys, 15)]
        elif act < 0.7:
            yield "delete_ignore", [{"k": k} for k in rng.sample(keys, 15)]
        else:
            name = rng.choice(list(CELLS))
            yield "update_ignore", [{"k": k, name: rng.choice(CELLS[name])} for k in rng.sample(keys, 20)]
    # At the end no row fails what is divided, but many did.
    yield "upsert", [{**row(k), "b": rng.choice((1, 2, 3))} for k in keys[::2]]
    yield "delete_ignore", [{"k": k} for k in keys[1::2]]


def applied(rows: dict[int, Row], step: Step) -> dict[int, Row]:
    op, given = step
    after = dict(rows)
    for row in given:
        if op == "delete_ignore":
            after.pop(row["k"], None)
        elif op == "upsert" or row["k"] in after:
            empty = dict.fromkeys(CELLS)
            after[row["k"]] = {**empty, **after.get(row["k"], {}), **row}
    return after


STEPS = 8
LAYOUTS: dict[str, Callable[[kc.Table, int], object]] = {
    "memory": lambda t, n: None,
    "flushed once": lambda t, n: t.flush() if n == 0 else None,
    "flushed each time": lambda t, n: t.flush(),
    "flushed at the end": lambda t, n: t.flush() if n == STEPS - 1 else None,
    "churned": lambda t, n: t.flush() if n in (0, 3) else None,
    "maintained": lambda t, n: (t.flush(), t.maintain()),
    "merged": lambda t, n: (t.flush(), t.compact(full=True)),
}


@pytest.fixture(scope="module")
def made(
    request: pytest.FixtureRequest, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """(tables by layout, the states by layout: the time of each, rows by key, the step that led to it)."""
    rng = random.Random(seed)
    steps = list(history(rng))
    tables, states = {}, {}
    for name, settle in LAYOUTS.items():
        path = tmp_path_factory.mktemp("layouts") / "t"
        options = {"maintenance": "manual", "durability": "none", "file_grace_s": 0.0}
        partition = kc.HashPartition(["k"], 2)
        table = kc.create_table(path, SCHEMA, "k", partition_by=partition, options=options)
        rows: dict[int, Row] = {}
        states[name] = []
        for number, step in enumerate(steps):
            ts = table.apply([{**row, "_op": step[0]} for row in step[1]]).timestamp
            rows = applied(rows, step)
            states[name].append((ts, rows, step))
            settle(table, number)
        assert len(steps) == STEPS
        tables[name] = table
    yield tables, states
    for table in tables.values():
        table.close()


def calls(table: kc.Table, where: Any, at: int) -> Iterator[tuple[str, Any]]:
    """Every read that takes a predicate, each as the keys that it selects."""
    yield "scan", outcome(lambda: sorted(table.scan(["k"], where, at=at).to_table()["k"].to_pylist()))
    yield (
        "scan in order",
        outcome(lambda: table.scan(["k"], where, at=at, order="key").to_table()["k"].to_pylist()),
    )
    yield "all columns", outcome(lambda: sorted(table.scan(None, where, at=at).to_table()["k"].to_pylist()))
    yield (
        "small batches",
        outcome(lambda: sorted(table.scan(["k"], where, at=at, batch_rows=7).to_table()["k"].to_pylist())),
    )
    yield (
        "tokens",
        outcome(
            lambda: sorted(
                k
                for token in table.scan_tokens(["k"], where, at=at, target_rows=20)
                for k in table.scan_token(token).to_table()["k"].to_pylist()
            )
        ),
    )
    if isinstance(where, pc.Expression):
        yield (
            "dataset",
            outcome(
                lambda: sorted(table.to_dataset(at).to_table(columns=["k"], filter=where)["k"].to_pylist())
            ),
        )


@pytest.mark.parametrize("name", PREDICATES)
def test_what_fails_is_a_matter_of_rows(made: Any, name: str, long: bool) -> None:
    tables, states = made
    where, meaning = PREDICATES[name]
    seen = set()
    for layout, table in tables.items():
        for at, rows, _ in states[layout] if long else states[layout][3::4]:
            wanted = expected(rows, meaning)
            seen.add(wanted == FAILS)
            for call, found in calls(table, where, at):
                assert found == wanted, (layout, call, at)
            number = wanted if wanted == FAILS else len(wanted)
            assert outcome(lambda: table.count(where, at=at)) == number, (layout, at)  # noqa: B023
            ends = wanted if wanted == FAILS else (wanted[0], wanted[-1]) if wanted else (None, None)
            assert outcome(lambda: table.scan(where=where, at=at).min_max("k")) == ends  # noqa: B023
    if name == "divided":
        assert seen == {True, False}, "the history shows both"


@pytest.mark.parametrize("name", PREDICATES)
def test_a_range_of_keys_hides_what_lies_beside_it(made: Any, name: str) -> None:
    tables, states = made
    where, meaning = PREDICATES[name]
    for layout, table in tables.items():
        at, rows, _ = states[layout][4]
        for lower, upper in ((0, 7), (13, 29), (45, 100)):
            some = {k: r for k, r in rows.items() if lower <= k < upper}
            scan = table.scan(["k"], where, at=at, key_range=(lower, upper))
            found = outcome(lambda: sorted(scan.to_table()["k"].to_pylist()))  # noqa: B023
            assert found == expected(some, meaning), (layout, lower)


@pytest.mark.parametrize("span", [1, 2])
@pytest.mark.parametrize("name", PREDICATES)
def test_changes_are_of_rows_that_changed(made: Any, name: str, span: int, long: bool) -> None:
    """The row after, or of a deletion the row before: nothing else of the two is looked at.

    Windows of two calls have updates and deletions at once."""
    tables, states = made
    where, meaning = PREDICATES[name]
    for layout in LAYOUTS if long else ("memory", "churned", "merged"):
        table = tables[layout]
        moments = [(0, {}, ("", [])), *states[layout]]
        for first in range(1, len(moments) - span, 1 if long else 2):
            window = moments[first : first + span + 1]
            before, after = window[0][1], window[-1][1]
            net = [
                after.get(key, before.get(key, {}))
                for key in {*before, *after}
                if before.get(key) != after.get(key)
            ]
            told = [
                new.get(row["k"], old.get(row["k"], {}))
                for (_, old, _), (_, new, (_, given)) in pairwise(window)
                for row in given
                if row["k"] in old or row["k"] in new
            ]
            for rows, is_net in ((net, True), (told, False)):
                changes = table.changes(window[0][0], window[-1][0], columns=["k"], where=where, net=is_net)
                found = outcome(lambda: sorted(changes.to_table()["k"].to_pylist()))  # noqa: B023
                assert found == expected(rows, meaning), (layout, first, is_net)


@pytest.mark.parametrize(
    "name", [n for n, (where, _) in PREDICATES.items() if isinstance(where, pc.Expression)]
)
def test_writes_by_a_predicate(make: Make, tmp_path: Path, seed: int, name: str, long: bool) -> None:
    """In memory and in one of the other layouts, in all of them in the long run."""
    others = list(LAYOUTS)[1:]
    some = others if long else [others[list(PREDICATES).index(name) % len(others)]]
    for layout in ["memory", *some]:
        table = make(SCHEMA, at=tmp_path / layout)
        check_writes(table, layout, *PREDICATES[name], seed)


def check_writes(table: kc.Table, layout: str, where: Any, meaning: Meaning, seed: int) -> None:
    rows: dict[int, Row] = {}
    for number, step in enumerate(history(random.Random(f"{seed}-write"))):
        table.apply([{**row, "_op": step[0]} for row in step[1]])
        rows = applied(rows, step)
        LAYOUTS[layout](table, number)
    wanted = expected(rows, meaning)
    number = wanted if wanted == FAILS else len(wanted)
    set_ = {"s": "set", "u": F("k").cast(pa.uint64())}
    assert outcome(lambda: table.update(where=where, set=set_).updated) == number
    for key in wanted if wanted != FAILS else ():
        rows[key] = {**rows[key], "s": "set", "u": key}
    assert table.scan(order="key").to_pylist() == [rows[key] for key in sorted(rows)]
    wanted = expected(rows, meaning)
    number = wanted if wanted == FAILS else len(wanted)
    assert outcome(lambda: table.delete(where=where).deleted) == number
    kept = [rows[key] for key in sorted(rows) if wanted == FAILS or key not in wanted]
    assert table.scan(order="key").to_pylist() == kept


def test_a_row_of_the_future_and_a_row_of_the_past(make: Make) -> None:
    """The shortest history that shows it."""
    table = make([kc.Column("k", "int64"), kc.Column("b", "int64")])
    before = table.insert({"k": [2, 3], "b": [1, 2]}).timestamp
    table.insert({"k": [1, 4], "b": [0, 0]})
    table.delete([1])
    for flushed in (False, True):
        assert table.count(DIVIDED, at=before) == 2
        with pytest.raises(kc.InvalidArgument, match="divide by zero"):
            table.count(DIVIDED)
        assert table.count((F("b") != 0) & DIVIDED) == 2
        assert table.count(DIVIDED & (F("b") != 0)) == 2
        if not flushed:
            table.flush()
    table.update([{"k": 2, "b": 0}])
    assert table.count((F("b") != 0) & DIVIDED) == 1
    table.delete([2, 4])
    assert table.scan(where=DIVIDED).to_table()["k"].to_pylist() == [3]
