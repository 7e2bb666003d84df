"""Writes of single rows.  That they are those of the general path is tests/table/write/test_row_path.py's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.few.few_writes import FewWrites
from kudu_core._ext.few.row_writes import RowWrites
from kudu_core._ext.rules.decide import CALL_DELETE, CALL_INSERT, CALL_UPDATE, CALL_UPSERT
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.opened.store_memory import no_memory
from kudu_core.tablet.store.tablet import Tablet
from tests.support.inside import engine_of, log_of, poison_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def table(path: Path) -> Iterator[kc.Table]:
    with kc.create_table(path, SCHEMA, "k", options={"durability": "none"}) as table:
        table.insert([{"k": 0, "v": "first"}])  # zeros lie ahead
        yield table


def writes_of(table: kc.Table, kind: type[Any] = RowWrites, **changed: Any) -> Any:
    engine = engine_of(table)
    given: dict[str, Any] = {
        "ingest_bytes": 1 << 20, "ingest_rows": 10, "limit_bytes": 1 << 30, "result": WriteResult,
        "no_memory": no_memory, "checks": True,
    }  # fmt: skip
    return kind(engine, engine.log, engine.memory, **(given | changed))


def test_each_operation_of_a_row(table: kc.Table) -> None:
    writes = writes_of(table)
    row, key = {"k": 1, "v": "a"}, {"k": 1}
    assert writes.write(CALL_INSERT, False, row).inserted == 1
    assert writes.write(CALL_INSERT, False, row) is None, "refused, which the general path says"
    assert writes.write(CALL_INSERT, True, row).ignored == 1
    assert writes.write(CALL_UPSERT, False, {"k": 1, "v": None}).updated == 1
    assert writes.write(CALL_UPDATE, False, row).updated == 1
    assert table.get(1) == row
    assert writes.write(CALL_DELETE, False, key).deleted == 1
    assert writes.write(CALL_DELETE, True, {"k": 2}).ignored == 1
    assert writes.write(CALL_DELETE, False, {"k": 2}) is None
    assert writes.write(CALL_INSERT, False, row) is None, "its dead entry has to be revived"
    assert writes.write(CALL_INSERT, False, {"k": "x"}) is None
    assert table.get(1) is None


def test_rows_that_go_to_files_are_not_written(table: kc.Table) -> None:
    row = {"k": 1, "v": "a" * 100}
    assert writes_of(table, ingest_rows=1).write(CALL_INSERT, False, row) is None
    assert writes_of(table, ingest_bytes=100).write(CALL_INSERT, False, row) is None
    engine_of(table).memory.limit_bytes = 100
    with pytest.raises(kc.MemoryLimit):
        writes_of(table, limit_bytes=100).write(CALL_INSERT, False, row)
    assert table.get(1) is None


def test_each_operation_of_a_few_rows(table: kc.Table) -> None:
    writes = writes_of(table, FewWrites)
    rows = [{"k": k, "v": "a"} for k in (1, 2, 3)]
    assert writes.write_few(CALL_INSERT, False, rows).counts == (3, 0, 0, 0)
    assert writes.write_few(CALL_INSERT, False, rows) is None, "refused, which the general path says"
    more = [*rows, {"k": 4, "v": None}]
    assert writes.write_few(CALL_INSERT, True, rows).counts == (0, 0, 0, 3)
    assert writes.write_few(CALL_INSERT, True, more).counts == (1, 0, 0, 3)
    assert writes.write_few(CALL_UPSERT, False, [*more, {"k": 5, "v": "b"}]).counts == (1, 4, 0, 0)
    assert writes.write_few(CALL_UPDATE, False, rows).counts == (0, 3, 0, 0)
    assert writes.write_few(CALL_DELETE, False, [{"k": 1}, {"k": 9}]) is None
    assert writes.write_few(CALL_DELETE, True, [{"k": 1}, {"k": 9}]).counts == (0, 0, 1, 1)
    assert table.scan(["k"], order="key").to_table()["k"].to_pylist() == [0, 2, 3, 4, 5]
    assert writes_of(table, FewWrites, ingest_rows=3).write_few(CALL_UPSERT, False, rows) is None


@pytest.mark.parametrize("count", [1, 3])
def test_rows_that_cannot_be_applied_poison(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Protocol W6: the record is in the log, so its time stays in flight."""

    def fails(*_: object) -> None:
        raise ZeroDivisionError("in the midst of it")

    before = log_of(table).applied_ts
    with monkeypatch.context() as patch:
        patch.setattr(Tablet, "newest_applied", property(lambda tablet: 0, fails), raising=False)
        with pytest.raises(ZeroDivisionError):
            table.insert([{"k": 7 + n, "v": "x"} for n in range(count)])
    assert isinstance(poison_of(table), ZeroDivisionError)
    assert log_of(table).last_record_ts in log_of(table).in_flight
    assert log_of(table).applied_ts == before
    with pytest.raises(kc.Poisoned):
        table.insert([{"k": 18, "v": "x"}])
    path = table.path
    table.close()
    with kc.open_table(path, "rw") as again:
        assert again.get(7) == {"k": 7, "v": "x"} and again.get(18) is None
        assert again.count() == 1 + count
