"""``Table.alter`` to types whose cells are others, where a table is not alone."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import KuduError
from kudu_core.table.jobs import commit
from tests.support.inside import engine_of, handle_of, schema_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL
from tests.table.lifecycle.altering.conftest import STATES

OPTIONS = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0, "ingest_threshold_rows": 20}
NOON = dt.datetime(2026, 1, 1, 12)
LATE = dt.datetime(2026, 1, 1, 12, 0, 0, 1)
DAY = dt.date(2026, 1, 1)



def make(path: Path, type_: str, **more: Any) -> kc.Table:
    columns = [kc.Column("k", "int64"), kc.Column("v", type_, **more)]
    return kc.create_table(str(path / "t"), columns, "k", options=OPTIONS)


def values(scan: Any) -> dict[int, Any]:
    return {row["k"]: row["v"] for row in scan.to_pylist()}


@pytest.mark.parametrize("count", [3, 30])
def test_a_job_that_began_before(tmp_path: Path, count: int) -> None:
    with make(tmp_path, "int32") as table:
        cells = pa.array([5] * count, pa.int32())
        batch = pa.RecordBatch.from_pydict({"k": pa.array(range(count)), "v": cells})
        job = commit.begin(handle_of(table), "insert", [("k", "int64"), ("v", "int32")])
        stager = commit.stager(job, "a", engine_of(table).fs)
        stager.append(batch)
        runs = stager.finish()
        table.alter(change={"v": {"type": "int64"}})
        assert commit.commit_job(job, runs, handle_of(table)).inserted == count
        assert table.count([("v", "==", 5)]) == count
        assert table.get(1) == {"k": 1, "v": 5}
        table.verify()


def test_a_repeated_write_is_known(tmp_path: Path) -> None:
    with make(tmp_path, "int32") as table:
        rows = {"k": [1], "v": [5]}
        first = table.insert(rows, txn=("app", 1))
        table.alter(change={"v": {"type": "int64"}}, order=["v"])
        assert table.insert(rows, txn=("app", 1)).timestamp == first.timestamp
        assert table.count() == 1


def test_backups_and_clones_from_before_and_after(tmp_path: Path) -> None:
    folder = str(tmp_path / "backups")
    with make(tmp_path, "int32") as table:
        table.insert([{"k": k, "v": k} for k in range(40)])
        first = table.backup(folder)
        table.update([{"k": 1, "v": 100}])
        second = table.backup(folder, first)
        table.alter(change={"v": {"type": "int64"}})
        table.insert([{"k": 100, "v": 2**40}])
        table.backup(folder, second)
        rows, schema = values(table.scan()), table.schema
        table.clone(str(tmp_path / "clone"))
        with kc.open_table(str(tmp_path / "clone"), "rw") as clone:
            assert values(clone.scan()) == rows and clone.schema == schema
            clone.update([{"k": 2, "v": 2**50}])
            clone.verify()
    with kc.restore(folder, str(tmp_path / "again")) as again:
        assert again.schema == schema
        assert values(again.scan()) == rows
        again.verify()


def test_a_damaged_table_is_repaired(tmp_path: Path) -> None:
    with make(tmp_path, "int32") as table:
        table.insert([{"k": k, "v": k} for k in range(5)])
        table.flush()
        table.update([{"k": 1, "v": 7}])
        table.flush()
        table.alter(change={"v": {"type": "int64"}}, rename={"k": "key"})
        table.update([{"key": 2, "v": 10**15}])
        table.flush()
    for segment in Path(table.path).glob("wal/*.log"):
        segment.unlink()  # files alone tell
    manifest = next(Path(table.path).glob("tablets/*/MANIFEST"))
    data = bytearray(manifest.read_bytes())
    data[len(data) // 2] ^= 255
    manifest.write_bytes(data)
    kc.repair(table.path, str(tmp_path / "again"), dry_run=False)
    with kc.open_table(str(tmp_path / "again")) as again:
        found = {row["key"]: row["v"] for row in again.scan().to_pylist()}
        assert found == {0: 0, 1: 7, 2: 10**15, 3: 3, 4: 4}
        assert again.schema.field("v").type == pa.int64()


@pytest.mark.parametrize("place", ["memory", "churned"])
def test_fields_of_structs(tmp_path: Path, place: str) -> None:
    inner = pa.struct([pa.field("n", pa.int16(), False), pa.field("t", pa.timestamp("s"))])
    columns = [kc.Column("k", "int64"), kc.Column("v", pa.struct([pa.field("in", inner)]))]
    with kc.create_table(str(tmp_path / "t"), columns, "k", options=OPTIONS) as table:
        one = {"in": {"n": 5, "t": NOON}}
        table.insert([{"k": 1, "v": one}, {"k": 2, "v": None}, {"k": 3, "v": {"in": None}}])
        STATES[place](table)
        since, scan, before = table.timestamp, table.scan(), {1: one, 2: None, 3: {"in": None}}
        table.alter(change={"v.in.n": {"type": "int64"}, "v.in.t": {"type": "timestamp[ms]"}})
        assert values(scan) == before
        table.upsert([{"k": 4, "v": {"in": {"n": 2**40, "t": None}}}])
        wanted = {**before, 4: {"in": {"n": 2**40, "t": None}}}
        for handle in (table, kc.open_table(table.path)):
            type_ = handle.schema.field("v").type.field("in").type
            assert (type_.field("n").type, type_.field("t").type) == (pa.int64(), pa.timestamp("ms"))
            assert values(handle.scan()) == wanted
            assert values(handle.scan(at=since)) == before
            assert {k: handle.get(k)["v"] for k in wanted} == wanted
            assert handle.count([("v.in.n", ">", 4)]) == 2
            if handle is not table:
                handle.close()
        table.flush()
        table.compact(full=True)
        assert values(table.scan()) == wanted and values(table.scan(at=since)) == before
        table.verify()


def test_what_was_planned_before_gives_the_new_type(tmp_path: Path) -> None:
    with make(tmp_path, "int32") as table:
        table.insert([{"k": k, "v": k} for k in range(5)])
        table.flush()
        since = table.timestamp
        table.update([{"k": 1, "v": 10}])
        shares = table.scan_tokens(["v"], where=[("v", ">=", 3)])
        changed = table.change_tokens(since, columns=["v"], where=[("v", ">", 9)])
        batches = iter(table.scan(order="key", batch_rows=2))
        first = next(batches)
        sent = pickle.dumps(table.scan(["v"]))
        arrived = pickle.loads(sent)
        assert arrived.count() == 5
        table.alter(change={"v": {"type": "int64"}})
        rest = pa.Table.from_batches([first, *batches])
        assert rest["v"].to_pylist() == [0, 10, 2, 3, 4], "a scan that has begun goes on"
        with kc.open_table(table.path) as reader:
            for handle in (table, reader):
                found = pa.concat_tables(handle.scan_token(share).to_table() for share in shares)
                assert found.schema.field("v").type == pa.int64()
                assert sorted(found["v"].to_pylist()) == [3, 4, 10]
                told = pa.concat_tables(handle.change_token(share).to_table() for share in changed)
                assert told["v"].to_pylist() == [10]
        assert sorted(arrived.to_table()["v"].to_pylist()) == [0, 2, 3, 4, 10]
        assert sorted(pickle.loads(sent).to_table()["v"].to_pylist()) == [0, 2, 3, 4, 10]


def test_a_batch_that_has_read(tmp_path: Path) -> None:
    with make(tmp_path, "int32") as table:
        table.insert([{"k": 1, "v": 1}])
        with pytest.raises(kc.Conflict, match="another type"), table.batch() as batch:
            batch.get(1)
            batch.upsert([{"k": 1, "v": 2}])
            table.alter(change={"v": {"type": "int64"}})


def test_in_a_store() -> None:
    store = MemoryObjectStore()
    columns = [kc.Column("k", "int64"), kc.Column("v", "int32")]
    with kc.create_table(URL, columns, "k", options={"maintenance": "manual"}, _requests=store) as table:
        table.insert([{"k": 1, "v": 1}])
        reader = kc.open_table(URL, _requests=store)
        scan = reader.scan()
        table.alter(change={"v": {"type": "int64"}})
        table.insert([{"k": 2, "v": 10**15}])
        assert scan.to_pylist() == [{"k": 1, "v": 1}]
        wanted = [{"k": 1, "v": 1}, {"k": 2, "v": 10**15}]
        reader.refresh()
        for handle in (table, reader):
            assert handle.scan(order="key").to_pylist() == wanted
        reader.close()
    for mode in ("r", "rw"):
        with kc.open_table(URL, mode, _requests=store) as again:
            assert again.scan(order="key").to_pylist() == wanted
            assert [again.get(1), again.get(2)] == wanted


def test_scans_of_before_read_a_column_that_is_dropped_since(tmp_path: Path) -> None:
    """It is kept in files for them, as the type that it had last."""
    with make(tmp_path, "int32") as table:
        table.insert([{"k": k, "v": k} for k in range(5)])
        table.flush()
        first = table.scan()
        table.alter(change={"v": {"type": "int64"}})
        table.upsert([{"k": 5, "v": 2**40}])
        table.flush()
        second = table.scan()
        since = table.timestamp
        table.alter(drop=["v"])
        for number in range(2):
            table.upsert([{"k": 10 + number}])
            table.flush()
            table.compact(full=True)
            assert values(first) == {k: k for k in range(5)}
            assert values(second) == {**{k: k for k in range(5)}, 5: 2**40}
        del second
        table.upsert([{"k": 20}])
        table.flush()
        table.compact(full=True)
        assert values(first) == {k: k for k in range(5)}
        assert table.count(at=since) == 6


def test_table_says_that_cells_have_changed(tmp_path: Path) -> None:
    """By a flag, which a library that does not know it refuses; a table without has the bytes that it had."""
    flags_at = 10
    with make(tmp_path, "int32") as table:
        told = Path(table.path, "TABLE")
        table.alter(change={"v": {"comment": "a"}})
        assert told.read_bytes()[flags_at] == 0
        assert b'"older"' not in told.read_bytes() and b'"cells"' not in told.read_bytes()
        table.alter(change={"v": {"type": "int64"}})
        assert told.read_bytes()[flags_at] == 2
        assert b'"older":[[2,"int32"]]' in told.read_bytes() and b'"cells":2' in told.read_bytes()
        stored = schema_of(table).to_json()
    assert Schema.from_json(stored).cell_types == {2: ColumnType.parse("int64")}
    for older in ([[2, "string"]], [[3, "int32"]], [[2, "int32"], [1, "int16"]], [[0, "int32"]]):
        wrong = {**stored, "columns": [stored["columns"][0], {**stored["columns"][1], "older": older}]}
        with pytest.raises((ValueError, KuduError)):
            Schema.from_json(wrong)
