"""Writing a DataFrame: rows to their tablets by Spark, staged by tasks, committed by the driver."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from kudu_core.common.partition.declared import DEFAULT_SEED
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.cycles import cycles_left
from kudu_core.common.schema.schema import Schema
from kudu_core.engines.spark.codes import coded
from kudu_core.engines.spark.few import few_rows
from kudu_core.engines.spark.handles import Path, PathOrTable, StorageOptions, given_handle, place_of, reading
from kudu_core.engines.spark.scan import collected, one_each, parallelism
from kudu_core.engines.spark.schema import (
    binary_cells,
    spark_type,
    staged_columns,
    table_schema,
    to_table,
)
from kudu_core.engines.spark.staging import resolved, stage, unpacked
from kudu_core.engines.spark.versions.placement import placed
from kudu_core.errors import InvalidArgument
from kudu_core.options import Options
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.held import commit_held, stage_held
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.job_table import JobTable
from kudu_core.table.jobs.resolve import contested
from kudu_core.table.lifecycle.handles import create_handle
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun

MODES = ("append", "overwrite")
REPARTITION = ("tablet", "none")
TASKS_PER_CORE = 4
"""Tasks that resolve, at most: each opens the table."""
DRIVER_ROWS, DRIVER_BYTES = 1_000_000, 128 << 20
"""So many rows and staged bytes the driver resolves itself, in some 0.4 s: tasks begin to after as long."""
ENTRY_BYTES = 300
"""Of a file in a task's answer, about."""
_ANSWER = "told binary, held binary"

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What ``mapInArrow`` takes."""


def write(
    df: DataFrame,
    table: PathOrTable,
    operation: str = "upsert",
    *,
    mode: str = "append",
    txn: tuple[str, int] | tuple[str, int, str] | None = None,
    on_repeat: str = "check",
    on_duplicate: str = "error",
    sequence_by: str | None = None,
    ignore_null: bool = False,
    repartition: str = "tablet",
    lock_timeout_s: float | None = None,
    storage_options: StorageOptions = None,
) -> WriteResult:
    """Write all rows of a DataFrame as one change of the table, or none of them.

    >>> ks.write(df, stock).inserted
    1

    Parameters
    ----------
    table
        A path that every executor sees, a URL of an object store, or a ``Table`` of this process that is open
        for writing.
    operation
        insert, insert_ignore, upsert, update, update_ignore, delete (key columns only),
        delete_ignore, or apply: each row's operation stands in a string column ``_op``.
    mode
        "append": to what is there.  "overwrite": in the place of all rows that are there, at one timestamp;
        the operation is insert or upsert.  Reads of before, changes and history see the old rows.
    txn
        ``(app_id, version)``, or with the id of what the rows come from as a third member: a version that was
        applied with the same rows is not applied again, so a job may be rerun.
    on_repeat
        "check": a version that was applied with other rows is refused.  "skip": its rows are not looked at,
        for jobs whose rows differ from run to run; every version up to the last one is taken for done.
    on_duplicate
        "error": two rows with one key are refused.  "last": the one counts whose ``sequence_by`` is the
        largest.  "any": both are applied, in no given order.
    sequence_by
        With "last": a column of the table, or another one of the DataFrame, which is then not stored.  NULL
        comes before everything; two rows of a key with the same largest value are refused.
    ignore_null
        A NULL leaves its column as it is, and in a new row to the default.  Not with "any".
    repartition
        "tablet": Spark brings the rows of a tablet together and sorts them.  "none": no shuffle.
    lock_timeout_s
        How long the commit waits for another writer; None: the table's option.
    storage_options
        As of ``kudu_core.open_table``, for a URL.  They go to the tasks; without them each takes what its own
        environment says.

    Returns
    -------
    The timestamp from which on the rows are visible, and the counts; those of an overwrite are of the new
    rows, not of those that went.

    Raises
    ------
    SchemaMismatch
        A column is unknown, missing or of another type, or a value does not fit.
    RowErrors
        Rows were refused.  Nothing was applied.
    TokenMismatch
        ``txn`` names a write that was applied, and this is another one.  Nothing was applied, and what was
        staged is gone.
    Locked
        Another writer kept the table.  The staged rows are kept; ``commit`` writes them later.
    """
    if mode not in MODES:
        raise InvalidArgument(f'mode is "append" or "overwrite", not {mode!r}')
    overwrite = mode == "overwrite"
    token = jobs.check_job(
        operation, txn, on_duplicate, sequence_by, ignore_null, overwrite=overwrite, on_repeat=on_repeat
    )
    if repartition not in REPARTITION:
        raise InvalidArgument(f'repartition is "tablet" or "none", not {repartition!r}')
    given = given_handle(table, storage_options)
    if given is not None:
        given.for_writing()
        found = JobTable.of(given.opened())
    else:
        found = JobTable.at(place_of(table), storage_options)
    columns = staged_columns(df.schema, found.schema, operation, sequence_by)
    few = few_rows(df)
    if few is None and token is not None:
        with reading(table, storage_options) as handle:
            known = jobs.applied(handle, token)
        if known is not None:
            return known
    job = jobs.begin(
        found, operation, columns, txn=token, on_duplicate=on_duplicate, sequence_by=sequence_by,
        ignore_null=ignore_null, lock_timeout_s=lock_timeout_s, overwrite=overwrite,
    )  # fmt: skip
    try:
        if few is not None:
            return commit_held(job, (to_table(batch, columns) for batch in few), handle=given)
        if repartition == "tablet" and len(found.partitions.partitions) > 1:
            df = routed(df, found.schema, found.partitions)
        runs, held = _stage(df, job)
        if held and not runs:
            return commit_held(job, unpacked(held), handle=given)
        runs += stage_held(job, unpacked(held))
        resolutions = _resolve(df, table, job, runs, storage_options)
        return jobs.commit_job(job, runs, given, resolutions)
    except BaseException:
        jobs.abandon(job)
        raise


def commit(table: PathOrTable, job: str, *, storage_options: StorageOptions = None) -> WriteResult:
    """Commit a job that found the table locked; its id stands in the ``Locked`` error."""
    return jobs.resume(place_of(table), job, given_handle(table, storage_options), storage_options)


def create(
    path: Path,
    schema: StructType | DataFrame,
    primary_key: str | list[str] | tuple[str, ...],
    *,
    partition_by: Any = (),
    options: Options | dict[str, Any] | None = None,
    exist_ok: bool = False,
    storage_options: StorageOptions = None,
) -> None:
    """Make a table for rows of this Spark schema, or of this DataFrame.

    >>> ks.create(path, df, "id")
    >>> ks.count(spark, path)
    0
    """
    struct = schema.schema if isinstance(schema, DataFrame) else schema
    if not isinstance(struct, StructType):
        raise InvalidArgument(f"schema is a StructType or a DataFrame, not {schema!r}")
    create_handle(
        path, table_schema(struct), primary_key, partition_by=partition_by, options=options,
        exist_ok=exist_ok, storage_options=storage_options,
    ).close()  # fmt: skip


def _stage(df: DataFrame, job: Job) -> tuple[list[StagedRun], list[bytes]]:
    """Run the tasks that stage; of the attempts that won, the runs, and the rows of those that had few."""
    told, held = _answers(df, staging_function(job))
    return runs_of(told), held


def _resolve(
    df: DataFrame,
    table: PathOrTable,
    job: Job,
    runs: Sequence[StagedRun],
    storage_options: StorageOptions,
) -> list[Resolution]:
    """Run the tasks that resolve, of several tablets each; what those of the attempts that won have found."""
    if jobs.is_small(jobs.form_of(job).options, runs) or _is_for_driver(runs):
        return []
    with reading(table, storage_options) as handle:
        if _is_for_driver(contested(handle, jobs.form_of(job), runs, overwrite=job.overwrite)):
            return []
    tasks = tasks_of(runs, TASKS_PER_CORE * parallelism(df.sparkSession))
    if not tasks:
        return []
    work = one_each(df.sparkSession, tasks)
    return resolutions_of(_answers(work, resolving_function(job))[0])


def _is_for_driver(runs: Sequence[StagedRun]) -> bool:
    """Whether the driver, which resolves what no task has, does it before a job of Spark begins."""
    return sum(run.rows for run in runs) <= DRIVER_ROWS and sum(run.nbytes for run in runs) <= DRIVER_BYTES


def runs_of(answers: Sequence[bytes]) -> list[StagedRun]:
    """What tasks that stage have told."""
    with cycles_left(len(answers)):
        return [StagedRun.from_json(json.loads(told)) for told in answers]


def resolutions_of(answers: Sequence[bytes]) -> list[Resolution]:
    """What tasks that resolve have told, a tablet each."""
    with cycles_left(sum(map(len, answers)) // ENTRY_BYTES):
        return [Resolution.from_bytes(told) for told in answers]


def tasks_of(runs: Sequence[StagedRun], at_most: int) -> list[bytes]:
    """Runs by task, as JSON: each tablet's in one, and about as many bytes in each."""
    with cycles_left(len(runs)):
        return _tasks_of(runs, at_most)


def _tasks_of(runs: Sequence[StagedRun], at_most: int) -> list[bytes]:
    by_tablet: dict[int, list[StagedRun]] = {}
    for run in runs:
        if run.ordinal >= 0:
            by_tablet.setdefault(run.ordinal, []).append(run)
    sized = sorted(((sum(run.nbytes for run in of), of) for of in by_tablet.values()), key=lambda s: -s[0])
    tasks: list[tuple[int, int]] = [(0, number) for number in range(min(len(sized), at_most))]
    shares: list[list[StagedRun]] = [[] for _ in tasks]
    for nbytes, mine in sized:
        load, number = tasks[0]
        shares[number] += mine
        heapq.heapreplace(tasks, (load + nbytes, number))
    return [json.dumps([run.to_json() for run in share]).encode() for share in shares]


def _answers(df: DataFrame, function: Task) -> tuple[list[bytes], list[bytes]]:
    """What tasks have told, and the rows that they have handed back."""
    rows = collected(df.mapInArrow(function, _ANSWER))
    return (
        [bytes(row.told) for row in rows if row.told is not None],
        [bytes(row.held) for row in rows if row.held is not None],
    )


def staging_function(job: Job) -> Task:
    """For ``mapInArrow``: takes rows, stages them, gives back a row for each run, or the rows where they are
    few."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with coded():
            told = stage(job, batches)
        if told.runs:
            yield _told([json.dumps(run.to_json()).encode() for run in told.runs])
        elif told.held is not None:
            yield _told([], told.held)

    return run


def resolving_function(job: Job) -> Task:
    """For ``mapInArrow``: takes lists of runs, gives back a row for each tablet."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with coded():
            told = [
                StagedRun.from_json(value)
                for batch in batches
                for cell in batch.column(0).to_pylist()
                for value in json.loads(cell)
            ]
            found = resolved(job, told) if told else []
        if found:
            yield _told([resolution.to_bytes() for resolution in found])

    return run


def _told(answers: Sequence[bytes], held: bytes | None = None) -> pa.RecordBatch:
    arrays = [binary_cells(answers), pa.nulls(len(answers), pa.binary())]
    if held is not None:
        arrays = [pa.nulls(1, pa.binary()), binary_cells([held])]
    return pa.RecordBatch.from_arrays(arrays, ["told", "held"])


# ---- which tablet ----


def routed(df: DataFrame, schema: Schema, partitions: PartitionSchema) -> DataFrame:
    """The rows of a tablet in one Spark partition, in key order.

    Where the rows go decides how fast the commit is, never what it does: it routes them again.
    """
    tasks = min(len(partitions.partitions), 2 * parallelism(df.sparkSession))
    ordinal = tablet_ordinal(schema, partitions)
    together = placed(df, tasks, F.pmod(ordinal, F.lit(tasks)))
    first = [ordinal] if tasks < len(partitions.partitions) else []
    return together.sortWithinPartitions(*first, *(F.col(_quoted(name)) for name in schema.key_names))


def tablet_ordinal(schema: Schema, partitions: PartitionSchema) -> Column:
    """The ordinal of each row's partition, as an expression that Spark's JVM evaluates.

    A row in no range has that of the first: it is refused wherever it comes.  A hash dimension with
    another seed than Spark's is left out, so all its buckets share one number.
    """

    def typed(column_id: int) -> Column:
        column = schema.by_id[column_id]
        return F.col(_quoted(column.name)).cast(spark_type(column.type))

    ordinal = F.lit(0)
    buckets = 1
    for dimension in partitions.hashes:
        buckets *= dimension.buckets
        ordinal = ordinal * F.lit(dimension.buckets)
        if dimension.seed == DEFAULT_SEED:
            hashed = F.xxhash64(*(typed(i) for i in dimension.column_ids))
            ordinal = ordinal + F.pmod(hashed, F.lit(dimension.buckets)).cast("int")
    if partitions.range_ids:
        keys = [typed(i) for i in partitions.range_ids]
        types = [spark_type(schema.by_id[i].type).simpleString() for i in partitions.range_ids]
        # One flat CASE: nested, some hundreds of ranges would exhaust the stack of Spark's optimizer.
        place: Any = F
        for number, held in enumerate(partitions.ranges):
            if not held.dropped:
                lower, upper = partitions.bounds(partitions.partitions[number * buckets])
                place = place.when(_between(keys, types, lower, upper), F.lit(number))
        ordinal = ordinal + place.otherwise(F.lit(0)) * F.lit(buckets)
    return ordinal


def _between(
    keys: list[Column], types: list[str], lower: tuple[Any, ...] | None, upper: tuple[Any, ...] | None
) -> Column:
    inside = F.lit(True)
    if lower is not None:
        inside = inside & ~_below(keys, types, lower)
    if upper is not None:
        inside = inside & _below(keys, types, upper)
    return inside


def _below(keys: list[Column], types: list[str], bound: tuple[Any, ...]) -> Column:
    """Whether a row's key lies before a bound, which may be a prefix."""
    literals = [_literal(value, type_) for value, type_ in zip(bound, types, strict=False)]
    pairs = list(zip(keys, literals, strict=False))
    return reduce(
        lambda rest, pair: (pair[0] < pair[1]) | ((pair[0] == pair[1]) & rest), reversed(pairs), F.lit(False)
    )


def _literal(value: Any, type_: str) -> Column:
    if isinstance(value, bytes):
        return F.lit(value)
    # As text: a literal of a time would be shifted by the session's zone.
    return F.lit(str(value)).cast(type_)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
