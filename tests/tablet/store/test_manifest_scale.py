"""What a tablet is made of may be large: many columns, many rowsets, many files.  What a reader would not
take is refused before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile import RowsFile
from kudu_core.cfile.columns.statistics import StatisticsBlock, StatisticsRef, read_statistics
from kudu_core.cfile.pages import container
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.rowset.disk import base_file as rowset_base
from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.tablet.ingest import install
from kudu_core.tablet.store import manifest_format, records
from kudu_core.tablet.store.edits import Edit
from kudu_core.tablet.store.manifest import read_manifest
from kudu_core.tablet.store.tablet import Tablet
from tests.support.clock import ManualClock
from tests.support.faults import TINY, drop, segments_of
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import flush_lane_of, log_of, metas_of, table_file_of, tablet_of, tablets_of

WIDE = 150
OPTIONS: dict[str, Any] = {"maintenance": "manual", "file_grace_s": 0}


def wide_rows(first: int, count: int = 10) -> dict[str, Any]:
    keys = np.arange(first, first + count)
    return {"k": keys, **{f"c{i}": keys * 1000 + i for i in range(WIDE)}}


@pytest.fixture
def wide(tmp_path: Path) -> Iterator[kc.Table]:
    """Three rowsets of 151 columns, each with keys of its own."""
    columns = [kc.Column("k", "int64"), *(kc.Column(f"c{i}", "int64") for i in range(WIDE))]
    with kc.create_table(tmp_path / "t", columns, "k", options=OPTIONS) as table:
        for first in (0, 100, 200):
            table.insert(wide_rows(first))
            table.flush()
        yield table


def metas(table: kc.Table) -> list[RowSetMeta]:
    return sorted(metas_of(table), key=lambda meta: meta.min_key)


def test_a_wide_rowset_takes_little_of_its_manifest(wide: kc.Table) -> None:
    for meta in metas(wide):
        assert isinstance(meta.statistics, StatisticsRef)
        [line] = manifest_format.lines_of([meta.to_json()])
        assert len(line) < 500
        assert len(meta.column_ids) == WIDE + 1
        assert len(line) < meta.most_bytes


def test_statistics_in_a_file_are_those_of_its_footer(wide: kc.Table) -> None:
    fs, directory = PosixFileSystem(), tablet_of(wide).directory
    for meta in metas(wide):
        assert isinstance(meta.statistics, StatisticsRef)
        path = f"{directory}/{meta.base.name}"
        block = read_statistics(fs, path, meta.statistics)
        with RowsFile(fs, path) as file:
            assert block == file.statistics() and file.meta.statistics == meta.statistics
            for column_id in file.column_ids:
                assert block.zone(column_id) == file.zone(column_id)
        assert block.zone(10**6) is None


def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Files that were opened whole, and those of which the statistics alone were read."""
    counts = {"opened": 0, "statistics": 0}
    opened, read = container.FileReader.__init__, rowset_base.read_statistics

    def opening(self: Any, *given: Any, **named: Any) -> None:
        counts["opened"] += 1
        opened(self, *given, **named)

    def reading(*given: Any) -> StatisticsBlock:
        counts["statistics"] += 1
        return read(*given)

    monkeypatch.setattr(container.FileReader, "__init__", opening)
    monkeypatch.setattr(rowset_base, "read_statistics", reading)
    return counts


def test_wide_rowsets_are_pruned_by_statistics_in_their_files(
    wide: kc.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a rowset that a predicate rules out no footer is read, and its statistics once."""
    wide.close()
    with kc.open_table(wide.path) as reader:
        counts = counted(monkeypatch)
        assert reader.scan(["k"], where=[("c7", ">=", 200_000)]).to_table()["k"].to_pylist() == list(
            range(200, 210)
        )
        assert counts == {"opened": 1, "statistics": 3}
        assert reader.scan(["k"], where=[("c7", "<", -1)]).count() == 0
        assert counts == {"opened": 1, "statistics": 3}
        assert reader.scan(["k"], where=[("c8", "<", -1)]).count() == 0
        assert counts == {"opened": 1, "statistics": 5}  # of an open file the footer is there


def test_narrow_rowsets_are_pruned_by_the_manifest_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("w", pa.float64())])
    with kc.create_table(tmp_path / "n", schema, "k", options=OPTIONS) as table:
        for first in (0, 100):
            keys = list(range(first, first + 10))
            table.insert({"k": keys, "v": [f"{k:05d}" for k in keys], "w": [None] * 10})
            table.flush()
        assert all(isinstance(meta.statistics, StatisticsBlock) for meta in metas(table))
    with kc.open_table(tmp_path / "n") as reader:
        counts = counted(monkeypatch)
        assert reader.scan(where=[("v", ">", "00200")]).count() == 0
        assert reader.scan(where=[("w", ">", 0.0)]).count() == 0
        assert counts == {"opened": 0, "statistics": 0}
        assert reader.scan(where=[("v", ">=", "00105")]).count() == 5
        assert counts == {"opened": 1, "statistics": 0}


def test_rewritten_columns_bring_their_statistics(wide: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = wide_rows(100)
    wide.update({"k": rows["k"], **{f"c{i}": rows[f"c{i}"] + 10**9 for i in range(100)}})
    wide.flush()
    wide.compact(full=True)
    wide.maintain()
    wide.close()
    with kc.open_table(wide.path) as reader:
        reader.verify()
        assert reader.scan(where=[("c7", ">=", 10**9)]).count() == 10
        assert reader.scan(where=[("c7", "<", 10**9)]).count() == 20
        assert reader.scan(where=[("c120", ">=", 10**9)]).count() == 0


def test_stats_of_wide_columns(wide: kc.Table) -> None:
    found = {row["column"]: row for row in wide.stats("column").to_pylist()}
    assert len(found) == WIDE + 1
    assert found["c3"]["bytes"] > 0 and found["c3"]["nulls"] == 0
    whole = sum(meta.base.size for meta in metas(wide))
    assert sum(row["bytes"] for row in found.values()) < whole


@pytest.mark.parametrize("what", ["bit", "other file"])
def test_damaged_statistics_are_no_answer(wide: kc.Table, what: str) -> None:
    """A rowset is never ruled out by what is not its own."""
    one, two = metas(wide)[:2]
    directory = Path(tablet_of(wide).directory)
    wide.close()
    assert isinstance(one.statistics, StatisticsRef)
    path = directory / one.base.name
    data = bytearray(path.read_bytes())
    if what == "bit":
        data[one.statistics.offset + 200] ^= 1
    else:
        data = bytearray((directory / two.base.name).read_bytes())
    path.write_bytes(data)
    with kc.open_table(wide.path) as reader:
        with pytest.raises(kc.Corruption, match=one.base.name):
            reader.scan(where=[("c7", "<", -1)]).count()
        with pytest.raises(kc.Corruption, match=one.base.name):
            reader.verify()


def test_statistics_that_are_not_the_file_s(wide: kc.Table) -> None:
    """A manifest whose statistics are of another file is found by ``verify``."""
    tablet = tablet_of(wide)
    one, two = metas(wide)[:2]
    assert isinstance(one.statistics, StatisticsRef)
    wrong = replace(one, statistics=replace(one.statistics, ids=((0, 3),)))
    with tablet.mutex:
        tablet.install(tablet.view, Edit(add=(wrong,)))
    assert tablet.manifest is not None
    tablet.manifest.sync()
    with pytest.raises(kc.Corruption, match="not those of the statistics in its manifest"):
        wide.verify()
    assert two.base.name != one.base.name


def test_ten_thousand_rowsets(tmp_path: Path) -> None:
    """A manifest of them is read in pieces, and opens."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    with kc.create_table(tmp_path / "m", schema, "k", options=OPTIONS) as table:
        table.insert({"k": [1], "v": [1]})
        table.flush()
        tablet = tablet_of(table)
        [meta] = metas(table)
        path = Path(tablet.directory)
        add = []
        for number in range(10_000):
            key = (number + 10).to_bytes(8, "big")
            name = f"000001-{number + 1000:08d}.rows"
            base = replace(meta.base, name=name)
            add.append(replace(meta, id=meta.id + 1 + number, base=base, min_key=key, max_key=key))
        with tablet.mutex:
            tablet.install(tablet.view, Edit(add=tuple(add)))
        assert tablet.manifest is not None
        tablet.manifest.sync()
        uuid = table_file_of(table).uuid
        state = tablet.state
    read = read_manifest(PosixFileSystem(), str(path / "MANIFEST"), uuid, 1)[0]
    assert read.rowsets == state.rowsets and len(read.rowsets) == 10_001
    with kc.open_table(tmp_path / "m") as reader:
        assert reader.metrics()["rowsets"] == 10_001
        assert reader.scan(where=[("v", ">", 1)]).count() == 0  # by their statistics: no file is opened


# ---- limits


def test_an_ingest_that_names_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record's JSON: refused by the writer, with nothing applied, by the number that the reader has."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    options = {**OPTIONS, "ingest_threshold_rows": 10}
    with kc.create_table(tmp_path / "i", schema, "k", options=options) as table:
        monkeypatch.setattr(records, "MAX_EXTRA_BYTES", 200)
        with pytest.raises(kc.InvalidArgument, match="nothing was written"):
            table.insert({"k": list(range(20)), "v": [0] * 20})
        assert table.count() == 0
        monkeypatch.undo()
        table.insert({"k": list(range(20)), "v": [0] * 20})
        drop(table)
    monkeypatch.setattr(records, "MAX_EXTRA_BYTES", 200)
    with pytest.raises(kc.Corruption, match="200 are the most"):
        kc.open_table(tmp_path / "i", "rw")
    monkeypatch.undo()
    with kc.open_table(tmp_path / "i", "rw") as table:
        assert table.count() == 20


def test_an_ingest_into_a_rowset_of_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest's entry: refused before the record, which else could be neither installed nor replayed."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    options = {**OPTIONS, "ingest_threshold_rows": 10}
    with kc.create_table(tmp_path / "i", schema, "k", options=options) as table:
        table.insert({"k": list(range(20)), "v": [0] * 20})
        last = log_of(table).last_lsn
        for module in (install, manifest_format):
            monkeypatch.setattr(module, "MAX_LINE_BYTES", metas(table)[0].most_bytes + 500)
        with pytest.raises(kc.NotSupported, match="compact the table first"):
            table.update({"k": list(range(20)), "v": [1] * 20})
        assert log_of(table).last_lsn == last
        assert table.scan(where=[("v", "=", 1)]).count() == 0
        monkeypatch.undo()
        table.update({"k": list(range(20)), "v": [1] * 20})
        assert table.scan(where=[("v", "=", 1)]).count() == 20


def test_most_bytes_is_more_than_an_entry_takes() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        updates = {
            int(i): int(rng.integers(1, 2**32)) for i in rng.choice(2**31 - 1, rng.integers(1, 60), False)
        }
        big = 2**64 - 2**32 - 1
        file = FileRef("0000000001-00000000000000000001.delta", big, 2**32 - 1)
        delta = DeltaRef(file, 2**32 - 1, big, big, big, 7, updates)
        meta = RowSetMeta(
            big,
            FileRef("0000000001-00000000000000000001.rows", big, 2**32 - 1),
            2**32 - 1,
            rng.bytes(int(rng.integers(0, 3000))),
            rng.bytes(3000),
            big,
            big,
            big,
            (delta,) * int(rng.integers(0, 5)),
            (delta,) * int(rng.integers(0, 5)),
        )
        assert len(manifest_format.lines_of([meta.to_json()])[0]) < meta.most_bytes


# ---- the log beside new tablets


def test_the_log_is_not_dropped_for_a_tablet_that_comes_meanwhile() -> None:
    """A tablet that is made, and filled, after maintenance has listed them: its rows are in the log alone."""
    fs, clock = MemoryFileSystem(), ManualClock()
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    ranges = kc.RangePartition("k", bounds=[(0, 1000)])
    with segments_of(TINY):
        table = kc.create_table("/t", schema, "k", partition_by=ranges, options=OPTIONS, _fs=fs, _clock=clock)
        for step in range(40):
            clock.advance(us=10)
            table.insert({"k": list(range(20 * step, 20 * step + 20)), "v": [0] * 20})
        maintenance = flush_lane_of(table)
        assert maintenance is not None
        listed = []

        class Beside(tuple[Tablet, ...]):
            def __iter__(self) -> Iterator[Tablet]:
                listed.append(True)
                if len(listed) == 1:
                    table.alter(add_range=(1000, 2000))
                    table.insert({"k": [1500], "v": [1]})
                return super().__iter__()

        for tablet in tablets_of(table):
            maintenance.flush(tablet)
        begun = log_of(table).segments[0].seq
        maintenance.tablets = Beside(maintenance.tablets)
        maintenance.truncate_log()
        assert listed
        assert log_of(table).segments[0].seq > begun
        drop(table)
        fs.kill()
        with kc.open_table("/t", "rw", _fs=fs, _clock=clock) as again:
            assert again.get(1500) == {"k": 1500, "v": 1}
