"""A day of a shop: files of raw lines into two tables, and an aggregate that follows them, exactly once.

Every two hours a file arrives with what happened to orders since the one before.  Its lines are validated;
bad ones are kept apart with the reason.  The good ones are upserted into ``orders``, and what they tell of
the customer into ``customers``.  A streaming job follows the changes of ``orders`` and keeps in
``customers`` how many orders each has and what they come to.  At the end both tables are read as they were
at noon, and as they are.

It may be killed at any point and run again, on the same folder: each write carries a token (the name of the
job, the number of the file) and each batch of the stream its own, so what was applied is not applied again;
where the stream stands is in its checkpoint; everything else is a file that appears whole.

    python examples/pipeline.py [--folder DIRECTORY] [--rows 20000] [--hours 8 10 12 14 16] [--seed 1]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import kudu_core as kc
from kudu_core import spark as ks

DAY = datetime(2026, 1, 5, tzinfo=UTC)
HOURS = (8, 10, 12, 14, 16)
NOON = f"{DAY:%Y%m%d}12"
STATES = ("open", "paid", "sent", "cancelled")
FIELDS = ("customer", "number", "name", "city", "amount", "state", "changed_at")

ORDERS = pa.schema(
    [
        ("customer", pa.string()),
        ("number", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        ("state", pa.string()),
        ("changed_at", pa.timestamp("us", "UTC")),
    ]
)
CUSTOMERS = pa.schema(
    [
        ("customer", pa.string()),
        ("name", pa.string()),
        ("city", pa.string()),
        # These two are the stream's: an upsert of the others leaves them as they are.
        ("orders", pa.int64()),
        ("spent", pa.decimal128(14, 2)),
    ]
)
# A stream reads history: it must reach back further than the stream is ever down.
OPTIONS = kc.Options(history_retention_s=7 * 86_400)


@dataclass(frozen=True)
class Places:
    """Where everything is; all of it survives the process."""

    folder: Path

    @property
    def orders(self) -> str:
        return str(self.folder / "orders")

    @property
    def customers(self) -> str:
        return str(self.folder / "customers")

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    @property
    def noon(self) -> Path:
        return self.folder / "noon.txt"

    def deliveries(self) -> list[str]:
        """The names of the raw files, which are their times."""
        return sorted(path.stem for path in (self.folder / "raw").glob("[!.]*.csv"))

    def raw(self, delivery: str) -> Path:
        return self.folder / "raw" / f"{delivery}.csv"

    def rejected(self, delivery: str) -> Path:
        return self.folder / "rejected" / delivery


def appear(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text)
    unfinished.replace(path)


# ---- the raw files ----


def raw_lines(delivery: str, rows: int, seed: int) -> Iterator[str]:
    """What one file says: orders new and changed, in no order, and some lines that are no orders."""
    chance = random.Random(f"{seed} {delivery}")
    start = datetime.strptime(delivery, "%Y%m%d%H").replace(tzinfo=UTC) - timedelta(hours=2)
    for line in chance.sample(range(rows), rows):
        customer = chance.randrange(max(2, rows // 10))
        fields = {
            "customer": f"c{customer:05}",
            "number": str(chance.randrange(8)),
            "name": f'"Customer {customer}, Esq."',
            "city": chance.choice(("Aachen", "Bergen", "Cádiz")),
            "amount": f"{chance.randrange(1, 50_000) / 100:.2f}",
            "state": chance.choice(STATES),
            "changed_at": (start + timedelta(milliseconds=line)).isoformat(timespec="milliseconds"),
        }
        if chance.random() < 0.04:
            field, value = chance.choice(
                [
                    ("customer", ""),
                    ("number", "twelve"),
                    ("amount", "-3.00"),
                    ("amount", "1.005"),
                    ("state", "lost"),
                    ("changed_at", "yesterday"),
                    ("changed_at", None),
                ]
            )
            fields[field] = value
        yield ",".join(value for value in fields.values() if value is not None)


def make_raw(places: Places, hours: Sequence[int], rows: int, seed: int) -> None:
    """The day's files, where they are not there yet."""
    for hour in hours:
        delivery = f"{DAY:%Y%m%d}{hour:02}"
        if not places.raw(delivery).exists():
            appear(places.raw(delivery), "\n".join(raw_lines(delivery, rows, seed)) + "\n")


# ---- from lines to rows ----


def validated(spark: SparkSession, raw: Path) -> DataFrame:
    """Every line of a file as a row with its types, beside it the ``reason`` why it is none, or NULL."""
    schema = ", ".join(f"{name} STRING" for name in (*FIELDS, "broken"))
    parsed = F.from_csv("line", schema, {"columnNameOfCorruptRecord": "broken"})
    text = spark.read.text(str(raw)).withColumnRenamed("value", "line").withColumn("raw", parsed)
    number, changed_at = (
        F.expr("try_cast(raw.number AS BIGINT)"),
        F.expr("try_cast(raw.changed_at AS TIMESTAMP)"),
    )
    # A cast would round 1.005; a price with more than two digits is a mistake.
    amount = F.expr("try_cast(regexp_extract(raw.amount, '^[0-9]+(\\\\.[0-9]{1,2})?$', 0) AS DECIMAL(12,2))")
    rules = {
        f"not {len(FIELDS)} fields": F.col("raw").isNull() | F.col("raw.broken").isNotNull(),
        "no customer": F.coalesce(F.trim("raw.customer"), F.lit("")) == "",
        "number is no whole number": number.isNull(),
        "amount is no sum of money": amount.isNull(),
        "unknown state": F.col("raw.state").isNull() | ~F.col("raw.state").isin(*STATES),
        "changed_at is no time": changed_at.isNull(),
    }
    reason = F.coalesce(*(F.when(broken, F.lit(text)) for text, broken in rules.items()))
    return text.select(
        "line",
        reason.alias("reason"),
        F.trim("raw.customer").alias("customer"),
        number.alias("number"),
        "raw.name",
        "raw.city",
        amount.alias("amount"),
        "raw.state",
        changed_at.alias("changed_at"),
    )


def newest(rows: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """One row per key: the last thing that the file says of it."""
    last = F.max_by(F.struct(*columns), "changed_at")
    return rows.groupBy(*key).agg(last.alias("last")).select(*key, "last.*")


def load(spark: SparkSession, places: Places, delivery: str) -> None:
    """One file into both tables.  The token is the file's number: what was applied is not read again."""
    rows = validated(spark, places.raw(delivery)).cache()
    rejected = places.rejected(delivery)
    if not (rejected / "_SUCCESS").exists():
        bad = rows.where("reason IS NOT NULL").select("line", "reason")
        bad.coalesce(1).write.mode("overwrite").json(str(rejected))
    good = rows.where("reason IS NULL")
    token = ("deliveries", int(delivery))
    changed = newest(good, ["customer", "number"], ["amount", "state", "changed_at"])
    ks.write(changed, places.orders, "upsert", txn=token)
    ks.write(newest(good, ["customer"], ["name", "city"]), places.customers, "upsert", txn=token)
    rows.unpersist()


# ---- the aggregate ----


def counted(row: str) -> Column:
    """1 for an order that counts, 0 for one that is cancelled or not there."""
    return F.when(F.col(f"{row}state") != "cancelled", 1).otherwise(0)


def worth(row: str) -> Column:
    return F.when(F.col(f"{row}state") != "cancelled", F.col(f"{row}amount")).otherwise(0)


def follow(spark: SparkSession, places: Places) -> None:
    """Bring the totals of ``customers`` up to the orders as they are now.

    Each change says what the order was before and is after, so its difference is all that is added.
    """
    changes = (
        spark.readStream.format("kudu_core")
        .option("readChanges", "true")
        .option("images", "both")
        .option("columns", "customer,amount,state")
        .load(places.orders)
    )
    totals = changes.groupBy("customer").agg(
        F.sum(counted("") - counted("_before.")).alias("orders"),
        F.sum(worth("") - worth("_before.")).cast("decimal(14,2)").alias("spent"),
    )
    query = (
        totals.writeStream.outputMode("update")
        .foreachBatch(ks.foreach_batch(places.customers, "totals"))
        .option("checkpointLocation", places.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


# ---- the day ----


def noon(places: Places) -> datetime:
    """When the morning was over: noted once, so that a second run asks for the same moment."""
    if not places.noon.exists():
        appear(places.noon, datetime.now(UTC).isoformat())
    return datetime.fromisoformat(places.noon.read_text())


def by_city(spark: SparkSession, places: Places, at: datetime | None = None) -> dict[str, tuple[int, str]]:
    """City -> (orders, what they come to), of all customers at a moment."""
    customers = ks.scan(spark, places.customers, ["city", "orders", "spent"], at=at)
    found = customers.groupBy("city").agg(F.sum("orders").alias("orders"), F.sum("spent").alias("spent"))
    return {row.city: (row.orders, f"{row.spent:,.2f}") for row in found.orderBy("city").collect()}


def check(spark: SparkSession, places: Places, at: datetime | None = None) -> None:
    """The totals that the stream has kept are those that the orders come to."""
    orders = ks.scan(spark, places.orders, at=at)
    wanted = orders.groupBy("customer").agg(F.sum(counted("")), F.sum(worth("")).cast("decimal(14,2)"))
    kept = ks.scan(spark, places.customers, ["customer", "orders", "spent"], at=at)
    different = wanted.exceptAll(kept).union(kept.exceptAll(wanted)).limit(3).collect()
    if different:
        raise SystemExit(f"orders and totals differ at {at or 'the end'}: {different}")


def run(spark: SparkSession, places: Places, done: Callable[[str], None]) -> datetime:
    """The whole day, or what is left of it; ``done`` is told each step.  Returns the noon."""
    partitions = kc.HashPartition("customer", 2)
    for path, schema, key in (
        (places.orders, ORDERS, ["customer", "number"]),
        (places.customers, CUSTOMERS, ["customer"]),
    ):
        kc.create_table(path, schema, key, partition_by=partitions, options=OPTIONS, exist_ok=True).close()
    done("both tables are there")
    deliveries = places.deliveries()
    for delivery in deliveries:
        if delivery <= NOON:
            load(spark, places, delivery)
            done(f"{delivery} is loaded")
    follow(spark, places)
    done("the morning is counted")
    moment = noon(places)
    for delivery in deliveries:
        if delivery > NOON:
            load(spark, places, delivery)
            done(f"{delivery} is loaded")
    follow(spark, places)
    done("the afternoon is counted")
    return moment


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # all of it is on this machine,
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # and in this environment
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("pipeline")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="keep everything here, and go on with what is there")
    parser.add_argument("--rows", type=int, default=20_000, help="lines of each file")
    parser.add_argument("--hours", type=int, nargs="+", default=HOURS, help="when a file comes")
    parser.add_argument("--seed", type=int, default=1, help="of the made-up lines")
    arguments = parser.parse_args()

    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="pipeline-"))
    places = Places(folder.absolute())
    begun = time.perf_counter()

    def done(what: str) -> None:
        print(f"{time.perf_counter() - begun:7.2f} s  {what}", flush=True)

    try:
        make_raw(places, arguments.hours, arguments.rows, arguments.seed)
        done("the raw files are there")
        with session(folder) as spark:
            moment = run(spark, places, done)
            for at in (moment, None):
                check(spark, places, at)
            done("orders and totals agree, at noon and now")
            rejected = spark.read.json(str(places.folder / "rejected" / "*"))
            for row in rejected.groupBy("reason").count().orderBy("reason").collect():
                print(f"  {row['count']:7,} lines rejected: {row.reason}")
            then, now = by_city(spark, places, moment), by_city(spark, places)
        for city, (orders, spent) in now.items():
            before = then.get(city, (0, "0.00"))
            print(f"  {city:8} {before[0]:7,} orders {before[1]:>16} at noon {orders:7,} {spent:>16} now")
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    if arguments.folder:
        print(f"The tables are in {places.orders} and {places.customers}.")


if __name__ == "__main__":
    main()
