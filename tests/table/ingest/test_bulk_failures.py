"""Bulk writes that fail, before their record and after it, and writes of their keys meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.ingest import commit_parts, ingest
from tests.support.bulk import small_runs
from tests.support.fs.faulty import FaultyFileSystem, Rule
from tests.support.inside import poison_of, set_options
from tests.table.ingest.test_bulk import SIMPLE, numbers, options


@pytest.mark.parametrize("spill", [False, True])
def test_a_source_that_fails_leaves_nothing(tmp_path: Path, spill: bool) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from numbers(0, 100)
        raise LookupError("the source is gone")

    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options()) as table, small_runs(spill=spill):
        with pytest.raises(LookupError, match="the source is gone"):
            table.insert(rows())
        assert table.count() == 0
        assert not list((tmp_path / "t" / "staging").iterdir())
        assert table.insert(numbers(0, 100)).inserted == 100


def test_batches_of_other_columns_are_refused_in_the_middle(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield from numbers(0, 100)
        yield pa.record_batch({"k": [1000]})

    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options()) as table, small_runs(spill=True):
        with pytest.raises(kc.SchemaMismatch, match="different columns"):
            table.insert(rows())
        assert table.count() == 0 and not list((tmp_path / "t" / "staging").iterdir())


def test_a_disk_that_fills_while_runs_are_spilled(tmp_path: Path) -> None:
    fs = FaultyFileSystem(PosixFileSystem())
    table = kc.create_table(tmp_path / "t", SIMPLE, "k", options=options(), _fs=fs)
    with table, small_runs(spill=True):
        fs.rules = [Rule(ops={"append"}, path_glob="*/staging/*", nth=4, error=errno.ENOSPC)]
        with pytest.raises(OSError) as caught:
            table.insert(numbers(0, 100))
        assert caught.value.errno == errno.ENOSPC
        assert table.count() == 0 and not list((tmp_path / "t" / "staging").iterdir())
        fs.rules = []
        assert table.insert(numbers(0, 100)).inserted == 100


RECORD = Rule(ops={"pwrite"}, path_glob="*/wal/*.log", error=errno.ENOSPC)
LINKS = Rule(ops={"link"}, path_glob="*/tablets/*", nth=2, error=errno.ENOSPC)


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("fault", [RECORD, LINKS], ids=["record", "links"])
def test_an_ingest_without_a_record_leaves_no_file(tmp_path: Path, fault: Rule, spill: bool) -> None:
    """New rows, changes of rows in files and in memory: their files would keep a full disk full."""
    path = tmp_path / "t"
    fs = FaultyFileSystem(PosixFileSystem())
    table = kc.create_table(path, SIMPLE, "k", options=options(ingest_threshold_rows=2), _fs=fs)
    with table, small_runs(spill=spill):
        table.insert(numbers(0, 100))
        table.update([{"k": 5, "a": -1}])  # a store in memory that the ingest has to write
        files = {p.name for p in path.rglob("tablets/*/*")}
        rows = table.scan(order="key").to_table()
        fs.rules = [replace(fault)]
        with pytest.raises(OSError) as caught:
            table.upsert(numbers(50, 200))
        assert caught.value.errno == errno.ENOSPC
        fs.rules = []
        assert {p.name for p in path.rglob("tablets/*/*")} == files
        assert table.scan(order="key").to_table() == rows
        done = table.upsert(numbers(0, 200))
        assert (done.inserted, done.updated) == (100, 100)
        assert table.verify().unnamed == ()
    with kc.open_table(path, "rw") as table:
        assert table.count() == 200 and table.metrics()["lost_files"] == 0


@pytest.mark.parametrize("where", ["sync_manifests", "fsync"])
def test_an_ingest_that_fails_after_its_record_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Whether it was applied or is only in the log, which may be on disk: the record names them."""
    path = tmp_path / "t"
    fs = FaultyFileSystem(PosixFileSystem())

    def fail(*_: Any) -> None:
        raise MemoryError

    with kc.create_table(path, SIMPLE, "k", options=options(ingest_threshold_rows=2), _fs=fs) as table:
        table.insert(numbers(0, 100))
        table.update([{"k": 5, "a": -1}])
        with monkeypatch.context() as patched, pytest.raises((MemoryError, kc.Poisoned)):
            if where == "sync_manifests":
                patched.setattr(commit_parts, "sync_manifests", fail)
            else:
                fs.rules = [Rule(ops={"sync"}, path_glob="*/wal/*.log", error=errno.EIO)]
            table.upsert(numbers(50, 100))
        fs.rules = []
        assert (poison_of(table) is None) == (where == "sync_manifests")
        assert where == "fsync" or table.count() == 150
    with kc.open_table(path, "rw") as table:
        assert table.count() == 150
        table.verify()


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("key", [55, 5000])
def test_a_write_of_one_of_the_keys_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spill: bool, key: int
) -> None:
    """Found by looking into the staged files; the build is thrown away and the rows are decided again."""
    builds = 0
    real = ingest._build

    def build(engine: Any, *args: Any, **more: Any) -> Any:
        nonlocal builds
        builds += 1
        built = real(engine, *args, **more)
        if builds == 1:
            table.insert({"k": [key], "a": [-1]})
        return built

    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options()) as table:
        set_options(table, ingest_threshold_rows=50)
        with small_runs(spill=spill):
            monkeypatch.setattr(ingest, "_build", build)
            if key == 55:
                with pytest.raises(kc.RowErrors) as caught:
                    table.insert(numbers(0, 100))
                assert caught.value.errors["key"].to_pylist() == [{"k": 55}]
                assert table.count() == 1
            else:
                table.insert(numbers(0, 100))
                assert table.count() == 101
        assert builds == (2 if key == 55 else 1)


def test_a_token_is_asked_before_the_rows(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "t", SIMPLE, "k", options=options()) as table, small_runs(spill=True):
        first = table.insert(numbers(0, 100), txn=("job", 1))
        again = table.insert(numbers(0, 100), txn=("job", 1))
        assert again.deduplicated and again.counts == first.counts == (100, 0, 0, 0)
        assert table.count() == 100
