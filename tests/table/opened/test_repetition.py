"""A repetition is known by its rows, whatever door they come through and however they lie; other rows are
refused, and nothing of them is applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.writers import RECENT_VERSIONS
from kudu_core.errors import TokenMismatch
from tests.support.cases.repetitions import (
    DOORS,
    EQUAL,
    KEYS,
    OTHER,
    ROWS,
    TXN,
    by_call,
    by_one_batch,
    create,
    job_of,
    rows,
    spilled,
    state,
)
from tests.support.inside import applied_writes_of

# ---- the doors ----


@pytest.mark.parametrize("door", DOORS)
def test_equal_rows_are_a_repetition_and_others_are_refused(tmp_path: Path, door: str) -> None:
    """Protocol K1."""
    write, options = DOORS[door]
    with create(tmp_path, **options) as table:
        table.insert(rows([1, 2, 3]))
        first = write(table, rows(), txn=TXN)
        assert not first.deduplicated
        wanted, timestamp = state(table), table.timestamp
        for name, make in EQUAL.items():
            again = write(table, make(), txn=TXN)
            assert again.deduplicated, name
            assert (again.timestamp, again.counts) == (first.timestamp, first.counts), name
        for name, make in OTHER.items():
            given = make()
            with pytest.raises(TokenMismatch) as caught:
                write(table, given, txn=TXN)
            error = caught.value
            assert (error.app_id, error.version) == TXN, name
            assert (error.stored_rows, error.given_rows) == (ROWS, given.num_rows), name
            assert "on_repeat" in str(error) and "new name" in str(error)
            skipped = write(table, given, txn=TXN, on_repeat="skip")
            assert skipped.deduplicated and skipped.counts == first.counts, name
        assert (state(table), table.timestamp) == (wanted, timestamp)
        staging = tmp_path / "t/staging"
        left = [f.name for f in staging.iterdir()] if staging.exists() else []
        assert all(name.endswith(".committed") for name in left), left
        assert not write(table, rows([1]), txn=("app", 2)).deduplicated


def test_doors_know_each_other(tmp_path: Path) -> None:
    """The same operation with the same rows has one fingerprint, whichever way it comes."""
    for door, (write, options) in DOORS.items():
        if "operations" in door or door in ("update", "overwrite"):
            continue
        (tmp_path / door).mkdir()
        with create(tmp_path / door, **options) as table:
            write(table, rows(), txn=TXN)
            for other in ("call", "batch", "spilled", "job"):
                assert DOORS[other][0](table, rows(), txn=TXN).deduplicated, (door, other)


@pytest.mark.parametrize("door", ["call", "call to files", "batch", "spilled"])
def test_null_and_a_missing_column_are_two_things(tmp_path: Path, door: str) -> None:
    """An upsert sets the one and leaves the other."""
    write, options = DOORS[door]
    with create(tmp_path, **options) as table:
        nulls = rows().set_column(2, "s", pa.nulls(ROWS, pa.string()))
        write(table, nulls, txn=TXN)
        with pytest.raises(TokenMismatch, match="as many rows"):
            write(table, rows().select(["k", "a"]), txn=TXN)


def test_other_operations_are_other_writes(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.upsert(rows(), txn=TXN)
        for write in (
            lambda: table.insert(rows(), txn=TXN),
            lambda: table.insert(rows(), on_conflict="ignore", txn=TXN),
            lambda: table.update(rows(), txn=TXN),
            lambda: table.delete(rows().select(["k"]), txn=TXN),
            lambda: table.delete(where=pc.field("k") < 5, txn=TXN),
            lambda: table.update(where=pc.field("k") < 5, set={"a": 1}, txn=TXN),
            lambda: job_of(overwrite=True)(table, rows(), txn=TXN),
            lambda: job_of(operation="insert")(table, rows(), txn=TXN),
        ):
            with pytest.raises(TokenMismatch):
                write()
        assert state(table) == rows().to_pylist()


def test_a_write_by_predicate_is_known_by_what_it_says(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.insert(rows())
        first = table.update(where=[("k", "<", 5)], set={"a": pc.field("a") + 1, "s": "x"}, txn=("w", 1))
        again = table.update(where=pc.field("k") < 5, set={"s": "x", "a": pc.field("a") + 1}, txn=("w", 1))
        assert again.deduplicated and again.counts == first.counts
        for where, set_ in (
            ([("k", "<", 6)], {"a": pc.field("a") + 1, "s": "x"}),
            ([("k", "<", 5)], {"a": pc.field("a") + 2, "s": "x"}),
            ([("k", "<", 5)], {"a": pc.field("a") + 1, "s": None}),
            ([("k", "<", 5)], {"a": pc.field("a") + 1}),
        ):
            with pytest.raises(TokenMismatch):
                table.update(where=where, set=set_, txn=("w", 1))
        assert table.delete(where=[("k", "<", 5)], txn=("w", 2)).deleted == 5
        assert table.delete(where=[("k", "<", 5)], txn=("w", 2)).deleted == 5, "the stored answer"


# ---- versions of before ----


@pytest.mark.parametrize("reopened", [False, True])
def test_versions_of_before_are_known_for_a_while(tmp_path: Path, reopened: bool) -> None:
    last = RECENT_VERSIONS + 3
    table = create(tmp_path)
    for version in range(last + 1):
        table.upsert(rows([version]), txn=("app", version))
    if reopened:
        table.close()
        table = kc.open_table(tmp_path / "t", "rw")
    with table:
        for version in range(last - RECENT_VERSIONS, last):
            again = table.upsert(rows([version]), txn=("app", version))
            assert (again.deduplicated, again.counts) == (True, (0, 0, 0, 0))
            with pytest.raises(TokenMismatch, match="as many rows"):
                table.upsert(rows([1000]), txn=("app", version))
        with pytest.raises(TokenMismatch, match=f"not among the last {RECENT_VERSIONS}"):
            table.upsert(rows([2]), txn=("app", last - RECENT_VERSIONS - 1))
        assert table.upsert(rows([2]), txn=("app", 0), on_repeat="skip").deduplicated
        assert [r["k"] for r in state(table)] == list(range(last + 1))


def test_a_source_is_told_from_another(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.upsert(rows([1]), txn=("app", 1))
        table.upsert(rows([2]), txn=("app", 2, "query a"))
        assert table.upsert(rows([2]), txn=("app", 2, "query a")).deduplicated
        assert table.upsert(rows([2]), txn=("app", 2)).deduplicated, "who does not say is not asked"
        for version in (1, 2, 3):
            with pytest.raises(TokenMismatch, match=r"'app' as the name of the writes of query a, .*query b"):
                table.upsert(rows([version]), txn=("app", version, "query b"))
        assert table.upsert(rows([9]), txn=("app", 2, "query b"), on_repeat="skip").deduplicated
        table.upsert(rows([3]), txn=("app", 3, "query b"), on_repeat="skip")
        with pytest.raises(TokenMismatch, match="query a"):
            table.upsert(rows([3]), txn=("app", 3, "query a"))
        with pytest.raises(TokenMismatch, match="not among"):
            table.upsert(rows([2]), txn=("app", 2, "query b"))
    with kc.open_table(tmp_path / "t") as reader:
        assert applied_writes_of(reader)["app"].source == "query b"
        assert [r["k"] for r in state(reader)] == [1, 2, 3]


def test_an_alter_between_keeps_what_a_write_was(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        table.upsert(rows(), txn=TXN)
        table.alter(rename={"s": "text"}, add=[kc.Column("more", pa.int64())])
        assert table.upsert(rows().rename_columns(["k", "a", "text"]), txn=TXN).deduplicated
        with pytest.raises(TokenMismatch):
            table.upsert(rows().rename_columns(["k", "a", "text"]).append_column("more", [KEYS]), txn=TXN)
        assert table.count() == ROWS


# ---- names ----


@pytest.mark.parametrize(
    ("txn", "told"),
    [
        (("x" * 1025, 1), "1,025 bytes"),
        (("\N{SNOWMAN}" * 342, 1), "1,026 bytes"),
        (("a", 1, "s" * 257), "source has 257 bytes"),
        (("a", 1, ""), "app_id, version, source"),
        (("a", 1, 5), "app_id, version, source"),
        (("a", 2**63), "app_id, version, source"),
        (("a", 1, "b", "c"), "app_id, version, source"),
        (("a", True), "app_id, version, source"),
    ],
)
def test_a_name_that_no_reader_would_take_is_refused(tmp_path: Path, txn: Any, told: str) -> None:
    with create(tmp_path) as table:
        for write in (by_call, by_one_batch, spilled, job_of()):
            with pytest.raises(kc.InvalidArgument, match=told):
                write(table, rows(), txn=txn)
        assert table.count() == 0


def test_the_longest_names_come_back(tmp_path: Path) -> None:
    longest = "\N{SNOWMAN}" * 341 + "x"
    with create(tmp_path) as table:
        table.upsert(rows(), txn=(longest, 2**63 - 1, "s" * 256))
    for _ in range(2):
        with kc.open_table(tmp_path / "t", "rw") as table:
            assert table.upsert(rows(), txn=(longest, 2**63 - 1, "s" * 256)).deduplicated


def test_on_repeat_without_a_token_is_refused(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        for write in (table.upsert, lambda *a, **more: table.upsert([{"k": 1}], **more), table.insert):
            with pytest.raises(kc.InvalidArgument, match="is for writes with txn"):
                write(rows(), on_repeat="skip")
            with pytest.raises(kc.InvalidArgument, match="on_repeat is"):
                write(rows(), on_repeat="ask")
        with pytest.raises(kc.InvalidArgument, match="is for writes with txn"):
            table.batch(on_repeat="skip")
        with pytest.raises(kc.InvalidArgument, match="is for writes with txn"):
            table.delete(where=pc.field("k") < 1, on_repeat="skip")
        assert table.count() == 0
