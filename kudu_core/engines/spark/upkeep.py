"""Looking after a table by Spark: its tablets checked and backed up by tasks, its maintenance as a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.locks import Claim
from kudu_core.engines.spark.cache import handle_for
from kudu_core.engines.spark.cache import table as open_here
from kudu_core.engines.spark.codes import coded
from kudu_core.engines.spark.handles import Path, PathOrTable, StorageOptions, given_handle, place_of, reading
from kudu_core.engines.spark.scan import collected, frame_of, parallelism, shared_out
from kudu_core.engines.spark.staging import attempt_name
from kudu_core.errors import SchemaMismatch
from kudu_core.fs.api import FileSystem
from kudu_core.fs.missing import FileMissing
from kudu_core.objects.urls import is_url
from kudu_core.table.backup import backup as backups
from kudu_core.table.backup.backup_file import BackupFile
from kudu_core.table.backup.backup_manifest import BackupManifest, BackupResult
from kudu_core.table.backup.backup_place import place_at
from kudu_core.table.changes.change_tokens import ChangeToken, change_tokens, changes_of
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.jobs.merge_job import RemoteMergeTask, build_task, builder_of
from kudu_core.table.lifecycle.handles import open_handle, table_path
from kudu_core.table.lifecycle.maintain import maintain_now
from kudu_core.table.opened.handle import Handle, handle_of
from kudu_core.table.read.plan import ScanRequest
from kudu_core.table.read.snapshot import Snapshot
from kudu_core.table.read.tokens import DEFAULT_TARGET_ROWS, ScanToken, scan_of, scan_tokens
from kudu_core.table.report.verify import Verified, opened_anew, verify_frame, verify_tablet, with_tablets
from kudu_core.table.write.expired_rows import sweep

MERGES_AT_ONCE = 32
"""Each has a thread of the driver, the files of its inputs open, and four bytes of memory for each row."""
_TRIES = 5
_BUILT = StructType([StructField("told", BinaryType(), False)])
_CHECKED = StructType([StructField(name, LongType(), False) for name in ("files", "bytes", "edits")])
_RUNS = StructType(
    [StructField("name", StringType(), False)]
    + [
        StructField(name, LongType(), False)
        for name in ("rows", "size", "crc", "inserted", "updated", "deleted")
    ]
)


def maintain(
    spark: SparkSession,
    path: PathOrTable,
    budget_s: float | None = None,
    *,
    lock_timeout_s: float = 0.0,
    storage_options: StorageOptions = None,
) -> int:
    """Do what maintenance would do now, until nothing is worth it; how many operations it did.

    The driver of ``spark`` takes the table's lease, or uses the ``Table`` that has it, and chooses as
    ``Table.maintain`` does.  Tasks write the outputs of merges that read 32 MiB or more, of several tablets
    at a time; the driver carries over what is written meanwhile through its handle and installs them.
    Everything else is cheap and the driver's: flushes, which come first, and between the merges smaller ones,
    delta compactions, history and the files that nobody needs.

    A merge of which a task fails (after its retries) did not happen, and what the tasks leave behind is
    removed.  So it is when the driver dies: then by the next open for writing.

    In an object store the driver also takes away what distributed writes, and tasks of merges, have left,
    when it is as old as ``staging_grace_s``.

    >>> ks.maintain(spark, stock, budget_s=60) >= 0
    True

    Parameters
    ----------
    path
        Where the table is, on a file system that every executor sees or in an object store, or a ``Table`` of
        this process that is open for writing.
    budget_s
        Seconds after which no other operation is begun; None: no limit.
    lock_timeout_s
        How long to wait for another writer to let go, in seconds.
    storage_options
        As of ``scan``.

    Raises
    ------
    Locked
        Another process writes to the table: it looks after it as well.
    OSError, PySparkException, ...
        An operation failed, and those that were under way have come to their end; it is left alone for some
        seconds, so that a call after it does the others.
    """

    def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        found = collected(frame_of(spark, [(task,) for task in tasks], _BUILT, build_merges))
        return [bytes(row.told) for row in found]

    manual = {"maintenance": "manual"}
    given = given_handle(path, storage_options)
    opened: AbstractContextManager[Handle] = (
        open_handle(
            place_of(path), "rw", options=manual, timeout_s=lock_timeout_s, storage_options=storage_options
        )
        if given is None
        else nullcontext(given)
    )
    with opened as handle:
        engine = handle.for_writing()
        threads = min(parallelism(spark), MERGES_AT_ONCE)
        with Claim(engine.writers.committing) as claim:
            sweep(engine)
            return maintain_now(engine, budget_s, builder_of(engine, run, claim), threads)


def build_merges(tasks: Sequence[RemoteMergeTask], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The parts of merges that are a task's, in a worker process; an answer for each range of keys."""
    with coded():
        for task in tasks:
            here = handle_of(open_here(task.table_path, storage_options=task.storage_options))
            told = build_task(here, task, attempt_name())
            yield pa.RecordBatch.from_arrays([pa.array(told, pa.binary())], schema=wanted)


# ---- verify ----


@dataclass(frozen=True, slots=True)
class TabletShare:
    """One tablet to read, whole."""

    table_path: str
    tablet_id: int
    rows: int
    storage_options: StorageOptions = field(default=None, repr=False)


def verify(
    spark: SparkSession, path: PathOrTable, *, storage_options: StorageOptions = None
) -> Verified:
    """``Table.verify``, its tablets by tasks: TABLE, manifests, the log and every byte of the files.

    >>> ks.verify(spark, stock).lost_files
    0

    Raises
    ------
    Corruption
        At the first damage, with file and offset.
    """
    with reading(path, storage_options) as handle:
        engine = handle.opened()
        known = engine.table_file.storage_options
        shares = [
            TabletShare(
                engine.path, tablet.id, sum(rowset.meta.rows for rowset in tablet.view.rowsets), known
            )
            for tablet in engine.tablets
        ]
        fresh = opened_anew(engine)
        try:
            frame = verify_frame(fresh)
        finally:
            fresh.close()
    tasks = shared_out(shares, DEFAULT_TARGET_ROWS, parallelism(spark))
    found = collected(frame_of(spark, tasks, _CHECKED, _verify))
    return with_tablets(frame, [(row.files, row.bytes, row.edits) for row in found])


def _verify(shares: Sequence[TabletShare], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    with coded():
        for share in shares:
            found = _verified(share)
            yield pa.RecordBatch.from_arrays([pa.array([n], pa.int64()) for n in found], schema=wanted)


def _verified(share: TabletShare) -> tuple[int, int, int]:
    for attempt in range(_TRIES):
        # One of its own: nothing is to come from a cache.
        with open_handle(share.table_path, storage_options=share.storage_options) as handle:
            tablet = next((t for t in handle.engine.tablets if t.id == share.tablet_id), None)
            if tablet is None:
                return 0, 0, 0  # dropped, and its history is gone
            try:
                return verify_tablet(tablet)
            except FileMissing:  # merged meanwhile; in a state that is not the newest it is no damage
                if attempt + 1 == _TRIES:
                    raise
    raise AssertionError("unreachable")


# ---- backup ----


def backup(
    spark: SparkSession,
    path: PathOrTable,
    dst: Path,
    since: object = None,
    *,
    target_rows_per_task: int = DEFAULT_TARGET_ROWS,
    storage_options: StorageOptions = None,
    dst_storage_options: StorageOptions = None,
) -> BackupResult:
    """``Table.backup``, its files written by tasks.

    The folder, on a file system that every executor sees or in an object store, and the backups in it are
    those of ``Table.backup``: ``kudu_core.restore`` makes a table of them.

    >>> ks.backup(spark, stock, folder).total
    3

    Parameters
    ----------
    path
        Where the table is, or an open ``Table``, whose newest state is backed up.
    dst, since
        As ``Table.backup``.
    target_rows_per_task
        Rows, or changes of one tablet, that a task writes.
    storage_options
        As of ``scan``: of the table, and of ``dst`` if it is a URL.
    dst_storage_options
        For a URL in ``dst``, where it needs others.

    Raises
    ------
    ChangesLost, Locked, Corruption, OSError
        As ``Table.backup``; nothing is left of the backup.
    SchemaMismatch
        The table was altered meanwhile; run it again.
    """

    def runs(
        fs: FileSystem, directory: str, head: BackupManifest, snapshot: Snapshot
    ) -> tuple[list[BackupFile], tuple[int, int, int]]:
        shares: list[ScanToken | ChangeToken] = []
        if head.since is None:
            request = ScanRequest(stored=True, expired=True)
            shares += scan_tokens(handle, request, snapshot, target_rows_per_task)
        else:
            net = ChangesRequest(net=True, stored=True)
            shares += change_tokens(handle, net, head.since, snapshot, target_rows_per_task)
        if any(share.schema_version != head.schema.version for share in shares):
            raise SchemaMismatch(f"{handle.path} was altered while its backup began; run it again")
        schema = head.arrow_schema()

        def write(some: Sequence[ScanToken | ChangeToken], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
            with coded():
                there = place_at(dst, of_dst, Clock()).fs
                name = partial(_name, prefix)
                told, counts = backups.write_runs(there, directory, schema, _rows(some), name)
                for place, run in enumerate(told):
                    numbers = [run.rows, run.size, run.crc, *(counts if place == 0 else (0, 0, 0))]
                    arrays = [pa.array([run.name]), *(pa.array([n], pa.int64()) for n in numbers)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=wanted)

        tasks = shared_out(shares, target_rows_per_task, parallelism(spark))
        found = collected(frame_of(spark, tasks, _RUNS, write))
        known = {row.name for row in found}
        for name in fs.listdir(directory):
            if name.startswith(prefix) and name not in known:  # of an attempt that failed
                fs.unlink(f"{directory}/{name}")
        counts = tuple(sum(int(row[name]) for row in found) for name in ("inserted", "updated", "deleted"))
        inserted, updated, deleted = counts
        told = [BackupFile(row.name, row.rows, row.size, row.crc) for row in found]
        return told, (inserted, updated, deleted)

    dst = table_path(dst)
    of_dst = storage_options if is_url(dst) and dst_storage_options is None else dst_storage_options
    of_table = None if is_url(dst) and not is_url(place_of(path)) else storage_options
    with reading(path, of_table) as handle:
        engine = handle.opened()
        place = place_at(dst, of_dst, engine.clock, fs=engine.fs.local)
        prefix = place.prefix
        return backups.backup(handle, place, since, runs)


def _rows(shares: Sequence[ScanToken | ChangeToken]) -> Iterator[pa.RecordBatch]:
    for share in shares:
        handle = handle_for(share)
        yield from changes_of(handle, share) if isinstance(share, ChangeToken) else scan_of(handle, share)


def _name(prefix: str, number: int) -> str:
    context = TaskContext.get()
    assert context is not None, "runs in a task"
    return f"{prefix}{context.partitionId():05d}-{context.taskAttemptId()}-{number:04d}.arrow"
