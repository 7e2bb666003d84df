"""Reading a table in parallel: scan tokens planned on the driver, shared out to tasks, at one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from kudu_core.engines.spark.cache import handle_for
from kudu_core.engines.spark.codes import coded, uncoded
from kudu_core.engines.spark.few import few_scanned
from kudu_core.engines.spark.handles import PathOrTable, StorageOptions, reading
from kudu_core.engines.spark.schema import arrow_schema, spark_schema, to_spark
from kudu_core.engines.spark.versions.placement import placed
from kudu_core.errors import InvalidArgument
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.table.read.plan import ScanRequest, check_limit
from kudu_core.table.read.shares import known_rows
from kudu_core.table.read.tokens import DEFAULT_TARGET_ROWS, ScanToken, scan_of, scan_tokens

LEAST_ROWS = 250_000
"""Of a share that is cut out of a tablet only because a core is free: it takes the time of a task's begin."""


class Counted(Protocol):
    """A share of some work whose rows are known about."""

    @property
    def rows(self) -> int: ...


S = TypeVar("S", bound=Counted)

CARRIED_TASKS = 256
"""Whose shares go with each task, some 200 bytes each; of more they are sent to each worker once."""


def scan(
    spark: SparkSession,
    path: PathOrTable,
    columns: Sequence[str] | None = None,
    where: Any = None,
    at: Any = None,
    *,
    limit: int | None = None,
    target_rows_per_task: int = DEFAULT_TARGET_ROWS,
    batch_rows: int = 65_536,
    storage_options: StorageOptions = None,
) -> DataFrame:
    """A DataFrame over a table, or over a part of it, at one snapshot.

    Columns, predicate and snapshot are fixed here, so partitions, rowsets, pages and columns that
    are not needed are never read, and the DataFrame stays the same however often it is used.  Spark's
    own ``select`` and ``where`` on it work too but prune nothing.

    >>> [row.name for row in ks.scan(spark, stock, ["name"], pc.field("price") > 3).collect()]
    ['ink']

    Parameters
    ----------
    path
        Where the table is, on a file system that every executor sees or in an object store; or an open
        ``Table``, whose newest state it is then.
    columns, where, at
        As ``Table.scan``: ``at`` is a timestamp, an aware datetime or a ``Snapshot``.  A snapshot that the
        writing process keeps open protects the DataFrame's history from being collected.
    limit
        Any so many of the rows; one task reads them and stops.
    target_rows_per_task
        Large tablets are cut and small ones put together so that a task reads about so many rows: a
        task costs some 50 ms by itself.  There are as many tasks as cores, unless they would have less than
        250,000 rows each.  Few rows, of a small table, are read here and now, and by no task.
    storage_options
        As of ``kudu_core.open_table``, for a URL.  They go to the tasks; without them each takes what its own
        environment says.

    Raises
    ------
    TableNotFound, InvalidArgument, SnapshotTooOld, SnapshotInFuture
        Before any task runs.
    """
    with reading(path, storage_options) as handle:
        schema = spark_schema(handle.engine.schema, columns)
        if not schema.fields:
            raise InvalidArgument("columns=[] gives no DataFrame; kudu_core.spark.count() counts rows")
        check_limit(limit)
        request, cores = ScanRequest(columns, where, batch_rows=batch_rows), parallelism(spark)
        tokens = tokens_for(handle, request, at, target_rows_per_task, cores if limit is None else 1)
        few = few_scanned(handle, tokens, arrow_schema(schema), target_rows_per_task, limit)
    if few is not None:
        return spark.createDataFrame(pa.Table.from_batches(few, arrow_schema(schema)), schema)
    if limit is not None:
        return frame_of(spark, alone(tokens, limit), schema, partial(read_tokens, limit=limit))
    return frame_of(spark, shared_out(tokens, target_rows_per_task, cores), schema, read_tokens)


def tokens_for(
    handle: Handle, request: ScanRequest, at: Any, target_rows: int, cores: int
) -> list[ScanToken]:
    """Shares of about ``target_rows``, or of fewer where cores would be left without any."""
    tokens = scan_tokens(handle, request, at, target_rows)
    rows = sum(token.rows for token in tokens)
    if len(tokens) >= cores or rows < 2 * LEAST_ROWS:
        return tokens
    finer = max(LEAST_ROWS, -(-rows // cores))
    if finer >= target_rows:
        return tokens
    return scan_tokens(handle, request, tokens[0].timestamp, finer)


def count(
    spark: SparkSession,
    path: PathOrTable,
    where: Any = None,
    at: Any = None,
    *,
    target_rows_per_task: int = DEFAULT_TARGET_ROWS,
    storage_options: StorageOptions = None,
) -> int:
    """How many rows a table has, or those that pass a predicate, at one snapshot.

    Without a predicate no task is run for tablets whose manifests say it: where no row was deleted,
    and none inserted later in a rowset of several times.  Else only the columns of the predicate are read.
    Parameters and errors as those of ``scan``.

    >>> ks.count(spark, stock, pc.field("price") > 2)
    2
    """
    with reading(path, storage_options) as handle:
        request = ScanRequest([], where)

        def planned() -> tuple[list[ScanToken], dict[int, int]]:
            engine = handle.opened()
            snapshot = snapshot_timestamp(engine, at)
            with engine.pins.pin(snapshot):
                tokens = scan_tokens(handle, request, snapshot, target_rows_per_task)
                if where is not None or engine.schema.ttl is not None:
                    return tokens, {}
                rows = {t.id: known_rows(t, snapshot) for t in engine.tablets if t.is_there(snapshot)}
                return tokens, {tablet_id: some for tablet_id, some in rows.items() if some is not None}

        tokens, known = handle.of_now(at, planned)
    left = [token for token in tokens if token.tablet_id not in known]
    if not left:
        return sum(known.values())
    tasks = shared_out(left, target_rows_per_task, parallelism(spark))
    counted = frame_of(spark, tasks, StructType([StructField("rows", LongType(), False)]), count_tokens)
    return sum(known.values()) + sum(int(row.rows) for row in collected(counted))


def alone(tokens: Sequence[S], limit: int) -> list[tuple[S, ...]]:
    """All of them in one task, which stops as soon as it has enough rows."""
    return [tuple(tokens)] if tokens and limit else []


def frame_of(
    spark: SparkSession,
    tasks: Sequence[tuple[S, ...]],
    schema: StructType,
    reader: Callable[[Sequence[S], pa.Schema], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """What ``reader`` makes of each task's shares, in a worker process."""
    if not tasks:
        return spark.createDataFrame([], schema)
    wanted, shares = arrow_schema(schema), carried(spark, tasks)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield from reader(shares()[place], wanted)

    # One number per task: it picks that task's tokens.
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, schema)


def carried(spark: SparkSession, tasks: Sequence[tuple[S, ...]]) -> Callable[[], Sequence[tuple[S, ...]]]:
    """What gives a worker every task's shares.

    What a function refers to goes with each task, so that the bytes sent grow by the square of the tasks:
    of many, Spark is to send them to each worker once.
    """
    if len(tasks) > CARRIED_TASKS:
        try:
            sent = spark.sparkContext.broadcast(tasks)
        except PySparkException:  # Spark Connect has no context here
            pass
        else:
            return lambda: sent.value
    return lambda: tasks


def one_each(spark: SparkSession, tasks: Sequence[bytes]) -> DataFrame:
    """A frame with as many partitions as there are tasks, and one row in each: what the task is to do.

    ``repartition`` would give some tasks several of them, and others none.
    """
    columns = {"place": pa.array(range(len(tasks)), pa.int32()), "task": pa.array(tasks, pa.binary())}
    return placed(spark.createDataFrame(pa.table(columns)), len(tasks), F.col("place")).select("task")


def collected(frame: DataFrame) -> list[Row]:
    """The rows of a DataFrame; an error of ours in a task is raised as itself."""
    with uncoded():
        return frame.collect()


def shared_out(tokens: Sequence[S], target_rows: int, at_least: int) -> list[tuple[S, ...]]:
    """Tokens by task: about ``target_rows`` each, neighbours together, ``at_least`` so many tasks.

    A token is never cut, so there may be fewer tasks.
    """
    total = sum(token.rows for token in tokens)
    count = min(len(tokens), max(at_least, -(-total // target_rows)))
    tasks: list[list[S]] = [[] for _ in range(count)]
    before = 0
    for token in tokens:
        # By the middle of the token's rows among all rows; one more each, so that empty ones spread too.
        middle = before + (token.rows + 1) / 2
        tasks[int(middle * count / (total + len(tokens)))].append(token)
        before += token.rows + 1
    return [tuple(task) for task in tasks if task]


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at a time."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect has no context here
        return 8


def read_tokens(
    tokens: Sequence[ScanToken], wanted: pa.Schema, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of a task's shares, at most ``limit``, in a worker process, as Spark wants them."""
    left = limit
    with coded():
        for token in tokens:
            for batch in scan_of(handle_for(token), token):
                if left is None:
                    yield to_spark(batch, wanted)
                    continue
                yield to_spark(batch.slice(0, left), wanted)
                left -= min(left, batch.num_rows)
                if left == 0:
                    return


def count_tokens(tokens: Sequence[ScanToken], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """How many rows a task's shares have, one batch of one row."""
    with coded():
        rows = sum(scan_of(handle_for(token), token).count() for token in tokens)
        yield pa.RecordBatch.from_arrays([pa.array([rows], pa.int64())], schema=wanted)
