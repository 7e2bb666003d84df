"""Files of many columns: what an open, a scan and a look-up make of the columns that nobody asks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.row import column as point_column
from kudu_core.cfile import DeltaFile, PageCache, RowsFile
from kudu_core.cfile.columns.column_list import ColumnEntry, ColumnList, pack_entries
from kudu_core.cfile.columns.pages import ColumnPages
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.pages.container import Extent
from kudu_core.cfile.readers import point_reader
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.rowset.memory import memrowset
from kudu_core.rowset.memory.growing import GrowingColumn

COLUMNS = 300
ROWS = 40
MANUAL = {"durability": "none", "maintenance": "manual"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base file, and changes of all columns in a file of their own."""
    path = tmp_path_factory.mktemp("wide") / "t"
    rows = pa.table(
        {"k": range(ROWS), **{f"v{i}": np.arange(ROWS) * i for i in range(COLUMNS - 1)}},
    )
    with kc.create_table(path, rows.schema, "k", options=MANUAL) as table:
        table.insert(rows)
        table.flush()
        table.update({"k": [3], **{f"v{i}": [-i] for i in range(COLUMNS - 1)}})
        table.flush()
    return path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The columns of which a reader was made."""
    made: list[int] = []
    real = ColumnPages.__init__

    def init(self: ColumnPages, file: object, entry: ColumnEntry) -> None:
        real(self, file, entry)  # type: ignore[arg-type]
        made.append(entry.id)

    monkeypatch.setattr(ColumnPages, "__init__", init)
    return made


def test_only_columns_that_are_asked_for_are_made(path: Path, made: list[int]) -> None:
    with kc.open_table(path, options=MANUAL) as table:
        assert not made
        assert table.scan(["v7"]).to_table()["v7"].to_pylist()[2:5] == [14, -7, 28]
        assert len(made) < 10
        assert table.get(4) == {"k": 4, **{f"v{i}": 4 * i for i in range(COLUMNS - 1)}}
    assert len(made) > COLUMNS


def test_point_columns_are_made_when_they_are_asked_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    real = point_column.PointColumn

    def counted(*args: object) -> object:
        nonlocal count
        count += 1
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(point_reader, "PointColumn", counted)
    [name] = path.glob("tablets/*/*.rows")
    with RowsFile(PosixFileSystem(), str(name), PageCache(1 << 24)) as file:
        assert file.points.cells([5], np.array([2]))[0] is not None
        assert file.points.cells([5, 10_000], np.array([2]))[1] is None, "no such column"
        assert count == 2, "the key's and the one"


def test_a_delta_file_makes_its_own_columns_alone(path: Path, made: list[int]) -> None:
    [name] = [
        name
        for name in path.glob("tablets/*/*.delta")
        if DeltaFile(PosixFileSystem(), str(name)).kind == "redo"
    ]
    made.clear()
    with DeltaFile(PosixFileSystem(), str(name)) as file:
        assert all(column_id < 0 for column_id in made)
        assert len(file.column_ids) == COLUMNS - 1
        assert file.updates(file.column_ids[4])[0].tolist() == [3]
        assert sum(column_id >= 0 for column_id in made) == 2, "ordinals of entries and values"


# ---- the list of columns


def entry(number: int, **members: object) -> ColumnEntry:
    low = abs(number).to_bytes(8, "little")
    members = {
        "id": number, "role": "value", "type": "int64", "nullable": bool(number % 2), "rows": 1000 + number,
        "page_bits": 14, "pages": Extent(40, 100 + number), "index": Extent(140 + number, 50),
        "dictionary": None, "words": None, "zone": Zone(low, low, number, 0, 1000 + number, False, True),
    } | members  # fmt: skip
    return ColumnEntry(**members)  # type: ignore[arg-type]


def test_a_list_comes_back() -> None:
    entries = [
        *(entry(number) for number in range(300)),
        entry(-1, role="keys", type="binary", rows=999, zone=Zone(b"", None, 5, 6, 999, True, False)),
        entry(7, role="entry", type="uint32", zone=Zone(None, None, 7, 0, 1007)),
        entry(301, type="string", words=9, dictionary=Extent(1 << 40, 77), zone=Zone(b"a", b"", 0, 0, 1301)),
    ]
    packed = pack_entries(entries)
    found = ColumnList(packed)
    assert list(found) == entries
    assert found.ids == [one.id for one in entries]
    assert [i for i, counts in enumerate(found.counts_entries) if counts] == [301]
    assert packed.count(b"int64") == 1, "names of types stand once"


def test_a_list_that_is_none() -> None:
    packed = pack_entries([entry(3), entry(4)])
    for data in (b"", packed[:7], packed[:-1], packed + b"x", b"\xff" * 8 + packed[8:]):
        with pytest.raises(ValueError, match="a list of"):
            ColumnList(data)
    first = 8
    for at, value, wrong in (
        (60, b"\xff", "counts"),  # more nulls than rows
        (68, b"\xff", "outside"),  # where the type's name begins
        (72, b"\xff", "outside"),
        (76, b"\x08", "role"),
        (78, b"\x20", "flags"),
        (82, b"\x01", "flags"),
    ):
        damaged = bytearray(packed)
        damaged[first + at + 1 if at in (60, 68, 72) else first + at] = value[0]
        assert ColumnList(damaged)[1] == entry(4)
        with pytest.raises(ValueError, match=wrong):
            ColumnList(damaged)[0]


def test_reads_of_columns_that_nobody_asked_for_before(tmp_path: Path) -> None:
    """The first look-up needs insert times, the first of many rows its columns."""
    rows = [{"k": k, "v": -k, "w": k} for k in range(10)]
    schema = pa.table({"k": [0], "v": [0], "w": [0]}).schema
    with kc.create_table(tmp_path / "t", schema, "k", options=MANUAL) as t:
        first = [t.insert([row]).timestamp for row in rows]
        t.flush()
    with kc.open_table(tmp_path / "t", options=MANUAL) as t:
        assert t.get(5, at=first[5] - 1) is None
        assert t.get(5, at=first[5]) == rows[5]
    with kc.open_table(tmp_path / "t", options=MANUAL) as t:
        assert t.get_many([3, 7], columns=["w"])["w"].to_pylist() == [3, 7]
        assert t.get_many([3, 7])["v"].to_pylist() == [-3, -7]


def test_an_open_wraps_no_column_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which nothing lies, nor ever will: of a table that is open for reading."""
    made: list[int] = []

    def counted(width: int, cells: AppendColumn | None = None) -> GrowingColumn:
        made.append(width)
        return GrowingColumn(width, cells)

    monkeypatch.setattr(memrowset, "GrowingColumn", counted)
    with kc.open_table(path) as table:
        assert table.get(3)["v5"] == -5
        assert table.scan(["v5"], limit=1).to_table().num_rows == 1
        assert table.get_many([3, 4])["v7"].to_pylist() == [-7, 28]
        assert not made
