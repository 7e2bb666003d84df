"""``table.backup``: the rows of one moment, or what changed since an earlier backup, in a folder elsewhere.

snapshot -> scan, or net changes since the backup before -> runs -> manifest -> its number.
A backup that has its number is whole (``backup_place.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.run.clock import timestamp_of
from kudu_core.common.run.locks import Claim
from kudu_core.common.run.measure.work import LongWork, under_way
from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.errors import InvalidArgument, shown
from kudu_core.table.backup.backup_file import BackupFile, BackupFileWriter
from kudu_core.table.backup.backup_manifest import (
    MAX_NUMBER,
    OPERATIONS,
    BackupManifest,
    BackupResult,
    check_runs,
    needed,
    points,
)
from kudu_core.table.backup.backup_place import check_folder
from kudu_core.table.changes.changes import open_changes
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.read.plan import ALL_ROWS, ScanRequest
from kudu_core.table.read.scan import open_scan
from kudu_core.table.read.snapshot import Snapshot, open_snapshot

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.backup.backup_place import BackupPlace
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle

RUN_BYTES = 64 << 20
"""Of rows as Arrow, in one run: who restores has one in memory at a time."""
COMPRESSION = "zstd"
LAST = "last"


Counts = tuple[int, int, int]
"""Rows that were inserted, updated and deleted."""
Runs = Callable[["FileSystem", str, BackupManifest, Snapshot], tuple[list[BackupFile], Counts]]
"""Writes the rows of a backup, durably, to a directory in the folder of backups; they are those of the
snapshot, or what changed between ``BackupManifest.since`` and it."""


def backup(
    handle: Handle, place: BackupPlace, since: Any, runs: Runs | None = None, *, progress: Any = None
) -> BackupResult:
    """Write one backup; the walk behind ``Table.backup``.  ``runs``: somebody else writes the rows."""
    with LongWork("backup", handle.opened().tell, progress=progress):
        return _backup(handle, place, since, runs)


def _backup(handle: Handle, place: BackupPlace, since: Any, runs: Runs | None) -> BackupResult:
    engine, fs, folder = handle.opened(), place.fs, place.folder
    check_folder(fs, engine.path, folder)
    with place.writing() as known:
        other = next((m for m in known if m.uuid != engine.uuid), None)
        if other is not None:
            raise InvalidArgument(f"{folder} holds backups of another table; give each a folder of its own")
        before = _before(fs, folder, known, since)
        number = known[-1].number + 1 if known else 1
        if number > MAX_NUMBER:
            raise InvalidArgument(f"{folder} holds backup {MAX_NUMBER:,}, the last one; begin another folder")

        def written() -> BackupResult:
            head, columns = _head(handle.opened(), before, number)
            with columns, open_snapshot(handle, head.timestamp) as snapshot:
                if before is not None and before.timestamp == head.timestamp:
                    return before.result(folder)  # nothing was written since
                write = runs or partial(_runs_here, handle, name=f"{place.prefix}{{:06d}}.arrow".format)
                return _write(handle, place, head, snapshot, write)

        return handle.of_now(None, written)


def _head(engine: Engine, before: BackupManifest | None, number: int) -> tuple[BackupManifest, Claim]:
    """The newest moment that no crash can take back, and the table's columns and ranges then.

    As long as the claim lasts, no file is written without those columns.
    """
    with engine.altering:
        schema, partitions = engine.schema, engine.partitions.alone
        moment = max(engine.log.cut(), engine.oldest_ts) if engine.writer else engine.visible_ts
        pinned = engine.schema_pins.pin(schema)
    if engine.writer:
        engine.log.wait_durable(moment)
        engine.wait_visible(moment)
    state, since = engine.table_file.state, None if before is None else before.timestamp
    head = BackupManifest(
        state.uuid, moment, since, schema, partitions, state.options, (0, 0, 0), 0, (), number
    )
    return head, pinned


def _before(fs: FileSystem, folder: str, known: list[BackupManifest], since: Any) -> BackupManifest | None:
    """The backup that the new one continues, with all that it needs; None: none, for a full one."""
    if since is None:
        return None
    wanted: int | str
    if isinstance(since, BackupResult | Snapshot):
        wanted = since.timestamp
    elif isinstance(since, str) and since == LAST:
        wanted = since
    elif (number := timestamp_of(since)) is not None:
        wanted = number
    else:
        raise InvalidArgument(
            f'since is "{LAST}", the timestamp of a backup, its Snapshot or what Table.backup returned, '
            f"not {shown(since)}"
        )
    if not known:
        raise InvalidArgument(f"there is no backup in {folder} to continue; make a full one, with since=None")
    found = known[-1:] if wanted == LAST else [m for m in known if m.timestamp == wanted]
    if not found:
        raise InvalidArgument(
            f"no backup in {folder} is of {wanted}, so changes since then would leave a gap; {points(known)}"
        )
    for manifest in needed(folder, known, found[-1]):
        check_runs(fs, folder, manifest)
    return found[-1]


def _write(
    handle: Handle, place: BackupPlace, head: BackupManifest, snapshot: Snapshot, write: Runs
) -> BackupResult:
    with place.making(head) as directory:
        runs, counts = write(place.fs, directory, head, snapshot)
        total = counts[0]
        if head.since is not None:
            total = open_scan(handle, ALL_ROWS, snapshot, head.schema).count()
        manifest = replace(head, counts=counts, total=total, runs=tuple(runs))
        place.commit(directory, manifest)
    return manifest.result(place.folder)


def _runs_here(
    handle: Handle,
    fs: FileSystem,
    directory: str,
    head: BackupManifest,
    snapshot: Snapshot,
    name: Callable[[int], str],
) -> tuple[list[BackupFile], Counts]:
    rows: Iterator[pa.RecordBatch]
    work = under_way()
    assert work is not None
    if head.since is None:
        work.begin("writing", _rows_about(handle.engine))
        rows = iter(open_scan(handle, ScanRequest(stored=True, expired=True), snapshot, head.schema))
    else:
        work.begin("writing")
        net = ChangesRequest(net=True, stored=True)
        rows = iter(open_changes(handle, net, head.since, snapshot, head.schema))
    return write_runs(fs, directory, head.arrow_schema(), work.over(rows, lambda b: b.num_rows), name)


def _rows_about(engine: Engine) -> int:
    """Dead rows count too: who lives is known when all is read."""
    stored = sum(rowset.meta.rows for tablet in engine.tablets for rowset in tablet.view.rowsets)
    memories = (m for tablet in engine.tablets for m in (tablet.view.active, *tablet.view.frozen))
    return stored + sum(map(len, memories))


def write_runs(
    fs: FileSystem,
    directory: str,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    name: Callable[[int], str] = "rows-{:06d}.arrow".format,
) -> tuple[list[BackupFile], Counts]:
    """The rows in files of about ``RUN_BYTES``, and how many were inserted, updated and deleted.

    ``name`` of the first file, numbered 1, and those after it: such as nobody else uses.
    """
    runs: list[BackupFile] = []
    counts = [0, 0, 0]
    writer: BackupFileWriter | None = None
    size = 0
    try:
        for batch in batches:
            if OP_COLUMN in schema.names:
                ops = batch.column(OP_COLUMN)
                for place, operation in enumerate(OPERATIONS):
                    counts[place] += pc.sum(pc.equal(ops, operation)).as_py() or 0
            else:
                counts[0] += batch.num_rows
            if writer is None:
                writer = BackupFileWriter(fs, directory, name(len(runs) + 1), schema, compression=COMPRESSION)
                size = 0
            arrays = [batch.column(field.name) for field in schema]
            writer.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
            size += batch.nbytes
            if size >= RUN_BYTES:
                runs.append(writer.finish())
                writer = None
        if writer is not None:
            runs.append(writer.finish())
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
    inserted, updated, deleted = counts
    return runs, (inserted, updated, deleted)


__all__ = ["backup", "write_runs"]
