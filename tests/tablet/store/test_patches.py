"""Changes in files as one patch of each column: made once, grown, kept for the past, not for few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core._ext.changes.patch import Patch
from kudu_core.cfile.pages.container import FileReader
from kudu_core.rowset.disk import patches
from kudu_core.tablet.compact.delta_compaction import compact_major
from kudu_core.tablet.maintain.delta_policy import PATCHED_FRACTION, SCANS
from tests.support.inside import schema_of, tablet_of

ROWS = 40_000
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.float64()), ("b", pa.float64()), ("flag", pa.bool_())])
OPTIONS = {"maintenance": "manual", "durability": "none", "scan_threads": 1}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[type]]:
    """Of each patch that is made, of what."""
    found: list[list[type]] = []

    def counted(parts: list[Any], *rest: Any) -> Patch:
        found.append([type(part) for part in parts])
        return Patch(parts, *rest)

    monkeypatch.setattr(patches, "Patch", counted)
    return found


@pytest.fixture
def table(tmp_path: Path) -> Iterator[kc.Table]:
    with kc.create_table(tmp_path / "t", SCHEMA, ["id"], options=OPTIONS) as table:
        keys = np.arange(ROWS)
        table.insert({"id": keys, "a": keys * 0.5, "b": keys * 0.25, "flag": keys % 2 == 0})
        table.flush()
        yield table


def update(table: kc.Table, column: str, step: int, value: Any) -> int:
    """Every so many rows, in a file of their own; when."""
    keys = np.arange(0, ROWS, step)
    ts = table.update({"id": keys, column: np.full(len(keys), value)}).timestamp
    table.flush()
    assert ts is not None
    return ts


def column(table: kc.Table, name: str, **options: Any) -> list[Any]:
    return table.scan([name], **options).to_table()[name].to_pylist()


def test_a_patch_is_made_once_and_grows(table: kc.Table, made: list[list[type]]) -> None:
    update(table, "a", 3, -1.0)
    update(table, "b", 2, -2.0)
    wanted = [-1.0 if k % 3 == 0 else k * 0.5 for k in range(ROWS)]
    assert column(table, "a") == column(table, "a") == wanted
    assert len(made) == 1 and Patch not in made[0]
    update(table, "a", 7, -3.0)
    # Who writes the file makes it larger.
    assert len(made) == 2 and made[1][0] is Patch
    wanted = [-3.0 if k % 7 == 0 else value for k, value in enumerate(wanted)]
    assert column(table, "a") == column(table, "a") == wanted
    assert len(made) == 2
    assert column(table, "b") == [-2.0 if k % 2 == 0 else k * 0.25 for k in range(ROWS)]
    update(table, "a", 5000, -4.0)
    assert len(made) == 4
    # Changes in memory come after it, and it stays.
    assert column(table, "a")[5000] == -4.0
    table.update({"id": [1], "a": [9.0]})
    assert column(table, "a")[:3] == [-4.0, 9.0, 1.0]
    assert len(made) == 4


def test_the_past_has_a_patch_of_its_own(table: kc.Table, made: list[list[type]]) -> None:
    first = update(table, "a", 3, -1.0)
    update(table, "a", 7, -3.0)
    then = [-1.0 if k % 3 == 0 else k * 0.5 for k in range(ROWS)]
    now = [-3.0 if k % 7 == 0 else value for k, value in enumerate(then)]
    for _ in range(3):
        assert column(table, "a", at=first) == then
        assert column(table, "a") == now
    assert len(made) == 2
    assert table.compact(full=True) is None
    for _ in range(3):
        assert column(table, "a", at=first) == then  # what the compaction replaced, taken back
        assert column(table, "a") == now
    assert len(made) == 3


def test_a_scan_of_few_rows_makes_none_and_takes_one(table: kc.Table, made: list[list[type]]) -> None:
    update(table, "a", 3, -1.0)
    few = pc.field("id") < 300
    assert column(table, "a", where=few)[:2] == [-1.0, 0.5]
    assert column(table, "a", limit=2) == [-1.0, 0.5]
    assert not made
    column(table, "a")
    assert column(table, "a", where=few)[:2] == [-1.0, 0.5]
    assert len(made) == 1


def test_bools_and_nulls(table: kc.Table, made: list[list[type]]) -> None:
    update(table, "flag", 3, True)
    keys = np.arange(0, ROWS, 5)
    table.update(pa.table({"id": keys, "flag": pa.nulls(len(keys), pa.bool_())}))
    table.flush()
    wanted = [None if k % 5 == 0 else k % 3 == 0 or k % 2 == 0 for k in range(ROWS)]
    assert column(table, "flag") == wanted
    assert len(made) == 1
    table.update({"id": [1], "flag": [True]})  # in memory: bits are changed the general way
    assert column(table, "flag") == [True if k == 1 else value for k, value in enumerate(wanted)]


def test_what_the_cache_would_not_keep_is_not_made(tmp_path: Path, made: list[list[type]]) -> None:
    options = OPTIONS | {"page_cache_bytes": 64 << 10}
    with kc.create_table(tmp_path / "small", SCHEMA, ["id"], options=options) as table:
        keys = np.arange(ROWS)
        table.insert({"id": keys, "a": keys * 0.5, "b": keys * 0.25, "flag": keys % 2 == 0})
        table.flush()
        update(table, "a", 2, -1.0)
        assert column(table, "a")[:2] == [-1.0, 0.5]
    assert not made


def test_a_patch_is_counted_as_memory_of_the_cache(table: kc.Table) -> None:
    update(table, "a", 2, -1.0)
    table.scan(["b"]).to_table()
    table.scan(["a"], pc.field("id") < 10).to_table()
    before = table.metrics()["page_cache_bytes"]
    table.scan(["a"]).to_table()
    assert table.metrics()["page_cache_bytes"] - before > 8 * ROWS // 2


# ---- what a write leaves for the next scan ----


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that are opened and pieces that are read, by path."""
    found: list[str] = []
    opened, read, read_some = FileReader.__init__, FileReader.read_at, FileReader.read_adjacent

    def open_counted(self: FileReader, fs: Any, path: str, *rest: Any, **options: Any) -> None:
        found.append(f"open {path}")
        opened(self, fs, path, *rest, **options)

    def read_counted(self: FileReader, offset: int, length: int) -> bytes:
        found.append(f"read {self.path}")
        return read(self, offset, length)

    def some_counted(self: FileReader, sizes: Any, offset: int) -> list[bytes]:
        found.append(f"read {self.path}")
        return read_some(self, sizes, offset)

    monkeypatch.setattr(FileReader, "__init__", open_counted)
    monkeypatch.setattr(FileReader, "read_adjacent", some_counted)
    monkeypatch.setattr(FileReader, "read_at", read_counted)
    monkeypatch.setattr(FileReader, "direct", property(lambda self: None))
    return found


def by_ingest(table: kc.Table, keys: np.ndarray) -> None:
    table.upsert({"id": keys, "a": keys * -1.0, "b": keys * -2.0, "flag": keys % 3 == 0})


def by_flush(table: kc.Table, keys: np.ndarray) -> None:
    table.update({"id": keys[:5000], "a": keys[:5000] * -1.0})
    table.flush()


def by_major(table: kc.Table, keys: np.ndarray) -> None:
    by_flush(table, keys)
    for rowset in tablet_of(table).view.rowsets:
        assert compact_major(tablet_of(table), rowset.id, [schema_of(table).by_name["a"].id])


@pytest.mark.parametrize("write", [by_ingest, by_flush, by_major])
@pytest.mark.parametrize("scanned", [True, False])
def test_the_first_scan_after_a_write_reads_nothing_that_was_cached(
    write: Callable[[kc.Table, np.ndarray], None], scanned: bool, tmp_path: Path, reads: list[str]
) -> None:
    options = OPTIONS | {"memory_limit_bytes": 16 << 20, "page_cache_bytes": 8 << 20}
    with kc.create_table(tmp_path / "warm", SCHEMA, ["id"], options=options) as table:
        keys = np.arange(200_000)
        table.insert({"id": keys, "a": keys * 0.5, "b": keys * 0.25, "flag": keys % 2 == 0})
        table.flush()
        table.update({"id": keys[::7], "a": keys[::7] * 3.0})
        table.flush()
        wanted = np.where(keys % 7 == 0, keys * 3.0, keys * 0.5)
        if scanned:
            assert (table.scan(["a"]).to_table()["a"].to_numpy() == wanted).all()
        write(table, keys[::2])
        wanted[keys[::2] if write is by_ingest else keys[:10_000:2]] = (
            keys[::2] if write is by_ingest else keys[:10_000:2]
        ) * -1.0
        reads.clear()
        assert (table.scan(["a"]).to_table()["a"].to_numpy() == wanted).all()
        assert bool(reads) == (not scanned), reads
        # What nobody asked for was not read either.
        reads.clear()
        assert len(table.scan(["b"]).to_table()) == len(keys)
        assert reads


@pytest.mark.parametrize("scanned", [True, False])
def test_pages_of_another_size_are_read_back_where_most_of_the_old_were_cached(
    scanned: bool, tmp_path: Path, reads: list[str]
) -> None:
    """Longer strings have fewer rows a page, so that no new page stands for an old one."""
    options = OPTIONS | {"memory_limit_bytes": 64 << 20}
    schema = pa.schema([("id", pa.int64()), ("s", pa.string()), ("t", pa.string())])
    with kc.create_table(tmp_path / "t", schema, ["id"], options=options) as table:
        keys = np.arange(20_000)
        short = [f"{k:06d}" for k in keys]
        long = [f"{k * 2_654_435_761 % 2**61:0100d}" for k in keys]
        table.insert({"id": keys, "s": short, "t": short})
        table.flush()
        table.update({"id": keys, "s": long})
        table.flush()
        assert table.scan(["s" if scanned else "t"]).to_table().num_rows == len(keys)
        [rowset] = tablet_of(table).view.rowsets
        wanted = schema_of(table).by_name["s"].id
        bits = rowset.base.open().columns[wanted].page_bits
        assert compact_major(tablet_of(table), rowset.id, [wanted])
        [rowset] = tablet_of(table).view.rowsets
        assert rowset.base.open().columns[wanted].page_bits < bits
        reads.clear()
        assert column(table, "s") == long
        assert bool(reads) == (not scanned), reads


# ---- which columns are worth writing anew ----


@pytest.mark.parametrize("scans", [0, SCANS - 1, SCANS])
def test_a_column_is_folded_once_it_was_scanned_often_enough(table: kc.Table, scans: int) -> None:
    keys = np.arange(0, ROWS)[: int(ROWS * PATCHED_FRACTION)]
    table.update({"id": keys, "a": keys * -1.0})
    table.flush()
    for _ in range(scans):
        table.scan(["a"]).to_table()
        table.scan(["b"]).to_table()
    table.maintain()
    [rowset] = tablet_of(table).view.rowsets
    assert bool(rowset.redo) == (scans < SCANS)
    table.update({"id": keys, "a": keys * -2.0})
    table.flush()
    table.maintain()  # the scans of before say nothing of these changes
    [rowset] = tablet_of(table).view.rowsets
    assert rowset.redo
