"""Minor and major delta compactions, history GC: answers stay what they were at every readable time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kudu_core as kc
from tests.support.faults import checking
from tests.support.inside import metas_of, oldest_ts_of, rowsets_of, schema_of, tablets_of, wait_durable
from tests.support.models.changes import check_pairs
from tests.support.models.history import SCHEMA, History, random_batch
from tests.support.models.merging import random_compaction

OPTIONS = {"maintenance": "manual", "durability": "none", "file_grace_s": 0, "ingest_threshold_rows": 60}
MANIFESTS = {"MANIFEST", "MANIFEST.copy"}


def test_every_state_and_every_change_stay(tmp_path: Path, seed: int, long: bool) -> None:
    for run in range(30 if long else 1):
        rng = random.Random(f"{seed}-{run}")
        history = History()
        path = tmp_path / f"t{run}"
        by = [kc.HashPartition(["k"], 2)] if run % 2 else []
        compacted = 0
        with checking(True):
            table = kc.create_table(path, SCHEMA, "k", partition_by=by, options=OPTIONS)
            for step in range(60 if long else 36):
                rows, whole = rng.choice((1, 4, 70)), rng.random() < 0.5
                history.write(table, random_batch(rng, history.model, range(60), rows, whole=whole))
                draw = rng.random()
                if draw < 0.4:
                    table.flush()
                    compacted += random_compaction(table, rng)
                elif draw < 0.45:
                    table.close()
                    table = kc.open_table(path, "rw")
                if step % 12 == 11:
                    wait_durable(table)
                    history.check(table, rng)
                    check_pairs(table, history, rng, 4)
            table.flush()
            table.compact(full=True)
            history.check(table, rng, past=8)
            check_pairs(table, history, rng, 6)
            assert all(len(r.meta.redo) <= 1 for t in tablets_of(table) for r in t.view.rowsets)
            table.close()
        assert compacted > 3
        with kc.open_table(path) as reader:
            history.check(reader, rng, past=8)
            check_pairs(reader, history, rng, 2)


def updated(tmp_path: Path, **options: object) -> tuple[kc.Table, list[int]]:
    """A table of 100 rows, each updated three times, in files; the times of the writes."""
    table = kc.create_table(tmp_path / "t", SCHEMA, "k", options={**OPTIONS, **options})
    times = [table.insert([{"k": i, "a": i, "b": "x"} for i in range(50)]).timestamp]
    table.flush()
    for step in range(1, 4):
        times.append(table.update([{"k": i, "a": step * 1000 + i} for i in range(50)]).timestamp)
        table.flush()
    return table, times


def test_a_major_compaction_writes_only_its_columns(tmp_path: Path) -> None:
    table, times = updated(tmp_path)
    with table:
        [rowset] = rowsets_of(table)
        base = rowset.meta.base
        table.compact(full=True)
        [after] = rowsets_of(table)
        a = schema_of(table).by_name["a"].id
        assert after.meta.base == base and after.meta.redo == ()
        assert [c.column_ids for c in after.meta.replaced] == [(a,)]
        assert [u.updates for u in after.meta.undo] == [{a: 150}]
        for step, time in enumerate(times):
            expected = [(step * 1000 if step else 0) + i for i in range(50)]
            assert table.scan(["a"], at=time).to_table()["a"].to_pylist() == expected
            assert table.get(7, at=time) == {"k": 7, "a": expected[7], "b": "x", "c": None}
        # Updated and compacted again: the newer file supersedes the older one.
        table.update([{"k": i, "a": -i} for i in range(50)])
        table.flush()
        table.compact(full=True)
        [after] = rowsets_of(table)
        assert [c.column_ids for c in after.meta.replaced] == [(a,)]
        assert table.get(7)["a"] == -7
        assert table.get(7, at=times[2])["a"] == 2007
        names = {p.name for p in (tmp_path / "t/tablets/00000001").iterdir()}
        del rowset, after
        table.gc()
        left = {p.name for p in (tmp_path / "t/tablets/00000001").iterdir()}
        assert left == {f.name for m in metas_of(table) for f in m.files} | MANIFESTS
        assert left <= names


def test_retired_files_stay_for_a_scan_that_reads_them(tmp_path: Path) -> None:
    table, times = updated(tmp_path)
    with table:
        sources = table.scan(at=times[1])._sources(_counts())
        table.compact(full=True)
        table.gc()
        folder = tmp_path / "t/tablets/00000001"
        named = {f.name for m in metas_of(table) for f in m.files}
        held = {p.name for p in folder.iterdir()} - named
        assert held > MANIFESTS
        del sources
        table.gc()
        assert {p.name for p in folder.iterdir()} - named == MANIFESTS


def _counts() -> object:
    from kudu_core.rowset.scan.scan_counts import ScanCounts

    return ScanCounts()


def test_history_goes_when_nothing_keeps_it(tmp_path: Path) -> None:
    table, times = updated(tmp_path, history_retention_s=0)
    with table:
        table.compact(full=True)
        with table.snapshot(times[1]) as pinned:
            table.gc()
            [rowset] = rowsets_of(table)
            assert len(rowset.meta.undo) == 1, "the pinned snapshot needs it"
            assert pinned.get(3)["a"] == 1003
        table.gc()
        [rowset] = rowsets_of(table)
        assert rowset.meta.undo == ()
        assert table.get(3)["a"] == 3003
        with pytest.raises(kc.SnapshotTooOld, match=str(oldest_ts_of(table))):
            table.scan(at=times[1])
        with pytest.raises(kc.ChangesLost, match="since=None"):
            table.changes(times[1])
        for net in (False, True):
            first = table.changes(None, net=net).to_pylist()
            assert {r["_op"] for r in first} == {"insert"}, "what there is when history begins"
            assert {r["k"]: r["a"] for r in first} == {i: 3000 + i for i in range(50)}
    with kc.open_table(tmp_path / "t") as reader, pytest.raises(kc.SnapshotTooOld):
        reader.get(3, at=times[1])


def test_history_stays_for_ever_when_asked(tmp_path: Path) -> None:
    table, times = updated(tmp_path, history_retention_s=None)
    with table:
        table.compact(full=True)
        table.gc()
        assert table.get(3, at=times[1])["a"] == 1003


def test_a_rowset_of_dead_rows_goes(tmp_path: Path) -> None:
    options = {**OPTIONS, "history_retention_s": 0}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        table.insert([{"k": i} for i in range(20)])
        table.flush()
        table.insert([{"k": 100 + i} for i in range(20)])
        table.flush()
        table.delete(list(range(19)))
        table.flush()
        table.gc()
        assert len(rowsets_of(table)) == 2, "one row lives"
        table.delete([19])
        table.flush()
        table.gc()
        assert [r.meta.rows for r in rowsets_of(table)] == [20]
        assert table.count() == 20
        assert table.insert([{"k": 3}]).inserted == 1
    with kc.open_table(tmp_path / "t", "rw") as table:
        assert table.count() == 21


def test_files_stay_until_the_edit_that_drops_them_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol E3, E4: until then a power cut leads back to them."""
    from kudu_core.tablet.store.manifest import Manifest

    table, times = updated(tmp_path)
    folder = tmp_path / "t/tablets/00000001"
    with table:
        [tablet] = tablets_of(table)
        old = {redo.file.name for meta in tablet.rowset_metas for redo in meta.redo}
        with monkeypatch.context() as patch:
            patch.setattr(Manifest, "sync", lambda manifest: None)  # as between install and fsync
            table.compact(full=True)
            table.gc()
            assert not old & {file.name for meta in tablet.rowset_metas for file in meta.files}
            assert old <= {path.name for path in folder.iterdir()}
        assert tablet.manifest is not None
        tablet.manifest.sync()
        table.gc()
        assert not old & {path.name for path in folder.iterdir()}
        assert table.get(7, at=times[1])["a"] == 1007


def test_retired_files_stay_for_file_grace_s() -> None:
    """Where somebody reads: another process may have them open soon."""
    from tests.support.clock import ManualClock
    from tests.support.fs.memory import MemoryFileSystem

    fs, clock = MemoryFileSystem(), ManualClock()
    options = {**OPTIONS, "file_grace_s": 60}
    with kc.create_table("/t", SCHEMA, "k", options=options, _fs=fs, _clock=clock) as table:
        table.insert([{"k": 1, "a": 1}])
        table.flush()
        table.update([{"k": 1, "a": 2}])
        table.flush()
        [tablet] = tablets_of(table)
        [old] = [redo.file.name for meta in tablet.rowset_metas for redo in meta.redo]
        with kc.open_table("/t", _fs=fs, _clock=clock):
            table.compact(full=True)
            clock.advance(59)
            table.gc()
            assert old in fs.listdir("/t/tablets/00000001")
            clock.advance(2)
            table.gc()
            assert old not in fs.listdir("/t/tablets/00000001")


@pytest.mark.parametrize("files", [1, 2])
def test_a_rowset_stays_while_a_readable_time_sees_one_of_its_rows(files: int) -> None:
    """All rows are dead, one of them since the end of history."""
    from tests.support.clock import ManualClock
    from tests.support.fs.memory import MemoryFileSystem

    fs, clock = MemoryFileSystem(), ManualClock()
    options = {**OPTIONS, "history_retention_s": 10}
    with kc.create_table("/t", SCHEMA, "k", options=options, _fs=fs, _clock=clock) as table:
        table.insert([{"k": 1, "a": 1}, {"k": 2, "a": 2}])
        table.flush()
        table.delete([1])
        if files == 2:
            table.flush()
        clock.advance(12)
        last = table.delete([2]).timestamp
        before = last - 1
        table.flush()
        clock.advance(8)
        table.gc()
        assert table.scan(at=before).to_pylist() == [{"k": 2, "a": 2, "b": None, "c": None}]
        assert [r["_op"] for r in table.changes(before).to_pylist()] == ["delete"]
        clock.advance(3)
        table.gc()
        assert rowsets_of(table) == ()
        with pytest.raises(kc.SnapshotTooOld):
            table.scan(at=before)
        assert table.count() == 0 and oldest_ts_of(table) >= last
