"""``table.verify``: sound files are read to the last byte, and damage that nobody has met yet is found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.jobs import commit
from kudu_core.tablet.ingest import install
from tests.support.inside import handle_of, metas_of, rowsets_of
from tests.support.staged import marks
from tests.support.tables import Make


def filled(make: Make) -> kc.Table:
    table = make(history_retention_s=None)
    table.insert([{"k": k, "a": k, "s": f"w{k % 7}"} for k in range(3000)])
    table.flush()
    for step in range(2):
        table.update([{"k": k, "a": step} for k in range(500)])
        table.delete([2000 + step])
        table.flush()
    table.compact(full=True)
    table.update([{"k": 1, "a": 5}])
    return table


def test_a_sound_table(make: Make, path: Path) -> None:
    table = filled(make)
    with kc.open_table(path) as reader:
        found = [table.verify(), reader.verify()]
    stored = sum(p.stat().st_size for p in path.rglob("*.rows")) + sum(
        p.stat().st_size for p in path.rglob("*.delta")
    )
    [rowset] = rowsets_of(table)
    assert found[0].files == len(rowset.meta.files) > 3
    assert found[0].bytes == found[1].bytes <= stored
    assert found[0].records >= 1


@pytest.mark.parametrize("suffix", ["rows", "delta"])
def test_damage_is_found(make: Make, path: Path, suffix: str) -> None:
    table = filled(make)
    named = {file.name for meta in metas_of(table) for file in meta.files}
    table.close()
    for file in sorted(p for p in path.rglob(f"*.{suffix}") if p.name in named):
        sound = file.read_bytes()
        broken = bytearray(sound)
        broken[len(broken) // 2] ^= 4
        file.write_bytes(bytes(broken))
        # Replay may meet it first: the log changes a row of the file.
        with pytest.raises(kc.Corruption, match=file.name), kc.open_table(path) as reader:
            reader.verify()
        file.write_bytes(sound)
    with kc.open_table(path) as reader:
        reader.verify()


def test_what_is_ours_is_not_foreign(make: Make, path: Path) -> None:
    """Jobs that wait, marks of those that are committed, ``lost/``, what a repair has put aside."""
    table = filled(make)
    columns = [("k", "int64"), ("a", "int64")]
    done, _ = (commit.begin(handle_of(table), "upsert", columns) for _ in range(2))
    stager = commit.stager(done, "p0")
    stager.append(pa.record_batch({"k": [1], "a": [1]}))
    commit.commit_job(done, stager.finish(), handle_of(table))
    table.close()
    (path / "tablets" / "00000001" / "000001-00000001.rows").write_bytes(b"an orphan")
    with kc.open_table(path, "rw") as table:
        found = table.verify()
    assert marks(path) == [done.id] and len(found.staging) == 1 and found.lost_files == 1
    assert found.foreign == ()
    kc.repair(path, dry_run=False)
    with kc.open_table(f"{path}.repaired") as repaired:
        assert repaired.verify().foreign == ()
    strange = ["notes", "staging/notes.committed", "tablets/00000001/notes", "wal/notes"]
    for name in strange:
        (path / name).write_bytes(b"")
    with kc.open_table(path) as reader:
        assert sorted(reader.verify().foreign) == strange


def test_an_ingest_that_only_the_log_has(make: Make, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash came between its record and the edit: the next open for writing installs it, if it can."""
    table = make(ingest_threshold_rows=10)
    table.insert([{"k": k, "a": k} for k in range(0, 40, 2)])

    def killed(*_: Any) -> NoReturn:
        raise InterruptedError

    with monkeypatch.context() as patched, pytest.raises(InterruptedError):
        patched.setattr(install, "install", killed)
        table.upsert([{"k": k, "a": -k} for k in range(40)])
    left = path.parent / "left"
    shutil.copytree(path, left)
    with kc.open_table(left) as reader:
        assert reader.count() == 20, "a reader installs nothing"
        found = reader.verify()
    named = sorted(left.rglob("tablets/*/*.rows")) + sorted(left.rglob("tablets/*/*.delta"))
    assert len(named) == 3 and found.files == 3 and found.unnamed == ()
    assert found.bytes == sum(file.stat().st_size for file in named)
    for file in named:
        sound = file.read_bytes()
        for data in (None, sound[:-1], sound[:100] + bytes([sound[100] ^ 1]) + sound[101:]):
            file.unlink()
            if data is not None:
                file.write_bytes(data)
            with kc.open_table(left) as reader, pytest.raises(kc.Corruption, match=file.name):
                reader.verify()
            file.write_bytes(sound)
    with kc.open_table(left, "rw") as table:
        assert table.count() == 40
        again = table.verify()
    assert (again.files, again.bytes) == (found.files, found.bytes)
