"""A write is made once, and its record is applied, noted and said to be, or the table is poisoned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.fingerprint import Fingerprint
from kudu_core.common.idempotence.writers import SKIP, Txn
from kudu_core.errors import TokenMismatch
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.opened.record import once, recorded
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import Laying
from kudu_core.wal import RECORD_KIND_WRITE
from tests.support.inside import engine_of, log_of, work_under_way

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
ROWS = Fingerprint(2, 7, 8)
OTHER = Fingerprint(2, 7, 9)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[kc.Table]:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"maintenance": "manual"}) as table:
        yield table


def noted(table: kc.Table, txn: Txn) -> None:
    """As if the write had been applied."""
    engine_of(table).writers.note(txn, engine_of(table).visible_ts, (2, 0, 0, 0))


# ---- once ----


class Write:
    """Counts what ``once`` asks for."""

    def __init__(self, rows: Fingerprint = ROWS) -> None:
        self.made = self.read = 0
        self._rows = rows

    def __call__(self) -> WriteResult:
        self.made += 1
        return WriteResult(0, 2)

    def rows(self) -> Fingerprint:
        self.read += 1
        return self._rows


def test_a_write_without_a_token_is_made(table: kc.Table) -> None:
    write = Write()
    for _ in range(2):
        assert not once(engine_of(table), None, write, write.rows).deduplicated
    assert (write.made, write.read) == (2, 0)


@pytest.mark.parametrize(
    ("known", "txn", "made", "read"),
    [
        (None, Txn("a", 1), 1, 0),
        (Txn("b", 1, rows=ROWS), Txn("a", 1), 1, 0),
        (Txn("a", 1, rows=ROWS), Txn("a", 2), 1, 0),
        (Txn("a", 1, rows=ROWS), Txn("a", 1), 0, 1),
        (Txn("a", 1, rows=ROWS), Txn("a", 1, rows=ROWS), 0, 0),
        (Txn("a", 2, rows=OTHER), Txn("a", 1, on_repeat=SKIP), 0, 0),
        (Txn("a", 1, rows=OTHER), Txn("a", 2, on_repeat=SKIP), 1, 0),
    ],
)
def test_rows_are_read_only_where_they_decide(
    table: kc.Table, known: Txn | None, txn: Txn, made: int, read: int
) -> None:
    """They can be read once: a write whose rows were read for their fingerprint is not made."""
    if known is not None:
        noted(table, known)
    write = Write()
    assert once(engine_of(table), txn, write, write.rows).deduplicated == (not made)
    assert (write.made, write.read) == (made, read)


@pytest.mark.parametrize("txn", [Txn("a", 1), Txn("a", 1, rows=ROWS)], ids=["to be read", "known"])
def test_another_write_of_a_version_is_refused(table: kc.Table, txn: Txn) -> None:
    noted(table, Txn("a", 1, rows=OTHER))
    write = Write()
    with pytest.raises(TokenMismatch):
        once(engine_of(table), txn, write, write.rows)
    assert write.made == 0


def test_what_rows_cannot_mend_is_refused_before_they_are_read(table: kc.Table) -> None:
    noted(table, Txn("a", 1, "one query", rows=ROWS))
    write = Write()
    with pytest.raises(TokenMismatch, match="another source"):
        once(engine_of(table), Txn("a", 1, "another query"), write, write.rows)
    assert (write.made, write.read) == (0, 0)


def test_the_lock_of_the_token_is_held_while_the_write_is_made(table: kc.Table) -> None:
    engine = engine_of(table)
    free: list[bool] = []

    def look() -> None:
        lock = engine.writers.lock_of("a")
        free.append(lock.acquire(blocking=False))
        if free[-1]:
            lock.release()

    def write() -> WriteResult:
        in_another_thread(look)
        return WriteResult(0)

    once(engine, Txn("a", 1, rows=ROWS), write)
    in_another_thread(look)
    assert free == [False, True]


def in_another_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


# ---- recorded ----


def test_a_record_is_noted_after_it_was_laid_and_before_it_counts_as_applied(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    engine, log = engine_of(table), log_of(table)

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            said.append(name)
            return real(*arguments)

        return call

    for owner, name in ((log, "append"), (engine.writers, "note"), (log, "applied")):
        monkeypatch.setattr(owner, name, watched(name, getattr(owner, name)))
    lay = Laying.lay

    def laid(laying: Laying, ts: int) -> None:
        said.append("lay")
        lay(laying, ts)

    monkeypatch.setattr(Laying, "lay", laid)
    table.upsert({"k": [1, 2], "v": [1, 1]}, txn=("a", 1))
    assert said == ["append", "lay", "note", "applied"]


def test_a_body_that_fails_poisons_and_notes_nothing(table: kc.Table) -> None:
    engine, log = engine_of(table), log_of(table)
    txn = Txn("a", 1, rows=ROWS)
    record = records.encode(records.Payload((), [], {"txn": txn.to_json(), "counts": [0, 0, 0, 0]}))
    with (
        pytest.raises(ZeroDivisionError),
        recorded(engine, RECORD_KIND_WRITE, engine.schema.version, record, txn=txn, job="job-1"),
    ):
        assert work_under_way(engine)["in flight"]
        raise ZeroDivisionError("in the body")
    assert isinstance(log.poisoned, ZeroDivisionError)
    assert not engine.writers.applied_writes and not engine.writers.applied_jobs


def test_an_append_that_fails_poisons_nothing(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, log = engine_of(table), log_of(table)

    def fails(*_: Any) -> int:
        raise OSError("no room; cut back")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="cut back"):
        patch.setattr(log, "append", fails)
        table.upsert({"k": [1, 2], "v": [1, 1]})
    assert log.poisoned is None and not work_under_way(engine)["in flight"]
    assert table.upsert({"k": [1, 2], "v": [1, 1]}).inserted == 2
    assert engine.writers.applied_jobs == {}


def test_the_id_of_a_job_is_noted(table: kc.Table) -> None:
    engine = engine_of(table)
    record = records.encode(records.Payload((), [], {"job": "job-1", "counts": [1, 2, 3, 4]}))
    version = engine.schema.version
    with recorded(engine, RECORD_KIND_WRITE, version, record, job="job-1", counts=(1, 2, 3, 4)) as ts:
        assert engine.writers.applied_jobs == {}
    known = engine.writers.applied_jobs["job-1"]
    assert (known.ts, known.counts) == (ts, (1, 2, 3, 4))
