"""What holds rows elsewhere: datasets, scanners, lazy frames, open queries, structured arrays, objects."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kudu_core.common.rows.arrow_in import batches
from kudu_core.common.schema.declare import Column, declare
from kudu_core.errors import InvalidArgument, SchemaMismatch

SCHEMA = declare([Column("k", "int64"), Column("s", "string")], "k")
TABLE = pa.table({"k": [1, 2, 3], "s": ["a", None, "c"]})
EXPECTED = TABLE.to_pylist()


class Pair(NamedTuple):
    k: int
    s: str | None


@dataclass
class Plain:
    k: int
    s: str | None
    kind: ClassVar[str] = "no field"


@dataclass(slots=True, frozen=True)
class Slotted:
    s: str | None
    k: int
    _unused: Any = field(default=None, init=False, repr=False)


class Delta:
    """As much of ``deltalake.DeltaTable`` as is looked at."""

    def to_pyarrow_dataset(self) -> ds.Dataset:
        return ds.dataset(TABLE)


@dataclass
class DeltaAsDataclass(Delta):
    """As the real one, which is a dataclass, too."""

    version: int = 3


class OldLazy:
    """A lazy frame of a Polars that collects all at once."""

    def collect_schema(self) -> Any:
        raise AssertionError

    def collect(self) -> Any:
        return pl.from_arrow(TABLE)


class OldConnection:
    """A connection of a DuckDB that calls it otherwise."""

    def fetch_record_batch(self) -> pa.RecordBatchReader:
        return TABLE.to_reader()


def connection() -> Any:
    return duckdb.connect().execute("SELECT * FROM (VALUES (1, 'a'), (2, NULL), (3, 'c')) AS t(k, s)")


RECORDS = np.array([(1, "a"), (2, "b"), (3, "c")], dtype=[("k", "<i8"), ("s", "U3")])
SOURCES: dict[str, Callable[[], Any]] = {
    "dataset": lambda: ds.dataset(TABLE),
    "scanner": lambda: ds.dataset(TABLE).scanner(columns=["k", "s"]),
    "Delta": Delta,
    "Delta, a dataclass": DeltaAsDataclass,
    "lazy": lambda: pl.from_arrow(TABLE).lazy(),  # type: ignore[union-attr]
    "lazy, of old": OldLazy,
    "connection": connection,
    "connection, of old": OldConnection,
    "named tuples": lambda: [Pair(**row) for row in EXPECTED],
    "dataclasses": lambda: [Plain(**row) for row in EXPECTED],
    "a generator of dataclasses": lambda: (Plain(**row) for row in EXPECTED),
    "all sorts of rows": lambda: [Pair(1, "a"), {"s": None, "k": 2}, Plain(3, "c")],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result:UserWarning")
def test_every_source_gives_its_rows(source: str) -> None:
    rows = [row for batch in batches(SOURCES[source](), SCHEMA) for row in batch.to_pylist()]
    assert [{"k": row["k"], "s": row["s"]} for row in rows] == EXPECTED
    assert all(row.keys() == {"k", "s"} for row in rows)


def test_a_structured_array_is_its_fields() -> None:
    for records in (RECORDS, RECORDS.view(np.recarray), np.repeat(RECORDS, 2)[::2]):
        [batch] = batches(records, SCHEMA)
        assert batch.to_pydict() == {"k": [1, 2, 3], "s": ["a", "b", "c"]}
    with pytest.raises(InvalidArgument, match="2 dimensions"):
        list(batches(RECORDS.reshape(1, 3), SCHEMA))
    hollow = np.zeros(2, dtype=[("k", "<i8"), ("s", "<f4", (2,))])
    with pytest.raises(InvalidArgument, match="'s' has 2 dimensions"):
        list(batches(hollow, SCHEMA))


def test_fields_are_those_of_the_instance() -> None:
    [batch] = batches([Slotted("a", 1)])
    assert batch.to_pydict() == {"s": ["a"], "k": [1], "_unused": [None]}


def test_a_dataset_is_read_batch_by_batch(tmp_path: Path) -> None:
    """Whoever stops reading has not read all of the files."""
    for number in range(60):
        pq.write_table(pa.table({"k": [number]}), tmp_path / f"{number:02}.parquet")
    read = batches(ds.dataset(tmp_path), SCHEMA)
    assert [next(read).to_pydict() for _ in range(2)] == [{"k": [0]}, {"k": [1]}]
    (tmp_path / "59.parquet").unlink()  # far behind what is read ahead
    with pytest.raises(FileNotFoundError):
        list(read)


def test_a_lazy_frame_is_collected_in_batches_in_order() -> None:
    frame = pl.LazyFrame({"k": range(1000)})
    taken: list[Any] = []

    class Watched:
        def collect_schema(self) -> Any:
            return frame.collect_schema()

        def collect(self) -> Any:
            raise AssertionError

        def collect_batches(self, *, maintain_order: bool = False) -> Iterator[Any]:
            assert maintain_order
            for some in frame.collect_batches(chunk_size=100, maintain_order=True):
                taken.append(some)
                yield some

    found = batches(Watched(), SCHEMA)
    first = next(found)
    assert len(taken) == 1 and first["k"][0].as_py() == 0
    rows = first["k"].to_pylist() + [k for batch in found for k in batch["k"].to_pylist()]
    assert rows == list(range(1000)) and len(taken) == 10


def test_no_rows_still_show_their_columns() -> None:
    class NoBatches:
        def collect_schema(self) -> Any:
            raise AssertionError

        def collect(self) -> Any:
            raise AssertionError

        def limit(self, rows: int) -> pl.LazyFrame:
            return pl.LazyFrame({"k": [1]}).limit(rows)

        def collect_batches(self, *, maintain_order: bool) -> Iterator[Any]:
            return iter(())

    for data in (ds.dataset(TABLE.slice(0, 0)), pl.LazyFrame({"k": []}), NoBatches(), RECORDS[:0]):
        assert [(b.num_rows, b.schema.names[0]) for b in batches(data)] == [(0, "k")]


@pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result:UserWarning")
def test_a_connection_without_a_result_is_told_so() -> None:
    for made in (duckdb.connect(), connection()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if made.description:
                made.to_arrow_reader().read_all()
        with pytest.raises(InvalidArgument, match=r"no open result; give connection\.sql\(query\)"):
            list(batches(made))


@pytest.mark.parametrize("path", ["rows.parquet", Path("a/rows.parquet")], ids=str)
def test_a_path_is_told_how_its_rows_are_given(path: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"pyarrow\.dataset\.dataset\('.*rows\.parquet'\)"):
        list(batches(path))


@pytest.mark.parametrize("row", [Pair(1, "a"), Plain(1, "a")], ids=["named tuple", "dataclass"])
def test_one_row_is_told_to_be_listed(row: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"is one row; rows are given as a list of them: \[row\]"):
        list(batches(row, SCHEMA))


@pytest.mark.parametrize("wrong", [Plain, pl.LazyFrame, ds.Dataset, [Plain]], ids=repr)
def test_classes_are_no_rows(wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        list(batches(wrong, SCHEMA))


def test_a_source_of_no_batches_is_named() -> None:
    class Odd:
        def to_reader(self) -> list[int]:
            return [1]

    with pytest.raises(InvalidArgument, match="Odd reads as list"):
        list(batches(Odd()))


def test_an_error_of_the_source_passes_through() -> None:
    class Broken:
        def to_reader(self) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(batches(Broken()))


@pytest.mark.parametrize("package", ["deltalake", "lance"])
def test_the_real_ones(package: str, tmp_path: Path) -> None:
    made = pytest.importorskip(package)
    if package == "deltalake":
        made.write_deltalake(str(tmp_path / "t"), TABLE)
        data = made.DeltaTable(str(tmp_path / "t"))
    else:
        data = made.write_dataset(TABLE, str(tmp_path / "t"))
    for source in (data, data.scanner() if package == "lance" else data.to_pyarrow_dataset()):
        assert [row for batch in batches(source, SCHEMA) for row in batch.to_pylist()] == EXPECTED


def test_no_package_is_imported_to_look_at_rows() -> None:
    code = """
import sys
import kudu_core as kc
from kudu_core.common.rows.arrow_in import batches
from kudu_core.common.schema.declare import Column, declare
schema = declare([Column("k", "int64"), Column("t", "timestamp[us]")], "k")
assert [b.num_rows for b in batches([{"k": 1, "t": "2026-01-05"}, {"k": 2}], schema)] == [1, 1]
for wrong in ("a path", 5, object()):
    try:
        list(batches(wrong, schema))
    except kc.InvalidArgument:
        pass
    else:
        raise AssertionError(wrong)
found = {"polars", "duckdb", "deltalake", "lance", "pyarrow.dataset"} & sys.modules.keys()
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_row_without_its_key_is_named() -> None:
    with pytest.raises(SchemaMismatch, match=r"row 2: column 'k' is missing; the row has 's'"):
        list(batches([{"k": 1}, {"k": 2, "s": "b"}, {"s": "c"}], SCHEMA))
