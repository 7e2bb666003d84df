"""``bench``: what this machine does with tables, Parquet files and DuckDB, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kudu_core.cli.shared.meter import Meter
from kudu_core.cli.shared.showing import show_records
from kudu_core.cli.shared.tables import DEBUG, answers
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

WORK = (
    "load", "scan one column", "read 100 rows by key", "change 1% of the rows", "scan again",
    "100 single writes",
)  # fmt: skip
Measures = Iterator[tuple[str, float, int]]


@click.command()
@click.argument("path")
@click.option("--rows", type=click.IntRange(1000, 100_000_000), default=1_000_000, show_default=True)
@DEBUG
@answers
def bench_command(path: str, rows: int, as_json: bool) -> None:
    """Measure this machine in a new folder at PATH, which goes at the end: about a minute.

    The same work is done by a table, by a Parquet file that is rewritten for each change, and by a table of
    DuckDB where that is installed.  Times are of one run, with whatever else the machine does.
    """
    folder = Path(path)
    if folder.exists():
        raise InvalidArgument(f"{path} is there; bench makes a new folder, and removes it")
    folder.mkdir(parents=True)
    table = _rows(rows)
    engines: dict[str, Callable[[Path, pa.Table], Measures]] = {"kudu_core": _of_kudu, "parquet": _of_parquet}
    if find_spec("duckdb") is not None:
        engines["duckdb"] = _of_duckdb
    found: dict[str, dict[str, Any]] = {work: {"work": work} for work in WORK}
    try:
        for name, engine in engines.items():
            with Meter(name, unit=""):
                for work, seconds, count in engine(folder, table):
                    found[work]["rows"] = max(count, found[work].get("rows", 0))
                    found[work][f"{name}_s"] = round(seconds, 4)
    finally:
        _clear(folder)
    names = ("work", "rows", *(f"{name}_s" for name in engines))
    show_records([{name: record.get(name) for name in names} for record in found.values()], as_json, names)


def _clear(folder: Path) -> None:
    """Remove what was made here, and nothing else."""
    from kudu_core.errors import TableNotFound
    from kudu_core.table.lifecycle.manage.drop_table import drop_table

    with suppress(TableNotFound):
        drop_table(folder / "table")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def _rows(count: int) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(1)
    return pa.table({
        "id": random.permutation(count),
        "price": random.random(count),
        "name": pa.array([f"name {i}" for i in range(1000)]).take(pa.array(random.integers(0, 1000, count))),
    })  # fmt: skip


def _seconds(work: Callable[[], object]) -> float:
    from kudu_core.common.run.clock import timed

    return timed(work)[0]


def _changed(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    some = table.slice(0, max(1, table.num_rows // 100)).select(["id"])
    return some.append_column("price", pa.array([0.5] * some.num_rows))


def _of_kudu(folder: Path, table: pa.Table) -> Measures:
    from kudu_core.table.entry import create_table

    with create_table(folder / "table", table.schema, "id") as made:
        yield "load", _seconds(lambda: made.insert(table)), table.num_rows
        yield "scan one column", _seconds(lambda: made.scan(["price"]).to_table()), table.num_rows
        keys = table["id"].slice(0, 100).to_pylist()
        yield "read 100 rows by key", _seconds(lambda: [made.get(key) for key in keys]), 100
        changed = _changed(table)
        yield "change 1% of the rows", _seconds(lambda: made.update(changed)), changed.num_rows
        yield "scan again", _seconds(lambda: made.scan(["price"]).to_table()), table.num_rows
        singles = [{"id": table.num_rows + i, "price": 1.0, "name": "new"} for i in range(100)]
        yield "100 single writes", _seconds(lambda: [made.insert([row]) for row in singles]), 100


def _of_parquet(folder: Path, table: pa.Table) -> Measures:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = folder / "rows.parquet"
    yield "load", _seconds(lambda: pq.write_table(table, file)), table.num_rows
    yield "scan one column", _seconds(lambda: pq.read_table(file, columns=["price"])), table.num_rows
    keys = table["id"].slice(0, 100)
    among = pc.field("id").isin(keys)
    yield "read 100 rows by key", _seconds(lambda: pq.read_table(file, filters=among)), 100
    changed = _changed(table)

    def rewrite() -> None:
        old = pq.read_table(file)
        mask = pc.is_in(old["id"], changed["id"])
        prices = pc.if_else(mask, 0.5, old["price"])
        pq.write_table(old.set_column(1, "price", prices), file)

    yield "change 1% of the rows", _seconds(rewrite), changed.num_rows
    yield "scan again", _seconds(lambda: pq.read_table(file, columns=["price"])), table.num_rows


def _of_duckdb(folder: Path, table: pa.Table) -> Measures:
    import duckdb

    changed = _changed(table)
    with duckdb.connect(str(folder / "rows.duckdb")) as connection:
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, price DOUBLE, name VARCHAR)")
        connection.register("given", table)
        connection.register("changed", changed)
        load = "INSERT INTO t SELECT * FROM given"
        yield "load", _seconds(lambda: connection.execute(load)), table.num_rows
        scan = "SELECT price FROM t"
        yield "scan one column", _seconds(lambda: connection.sql(scan).to_arrow_table()), table.num_rows
        keys, one = table["id"].slice(0, 100).to_pylist(), "SELECT * FROM t WHERE id = ?"
        points = _seconds(lambda: [connection.execute(one, [key]).fetchall() for key in keys])
        yield "read 100 rows by key", points, 100
        update = "UPDATE t SET price = c.price FROM changed c WHERE t.id = c.id"
        yield "change 1% of the rows", _seconds(lambda: connection.execute(update)), changed.num_rows
        yield "scan again", _seconds(lambda: connection.sql(scan).to_arrow_table()), table.num_rows
        insert = "INSERT INTO t VALUES (?, ?, ?)"
        singles = [[table.num_rows + i, 1.0, "new"] for i in range(100)]
        writes = _seconds(lambda: [connection.execute(insert, row) for row in singles])
        yield "100 single writes", writes, 100
