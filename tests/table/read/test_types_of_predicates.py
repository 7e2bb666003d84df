"""Columns and constants of every type: the same answer or the same refusal, wherever the rows lie."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.schema.declare import Column, declare
from tests.support.cases.comparisons import COLUMNS, PREDICATES
from tests.support.cases.constants import of_stored_types
from tests.support.tables import Make

F = pc.field
REFUSED = "refused"
ROWS = pa.table({"k": pa.array(range(1, 5), pa.int64()), **COLUMNS})
SCHEMA = declare([Column("k", "int64"), *(Column(name, cells.type) for name, cells in COLUMNS.items())], "k")
KNOWN = [
    F("float64") > 1_600_000_000_000_000_000,
    F("float32") < 2**25,
    F("decimal_38_0") == pa.scalar("1.00").cast(pa.decimal128(3, 2)),
    (F("k") > 2.5) & (F("string") > 5),
    (F("k") == 9) & (F("time") < pa.scalar(0, pa.timestamp("us", "UTC"))),
]


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except kc.InvalidArgument:
        return REFUSED


def reads(table: kc.Table, where: pc.Expression, before: int, after: int) -> Iterator[tuple[str, Any]]:
    """Every read that takes a predicate, as the keys that it selects."""
    yield "scan", lambda: table.scan(["k"], where).to_table()["k"].to_pylist()
    yield "all columns", lambda: table.scan(None, where).to_table()["k"].to_pylist()
    yield "changes", lambda: table.changes(before, after, where=where).to_table()["k"].to_pylist()
    yield "net", lambda: table.changes(before, after, where=where, net=True).to_table()["k"].to_pylist()
    yield "dataset", lambda: table.to_dataset().to_table(columns=["k"], filter=where)["k"].to_pylist()


@pytest.fixture
def tables(make: Make, tmp_path: Path) -> dict[str, tuple[kc.Table, int, int]]:
    """By where the rows lie: the table, its time before the rows and after."""
    made = {}
    for where in ("memory", "disk"):
        table = make(ROWS.schema, at=tmp_path / where)
        before = table.timestamp
        table.insert(ROWS)
        made[where] = (table, before, table.timestamp)
    made["disk"][0].flush()
    return made


def test_types_are_refused_or_answered_everywhere(
    tables: dict[str, tuple[kc.Table, int, int]], seed: int, long: bool
) -> None:
    drawn = PREDICATES if long else random.Random(seed).sample(PREDICATES, 60)
    answers = []
    for where in [*KNOWN, *drawn]:
        found = {
            (place, name): outcome(read)
            for place, (table, before, after) in tables.items()
            for name, read in reads(table, where, before, after)
        }
        [first, *others] = found.values()
        assert others == [first] * len(others), (where, found)
        number = first if first == REFUSED else len(first)
        for table, _, _ in tables.values():
            assert outcome(lambda: table.count(where)) == number, where  # noqa: B023
            nobody = (F("k") < 0) & where
            expected = REFUSED if is_refused_for_no_row(where) else 0
            assert outcome(lambda: table.delete(where=nobody).deleted) == expected, where  # noqa: B023
        with suppress(pa.ArrowException):  # for the types, or for a row that the comparison rules out
            assert first == ROWS.filter(of_stored_types(where, SCHEMA))["k"].to_pylist(), where
        answers.append(first)
    assert answers[: len(KNOWN)] == [REFUSED] * len(KNOWN)
    assert any(answer != REFUSED for answer in answers)


def is_refused_for_no_row(where: pc.Expression) -> bool:
    """For a row of NULLs: whatever that fails for is a matter of types here."""
    try:
        ROWS.slice(3).filter(of_stored_types(where, SCHEMA))
    except pa.ArrowException:
        return True
    return False


def test_updates_are_refused_or_answered_alike(
    tables: dict[str, tuple[kc.Table, int, int]], seed: int, long: bool
) -> None:
    for where in [*KNOWN, *random.Random(seed).sample(PREDICATES, 500 if long else 30)]:
        found = [
            outcome(lambda: table.update(where=where, set={"bool": F("bool")}).updated)  # noqa: B023
            for table, _, _ in tables.values()
        ]
        assert found[0] == found[1], where
