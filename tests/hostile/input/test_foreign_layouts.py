"""Arrow data that look odd and are legal come back as they are; forged streams of a backup do not."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.base.crc32c import crc32c
from kudu_core.common.types.types import ColumnType
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.backup.backup_manifest import read_manifest
from kudu_core.table.jobs import commit
from tests.support.bulk import small_runs
from tests.support.cases.foreign import HOSTILE, ROWS, VALUES
from tests.support.cases.odd import ODD, Odd
from tests.support.hostile.doors import OLD, as_batch, make, state, written_and_opened_again
from tests.support.inside import handle_of

# ---- a backup whose streams were forged


def test_restore_of_forged_streams(tmp_path: Path, long: bool) -> None:
    """The checksum is right and the rows are not: no table appears, and the backup is as it was."""
    with make(tmp_path / "t") as table:
        table.backup(tmp_path / "backup")
    directory = tmp_path / "backup" / "00000001"
    manifest = read_manifest(PosixFileSystem(), str(tmp_path / "backup"), 1)
    schema = manifest.arrow_schema()
    [run] = manifest.runs
    forged = 0
    for case in HOSTILE if long else HOSTILE[::3]:
        arrow = ColumnType.parse(case.column).arrow
        array, spoil = case.make()
        if array.type != arrow:
            continue
        arrays = [array if f.name == case.column else pa.nulls(ROWS, f.type) for f in schema]
        arrays[0] = pa.array(OLD)
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        spoil()
        sink = pa.BufferOutputStream()
        with suppress(pa.ArrowException), pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch)
        raw = sink.getvalue().to_pybytes()
        with suppress(pa.ArrowException, OSError):
            pa.ipc.open_stream(raw).read_all().validate(full=True)
            continue  # Arrow's own writer made it sound, or shorter
        forged += 1
        (directory / run.name).write_bytes(raw)
        own = type(run)(run.name, run.rows, len(raw), crc32c(raw))
        (directory / "BACKUP").write_bytes(replace(manifest, runs=(own,)).to_bytes())
        with pytest.raises(kc.Corruption):
            kc.restore(tmp_path / "backup", tmp_path / "restored")
        assert not (tmp_path / "restored").exists()
        assert sorted(p.name for p in tmp_path.iterdir()) == ["backup", "t"], case
    assert forged > 5


# ---- legal, however odd

LAYOUTS = ("memory", "flushed", "bulk", "spilled", "staged")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_odd_buffers_come_back_as_they_are(tmp_path: Path, layout: str, long: bool) -> None:
    options = {"ingest_threshold_rows": 1} if layout in ("bulk", "spilled") else {}
    with make(tmp_path / "t", **options) as table:
        for case in ODD if long or layout == "memory" else ODD[LAYOUTS.index(layout) :: len(LAYOUTS)]:
            batch = as_batch(OLD, case.column, *case.made())
            if layout == "spilled":
                with small_runs(spill=True):
                    table.upsert(iter([batch.slice(0, 1), batch.slice(1, 1), batch.slice(2)]))
            elif layout == "staged":
                job = commit.begin(handle_of(table), "upsert", [("k", "int64"), (case.column, case.column)])
                stager = commit.stager(job, "attempt")
                stager.append(batch)
                commit.commit_job(job, stager.finish(), handle_of(table), ())
            else:
                table.upsert(batch)
            if layout == "flushed":
                table.flush()
            _check(table, case)
        written_and_opened_again(table, 5).close()


def _check(table: kc.Table, case: Odd) -> None:
    found = table.scan([case.column], key_range=(0, 3), order="key").to_table()
    found.validate(full=True)
    assert found[case.column].to_pylist() == case.cells, case
    assert [table.get(k)[case.column] for k in OLD] == case.cells, case  # type: ignore[index]


def test_no_rows_of_every_form(tmp_path: Path) -> None:
    """Without an offsets buffer, too, which an array without rows need not have."""
    with make(tmp_path / "t") as table:
        before = state(table)
        for name in VALUES:
            arrow = ColumnType.parse(name).arrow
            parts = [None] if ColumnType.parse(name).width else [pa.py_buffer(b""), None]
            arrays = [pa.array([], arrow), pa.array([None], arrow).slice(1)]
            with suppress(pa.ArrowInvalid):  # pyarrow itself makes no such array of some types
                arrays.append(pa.Array.from_buffers(arrow, 0, [None, *parts]))
            for array in arrays:
                table.upsert(as_batch([], name, array, lambda: None))
        assert state(table) == before
