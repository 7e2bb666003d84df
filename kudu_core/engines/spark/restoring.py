"""A table made from backups by Spark: tasks read the backups' files and write the table's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from kudu_core.common.run.clock import Clock
from kudu_core.engines.spark.codes import coded
from kudu_core.engines.spark.handles import Path, StorageOptions
from kudu_core.engines.spark.scan import collected, frame_of, parallelism, shared_out
from kudu_core.engines.spark.staging import attempt_name, resolved
from kudu_core.engines.spark.write import TASKS_PER_CORE, tasks_of
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.objects.urls import is_url
from kudu_core.table.backup import restore as restores
from kudu_core.table.backup.backup_place import options_of_both, place_at
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.restore_job import RunShare, Staged, filling, stage_shares
from kudu_core.table.lifecycle.handles import table_path
from kudu_core.table.lifecycle.locations import location_of
from kudu_core.table.read.tokens import DEFAULT_TARGET_ROWS, check_target
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun

_STAGED = StructType([StructField("place", IntegerType(), False), StructField("told", BinaryType(), False)])
_RESOLVED = StructType([StructField("told", BinaryType(), False)])


def restore(
    spark: SparkSession,
    src: Path,
    path: Path,
    at: Any = None,
    *,
    target_rows_per_task: int = DEFAULT_TARGET_ROWS,
    storage_options: StorageOptions = None,
    src_storage_options: StorageOptions = None,
) -> None:
    """Make a new table from a folder of backups: the one that ``kudu_core.restore`` makes of it.

    It has the columns, partitions and options that the table had at the restored backup, and its rows, all
    with the time of the restore.  Tasks read the backups' files and sort their rows, other tasks write the
    files of the tablets, and the driver commits them as one change.  It is made in a folder beside ``path``
    and appears there whole, by a rename, or not at all: a driver that is killed leaves that folder, which
    the next restore to ``path`` removes; run it again.

    Into an object store nobody sees the table before it is whole, and a restore that was cut short is
    brought to its end by the same call.  There the driver itself puts together what several backups say.

    >>> backup, made = ks.backup(spark, stock, folder), ks.restore(spark, folder, path)
    >>> ks.count(spark, path)
    3

    Parameters
    ----------
    src
        The folder that ``backup`` wrote to, on a file system that every executor sees, or its URL.
    path
        Where the new table is to be; likewise.  It is not left open: ``kudu_core.open_table`` opens it.
    at
        Which backup: what ``backup`` returned, its ``timestamp``, or that as an aware datetime.  None: the
        newest one.
    target_rows_per_task
        Rows that a task reads; it reads whole files, which ``backup`` makes of about 64 MiB.
    storage_options
        As of ``scan``, for URLs in ``path`` and in ``src``.
    src_storage_options
        For a URL in ``src``, where it needs others.

    Raises
    ------
    TableExists
        There is something at ``path``; nothing was changed.
    TableNotFound
        There is no backup at ``src``.
    InvalidArgument
        No backup is of ``at``; the message says which there are.
    Corruption
        A file is damaged or missing, or a backup between is.
    """

    def stage(job: Job, shares: Sequence[RunShare]) -> list[Staged]:
        tasks = shared_out(shares, target_rows_per_task, parallelism(spark))
        found = collected(frame_of(spark, tasks, _STAGED, partial(_stage, job, of_src)))
        return [(row.place, StagedRun.from_json(json.loads(row.told))) for row in found]

    def resolve(job: Job, runs: Sequence[StagedRun]) -> list[Resolution]:
        tasks = [
            tuple(StagedRun.from_json(run) for run in json.loads(task))
            for task in tasks_of(runs, TASKS_PER_CORE * parallelism(spark))
        ]
        found = collected(frame_of(spark, tasks, _RESOLVED, partial(_resolve, job)))
        return [Resolution.from_bytes(bytes(row.told)) for row in found]

    check_target(target_rows_per_task)
    src, path = table_path(src), table_path(path)
    of_path, of_src = options_of_both(src, path, storage_options, src_storage_options)
    clock = Clock()
    target = location_of(path, storage_options=of_path, clock=clock)
    # Tasks that resolve read the table, which nobody sees yet in a store.
    fill = filling(stage, None if is_url(path) else resolve)
    restores.restore(place_at(src, of_src, clock), PosixFileSystem(), target, at, clock, fill)


def _stage(
    job: Job, storage_options: StorageOptions, shares: Sequence[RunShare], wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    with coded():
        staged = stage_shares(job, shares, attempt_name(), storage_options)
    told = [json.dumps(run.to_json()).encode() for _, run in staged]
    arrays = [pa.array([place for place, _ in staged], pa.int32()), pa.array(told, pa.binary())]
    yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _resolve(job: Job, runs: Sequence[StagedRun], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    with coded():
        told = [resolution.to_bytes() for resolution in resolved(job, runs)]
    yield pa.RecordBatch.from_arrays([pa.array(told, pa.binary())], schema=wanted)
