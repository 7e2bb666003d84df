"""What a repetition answers: the counts of the last version, and how many rows were refused, never which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.writers import check_txn
from kudu_core.table.jobs import commit
from tests.support.cases.repetitions import FILES, LOG, SMALL, create, job_of, rows
from tests.support.inside import handle_of
from tests.support.tables import Make

KEYS = [*range(8), 3, 3]
Write = Callable[..., kc.WriteResult]


def by_batch(table: kc.Table, data: pa.Table, **more: Any) -> kc.WriteResult:
    with table.batch(**more) as batch:
        batch.insert(data)
    assert batch.result is not None
    return batch.result


WRITES: dict[str, tuple[Write, int]] = {
    "insert": (lambda t, d, **more: t.insert(d, **more), 4),  # 1 and 2 are there, 3 comes three times
    "insert_ignore": (lambda t, d, **more: t.insert(d, on_conflict="ignore", **more), 0),
    "upsert": (lambda t, d, **more: t.upsert(d, **more), 0),
    "update": (lambda t, d, **more: t.update(d, **more), 8),
    "update_ignore": (lambda t, d, **more: t.update(d, on_missing="ignore", **more), 0),
    "delete": (lambda t, d, **more: t.delete(d.select(["k"]), **more), 8),
    "batch": (by_batch, 4),
}


@pytest.mark.parametrize("options", [LOG, FILES], ids=["log", "files"])
@pytest.mark.parametrize("name", WRITES)
def test_a_repetition_says_how_many_rows_were_refused(
    tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    write, refused = WRITES[name]
    table = create(tmp_path, **options)
    table.insert(rows([1, 2]))
    first = write(table, rows(KEYS), on_error="return", txn=("app", 1))
    assert first.errors is not None
    assert (first.refused, first.errors.num_rows) == (refused, refused)
    for _ in range(2):
        again = write(table, rows(KEYS), on_error="return", txn=("app", 1))
        assert again.deduplicated and again.errors is None
        assert (again.timestamp, again.counts, again.refused) == (first.timestamp, first.counts, refused)
        table.close()
        table = kc.open_table(tmp_path / "t", "rw")
    table.close()


def test_of_versions_before_the_last_nothing_is_kept(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.insert(rows([1, 2]), txn=("app", 1))
        table.insert(rows([2, 3]), txn=("app", 2), on_error="return")
        before = table.insert(rows([1, 2]), txn=("app", 1))
        assert (before.deduplicated, before.counts, before.refused) == (True, (0, 0, 0, 0), None)
        last = table.insert(rows([2, 3]), txn=("app", 2))
        assert (last.deduplicated, last.counts, last.refused) == (True, (1, 0, 0, 0), 1)


def test_a_write_by_predicate_has_no_rows_of_its_own(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.insert(rows([1, 2]))
        assert table.delete(where=pc.field("k") == 1, txn=("app", 1)).refused == 0
        again = table.delete(where=pc.field("k") == 1, txn=("app", 1))
        assert (again.deduplicated, again.deleted, again.refused) == (True, 1, None)
        table.insert(rows([]), txn=("app", 2))
        assert table.insert(rows([]), txn=("app", 2)).refused == 0, "none were given"


@pytest.mark.parametrize("fixed", [{}, {"overwrite": True}], ids=["rows that repeat a key", "overwrite"])
def test_a_job_refuses_no_single_row(tmp_path: Path, fixed: dict[str, Any]) -> None:
    """What it drops of rows with one key, or deletes beside them, is not refused."""
    with create(tmp_path) as table:
        table.insert(rows([1, 2, 50]))
        for deduplicated in (False, True):
            done = job_of(**fixed)(table, rows(KEYS), txn=("app", 1))
            assert (done.deduplicated, done.refused) == (deduplicated, 0)
        job_of()(table, rows([60]), txn=("app", 2))
        before = job_of()(table, rows([60]), txn=("app", 1), on_repeat="skip")
        assert (before.deduplicated, before.counts, before.refused) == (True, (0, 0, 0, 0), None)
        known = commit.applied(handle_of(table), check_txn(("app", 1), "skip"))
        assert known is not None and (known.deduplicated, known.refused) == (True, None)


# ---- without a token


@pytest.mark.parametrize("options", [LOG, FILES, SMALL], ids=["log", "files", "spilled"])
def test_errors_are_a_table_if_they_are_to_be_returned(make: Make, options: dict[str, Any]) -> None:
    table = make(**options)
    count = 60_000 if options is SMALL else 10
    many = pa.table({"k": range(4, count), "s": ["x" * 60] * (count - 4)})
    given: list[Any] = [
        [{"k": 1}],
        {"k": range(2, 4)},
        iter(many.to_batches(max_chunksize=10_000)),
        [],
        {"k": []},
    ]
    calls = [lambda d=d: table.upsert(d, on_error="return") for d in given]
    calls.append(lambda: table.update(where=pc.field("k") == 1, set={"a": 1}, on_error="return"))
    calls.append(lambda: table.delete(where=pc.field("k") == -1, on_error="return"))
    refused = table.update([{"k": -1, "a": 1}], on_error="return").errors
    assert refused is not None and refused.num_rows == 1
    for call in calls:
        errors = call().errors
        assert errors is not None and errors.num_rows == 0
        assert errors.schema == refused.schema
    for data in ([{"k": 1}], {"k": [1, 2]}, []):
        assert table.upsert(data).errors is None
