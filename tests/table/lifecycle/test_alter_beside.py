"""Alters beside all that may be under way: writes, batches, ingests, scans, tokens, jobs, readers, forks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.calls.prepared import Prepared
from kudu_core.table.ingest import ingest
from kudu_core.table.jobs import commit
from kudu_core.table.runs.staged import StagedRun
from kudu_core.table.write import found_walk
from tests.support.bulk import MEMORY_LIMIT_BYTES, small_runs
from tests.support.inside import engine_of, handle_of
from tests.support.processes import in_child, python

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
MANUAL = {
    "maintenance": "manual",
    "file_grace_s": 0,
    "memory_limit_bytes": MEMORY_LIMIT_BYTES,
    "ingest_threshold_rows": 20,
}
N = kc.Column("n", "int32", False, default=7)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[kc.Table]:
    cut = [kc.HashPartition("k", 2), kc.RangePartition("k", [(0, 100), (100, 200)])]
    made = kc.create_table(str(tmp_path / "t"), SCHEMA, "k", partition_by=cut, options=MANUAL)
    made.insert({"k": [1, 2, 3], "v": [10, 20, 30], "s": ["a", "b", "c"]})
    yield made
    made.close()


def rows(scan: Any) -> list[dict[str, Any]]:
    return sorted(scan.to_pylist(), key=lambda row: row["k"])


def batches(keys: range, **cells: Any) -> Iterator[pa.RecordBatch]:
    """Rows in batches of three."""
    for lower in range(0, len(keys), 3):
        some = keys[lower : lower + 3]
        yield pa.RecordBatch.from_pydict({"k": list(some), **{n: [c] * len(some) for n, c in cells.items()}})


def when_first(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, do: Callable[[], object]) -> None:
    """``do`` once, just after the first call of a function has ended."""
    real = getattr(owner, name)
    left = [do]

    def called(*args: Any, **more: Any) -> Any:
        result = real(*args, **more)
        if left:
            left.pop()()
        return result

    monkeypatch.setattr(owner, name, called)


# ------------------------------------------------------------------------------------- writes under way


def test_a_batch_may_span_an_alter(table: kc.Table) -> None:
    with table.batch() as b:
        b.insert({"k": [4], "v": [40], "s": ["d"]})
        b.update([{"k": 1, "v": 11}])
        table.alter(drop=["v"], rename={"s": "v"}, add=[N])
        b.insert([{"k": 5, "v": "e", "n": 8}])
        b.update([{"k": 2, "v": "bb"}])
    assert b.result is not None
    assert (b.result.inserted, b.result.updated) == (2, 2)
    assert [(r["k"], r["v"], r["n"]) for r in rows(table.scan())] == [
        (1, "a", 7),
        (2, "bb", 7),
        (3, "c", 7),
        (4, "d", 7),
        (5, "e", 8),
    ]


def test_a_write_that_an_alter_overtakes_starts_again(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol W2: encoded and routed by what the table had been."""
    when_first(monkeypatch, Prepared, "_refused", lambda: table.alter(drop=["v"], add=[N]))
    assert table.upsert({"k": [1, 4], "v": [11, 40], "s": ["aa", "d"]}).inserted == 1
    when_first(monkeypatch, Prepared, "_refused", lambda: table.alter(drop_range=(0, 100)))
    result = table.upsert({"k": [1, 101], "s": ["no", "yes"]}, on_error="return")
    assert result.errors is not None and result.errors["code"].to_pylist() == ["no_partition"]
    when_first(monkeypatch, Prepared, "_refused", lambda: table.alter(add_range=(0, 50)))
    table.insert({"k": [1, 2], "s": ["new", "too"]})
    assert rows(table.scan()) == [
        {"k": 1, "s": "new", "n": 7},
        {"k": 2, "s": "too", "n": 7},
        {"k": 101, "s": "yes", "n": 7},
    ]
    # A where= write is encoded under the mutexes: the ALTER comes just before they are taken.
    when_first(monkeypatch, found_walk, "HeldLocks", lambda: table.alter(rename={"s": "t"}))
    assert table.update(where=pc.field("k") == 1, set={"n": pc.field("k").cast("int32")}).updated == 1
    assert table.get(1) == {"k": 1, "t": "new", "n": 1}
    when_first(monkeypatch, found_walk, "HeldLocks", lambda: table.alter(drop=["n"]))
    with pytest.raises(kc.InvalidArgument, match="'n'"):
        table.update(where=pc.field("n") == 1, set={"t": "x"})
    assert table.get(1) == {"k": 1, "t": "new"}


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("operation", ["insert", "upsert", "update"])
def test_an_ingest_that_an_alter_overtakes_is_built_again(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch, spill: bool, operation: str
) -> None:
    """Protocol G3, also of runs in files: columns that go, names that move, ranges that come and go."""
    table.alter(drop_range=(100, 200))
    if operation == "update":
        table.insert({"k": list(range(4, 100))})
        table.flush()
    keys = range(4, 100)

    def overtake() -> None:
        table.alter(drop=["v"], rename={"s": "v"}, add=[N])
        table.alter(drop_range=(0, 100), add_range=[(0, 50), (50, 200)])
        if operation == "update":
            table.insert({"k": list(range(4, 100))})

    with small_runs(spill=spill):
        when_first(monkeypatch, ingest, "_build", overtake)
        result = getattr(table, operation)(batches(keys, v=5, s="x"))
    assert result.inserted + result.updated == len(keys)
    assert rows(table.scan()) == [{"k": k, "v": "x", "n": 7} for k in keys]
    table.close()
    with kc.open_table(table.path, "rw") as again:
        assert rows(again.scan()) == [{"k": k, "v": "x", "n": 7} for k in keys]


@pytest.mark.parametrize("spill", [False, True])
def test_rows_whose_range_is_dropped_or_made_during_an_ingest(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch, spill: bool
) -> None:
    with small_runs(spill=spill):
        when_first(monkeypatch, ingest, "_build", lambda: table.alter(add_range=(200, 300)))
        assert table.insert(batches(range(150, 250), v=1), on_error="return").refused == 0
        when_first(monkeypatch, ingest, "_build", lambda: table.alter(drop_range=(100, 200)))
        with pytest.raises(kc.RowErrors) as caught:
            table.upsert(batches(range(150, 250), v=2))
    errors = caught.value.errors.to_pylist()
    assert [(e["row"], e["key"]["k"]) for e in errors] == [(i, 150 + i) for i in range(50)]
    assert {r["v"] for r in rows(table.scan(where=pc.field("k") >= 100))} == {1}
    assert table.count() == 3 + 50


def test_a_where_of_many_rows_sees_new_tablets(table: kc.Table) -> None:
    table.insert({"k": list(range(4, 150)), "v": [1] * 146})
    table.alter(add_range=(200, 300))
    table.insert({"k": list(range(200, 260)), "v": [1] * 60})
    assert table.update(where=pc.field("v") == 1, set={"v": 2}).updated == 206
    assert table.delete(where=pc.field("v") == 2).deleted == 206


# ------------------------------------------------------------------------------------- tokens and jobs


def test_tokens_of_before_keep_their_columns(table: kc.Table) -> None:
    table.flush()
    tokens = table.scan_tokens(["s", "k"], where=pc.field("v") > 10)
    dropped = table.scan_tokens(["v"])
    table.alter(rename={"v": "s", "s": "v"}, add=[N])
    reader = kc.open_table(table.path)
    for handle in (table, reader):
        found = pa.concat_tables(handle.scan_token(t).to_table() for t in tokens)
        assert found.schema.names == ["s", "k"]
        assert sorted(found.to_pylist(), key=lambda r: r["k"]) == [{"s": "b", "k": 2}, {"s": "c", "k": 3}]
    new = table.scan_tokens(["n", "s"])
    assert pa.concat_tables(reader.scan_token(t).to_table() for t in new).schema.names == ["n", "s"]
    table.alter(drop=["s"])  # the one that was called "v"
    reader.refresh()
    for handle in (table, reader):
        for token in (*tokens, *dropped, *new):
            with pytest.raises(kc.SchemaMismatch, match="was dropped"):
                handle.scan_token(token)
    behind = kc.open_table(table.path)
    table.alter(add=[kc.Column("m", "int8", default=1)])
    [*newest] = table.scan_tokens(["m"])
    assert sum(behind.scan_token(t).count() for t in newest) == 3
    reader.close()
    behind.close()


def staged(
    table: kc.Table, data: dict[str, Any], operation: str = "upsert"
) -> tuple[commit.Job, list[StagedRun]]:
    batch = pa.RecordBatch.from_pydict(data)
    job = commit.begin(handle_of(table), operation, [(f.name, str(f.type)) for f in batch.schema])
    stager = commit.stager(job, "a", engine_of(table).fs)
    stager.append(batch)
    return job, stager.finish()


def test_a_job_fits_what_the_table_has_become_or_says_what_does_not(table: kc.Table) -> None:
    job, runs = staged(table, {"k": [1, 4], "v": [11, 40], "s": ["aa", "d"]})
    table.alter(rename={"v": "s", "s": "v"}, add=[N], add_range=(200, 300))
    assert commit.commit_job(job, runs, handle_of(table)).inserted == 1
    assert table.get(4) == {"k": 4, "s": 40, "v": "d", "n": 7}
    job, runs = staged(table, {"k": [1], "s": [12]})
    table.alter(drop=["s"], rename={"n": "s"})
    with pytest.raises(kc.SchemaMismatch, match=r"'s' .* was dropped"):
        commit.commit_job(job, runs, handle_of(table))
    assert table.get(1) == {"k": 1, "v": "aa", "s": 7}
    job, runs = staged(table, {"k": [1, 250]})
    table.alter(drop_range=(200, 300))
    with pytest.raises(kc.RowErrors, match="no_partition"):
        commit.commit_job(job, runs, handle_of(table))
    job, runs = staged(table, {"k": [9], "s": [13]})
    for i in range(70):
        table.alter(rename={"s": "t"} if i % 2 == 0 else {"t": "s"})
    assert commit.commit_job(job, runs, handle_of(table)).inserted == 1
    assert table.get(9) == {"k": 9, "v": None, "s": 13}


# ------------------------------------------------------------------------------------- other processes


def test_a_reader_follows_the_log_and_its_scans_say_what_they_lack(table: kc.Table) -> None:
    reader = kc.open_table(table.path)
    old, gone = reader.scan(["k", "s"]), reader.scan(["v"])
    before = table.timestamp
    table.alter(drop=["v"], rename={"s": "text"}, add=[N])
    assert reader.schema.names == ["k", "v", "s"]
    assert rows(reader.scan()) == [{"k": k, "v": 10 * k, "s": s} for k, s in ((1, "a"), (2, "b"), (3, "c"))]
    reader.refresh()
    assert reader.schema.names == ["k", "text", "n"]
    assert rows(reader.scan(at=before)) == rows(table.scan())
    assert rows(old) == [{"k": 1, "s": "a"}, {"k": 2, "s": "b"}, {"k": 3, "s": "c"}]
    with pytest.raises(kc.SchemaMismatch, match="'v' was dropped"):
        gone.to_table()
    reader.close()


WRITER = """
import random, sys
import kudu_core as kc
path, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
options = {"flush_age_s": 0.05, "maintenance": "background", "file_grace_s": 60}
with kc.open_table(path, "rw", options=options) as table:
    for i in range(60):
        kind = i % 4
        if kind == 0:
            table.alter(add=[kc.Column(f"c{i}", "int64", False, default=i)])
        elif kind == 1:
            table.alter(add_range=(1000 + i, 1001 + i))
        elif kind == 2:
            table.alter(drop=[f"c{i - 2}"], rename={"v": "w"} if i % 8 == 2 else {"w": "v"})
        else:
            table.alter(drop_range=(1000 + i - 2, 1001 + i - 2))
        name = "v" if "v" in table.schema.names else "w"
        table.upsert({"k": list(range(50)), name: [i] * 50})
        if rng.random() < 0.2:
            table.flush()
"""


def test_a_reader_beside_a_process_that_alters(table: kc.Table) -> None:
    """Each time it refreshes it sees one moment: the columns, ranges and rows of it."""
    table.upsert({"k": list(range(50)), "v": [-1] * 50})
    table.close()
    failed: list[BaseException] = []
    looks = [0]
    done = threading.Event()

    def read() -> None:
        try:
            last = -2
            reader = kc.open_table(table.path)
            while not done.is_set():
                names = set(reader.schema.names)
                assert len(names & {"v", "w"}) == 1 and {"k", "s"} <= names
                [name] = names & {"v", "w"}
                found = reader.scan(["k", name]).to_table()
                values = set(found[name].to_pylist())
                assert found.num_rows == 50 and len(values) == 1, values
                assert values.pop() >= last
                row = reader.get(7)
                assert row is not None
                if set(row) != names:  # a file was gone, so the handle has refreshed itself (protocol R4)
                    assert set(row) == set(reader.schema.names)
                    [name] = set(row) & {"v", "w"}
                assert row[name] >= last
                last = row[name]
                looks[0] += 1
                reader.refresh()
            reader.close()
        except BaseException as error:  # noqa: BLE001  raised below
            failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        finished = python(WRITER, table.path, 1)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert finished.returncode == 0, finished.stderr
    if failed:
        raise failed[0]
    assert looks[0] > 2
    with kc.open_table(table.path) as reader:
        assert {r["v" if "v" in reader.schema.names else "w"] for r in reader.scan().to_pylist()} == {59}


def test_the_child_of_a_fork_alters_nothing(table: kc.Table) -> None:
    with engine_of(table).altering:  # as it may be at the moment of the fork
        assert in_child(lambda: table.alter(drop=["v"])).startswith("Closed")
    table.alter(drop=["v"])
    assert table.schema.names == ["k", "s"]
