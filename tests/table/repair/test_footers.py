"""``kudu_core.repair``: files whose header, footer, trailer or length is damaged are read by what else is
known of them, and nothing of another file is."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile import RowsFile
from kudu_core.cfile.files import salvage
from kudu_core.cfile.pages.container import HEADER, TRAILER, Extent
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.tablet.compact.delta_compaction import compact_major
from tests.support.inside import tablets_of
from tests.support.tables import Make, make, path
from tests.table.repair.conftest import SCHEMA, Repaired, closed, file_of

__all__ = ["make", "path"]

ROWS, PAGE = 20_000, 16_384
INGEST_ROWS = 1_000
Damaged = Callable[[bytes, Extent], bytes]


@pytest.fixture
def table(make: Make) -> kc.Table:
    """Its rows are in one file, and in no record of the log."""
    made = make(schema=SCHEMA, ingest_threshold_rows=INGEST_ROWS)
    keys = range(ROWS)
    made.insert({"k": list(keys), "a": [7 * k % 1000 for k in keys], "s": [f"row {k}" for k in keys]})
    made.flush()
    return made


def footer_of(file: Path) -> Extent:
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        return rows.file.footer_extent


def flipped(data: bytes, *places: int) -> bytes:
    out = bytearray(data)
    for at in places:
        out[at] ^= 1 << at % 8
    return bytes(out)


def damage(file: Path, how: Damaged) -> None:
    file.write_bytes(how(file.read_bytes(), footer_of(file)))


HEADERS: dict[str, Damaged] = {
    "magic": lambda data, _: flipped(data, 3),
    "version": lambda data, _: flipped(data, 8),
    "kind": lambda data, _: flipped(data, 10),
    "features": lambda data, _: flipped(data, 17),
    "file id": lambda data, _: flipped(data, 25),
    "all of the file id": lambda data, _: data[:20] + bytes(16) + data[36:],
    "checksum of the header": lambda data, _: flipped(data, 38),
    "header": lambda data, _: bytes(HEADER.size) + data[HEADER.size :],
    "header, and trailer": lambda data, _: bytes(HEADER.size) + data[HEADER.size : -TRAILER.size],
}
FOOTERS: dict[str, Damaged] = {
    "checksum of the footer": lambda data, footer: flipped(data, footer.offset + 1),
    "kind of the footer": lambda data, footer: flipped(data, footer.offset + 4),
    "length of the footer": lambda data, footer: flipped(data, footer.offset + 13),
    "text of the footer": lambda data, footer: flipped(data, footer.offset + 100),
    "place of the footer": lambda data, _: flipped(data, len(data) - 24),
    "length in the trailer": lambda data, _: flipped(data, len(data) - 15),
    "checksum in the trailer": lambda data, _: flipped(data, len(data) - 12),
    "magic of the trailer": lambda data, _: flipped(data, len(data) - 1),
    "no trailer": lambda data, _: data[: -TRAILER.size],
    "cut in the footer": lambda data, footer: data[: footer.offset + 200],
    "no footer": lambda data, footer: data[: footer.offset],
    "zeros for a footer": lambda data, footer: data[: footer.offset] + bytes(len(data) - footer.offset),
    "too long": lambda data, _: data + b"and more",
    "file id in the header, and footer": lambda data, footer: flipped(data, 8, 38)[: footer.offset],
}


@pytest.mark.parametrize("what", [*HEADERS, *FOOTERS])
def test_rows_are_found_without_it(table: kc.Table, path: Path, what: str) -> None:
    """Every row is read, and none is in doubt."""
    wanted = closed(table)
    file = file_of(path, "rows")
    damage(file, (HEADERS | FOOTERS)[what])
    found = Repaired(path)
    assert found.rows == wanted
    report = found.report
    assert (report.rows_lost, report.rows_doubtful) == (0, 0), report.text()
    (finding,) = report.tablets[0].findings
    assert finding.path == str(file) and str(file) in report.files_used


@pytest.mark.parametrize("what", ["header", "no footer", "the dictionary"])
def test_a_column_whose_codec_has_a_dictionary(make: Make, path: Path, what: str) -> None:
    """Its rows are found without header or footer; with the dictionary all its cells are lost."""
    words = [f"{k * 7_919 % 10_007:x}{k % 13}" for k in range(1500)]
    rng = random.Random(5)
    cells = [" ".join(rng.choices(words, k=rng.randrange(15, 40))) for _ in range(5000)]
    schema = [*SCHEMA[:2], kc.Column("s", "string", compression="zstd")]
    made = make(schema=schema, ingest_threshold_rows=INGEST_ROWS)
    made.insert({"k": list(range(5000)), "a": [7 * k for k in range(5000)], "s": cells})
    made.flush()
    wanted = closed(made)
    file = file_of(path, "rows")
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        assert rows.columns[3].codec_dictionary is not None
        dictionary = rows.columns[3].dictionary_extent
        assert dictionary is not None
    if what != "the dictionary":
        damage(file, (HEADERS | FOOTERS)[what])
        found = Repaired(path)
        assert (found.rows, found.report.rows_lost) == (wanted, 0)
        return
    file.write_bytes(flipped(file.read_bytes(), dictionary.offset + 99))
    with kc.open_table(path, "r") as table, pytest.raises(kc.Corruption, match=f"{file}"):
        table.scan(["s"]).to_table()
    found = Repaired(path)
    assert (found.rows, found.report.rows_lost) == ({}, len(wanted))


def lost_without_a_trace(path: Path, rows: int) -> None:
    """All rows of the one file are lost, as many as the manifest says, and none is made up."""
    found = Repaired(path)
    assert found.rows == {}
    assert (found.report.rows_lost, found.report.rows_kept) == (rows, 0), found.report.text()
    assert found.aside == {"lost": {}, "older": {}, "doubtful": {}}
    assert [finding.rows_lost for finding in found.report.tablets[0].findings] == [rows]


@pytest.mark.parametrize("what", ["header and footer", "cut before the end of the keys", "empty"])
def test_what_is_lost_is_counted(table: kc.Table, path: Path, what: str) -> None:
    closed(table)
    file = file_of(path, "rows")
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        end = rows.columns[1].index_extent.end
    data, footer = file.read_bytes(), footer_of(file)
    left = {
        "header and footer": bytes(HEADER.size) + data[HEADER.size : footer.offset],
        "cut before the end of the keys": data[: end - 1],
        "empty": b"",
    }
    file.write_bytes(left[what])
    lost_without_a_trace(path, ROWS)


def test_columns_behind_the_cut_are_put_aside(table: kc.Table, path: Path) -> None:
    """A file that ends in its last column has the others; a later update may set the cell."""
    table.update({"k": [5], "s": ["set since"]})
    wanted = closed(table)
    file = file_of(path, "rows")
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        cut = rows.columns[3].index_extent.end - 1
    file.write_bytes(file.read_bytes()[:cut])
    found = Repaired(path)
    assert found.rows == {5: wanted[5]}
    assert found.aside["lost"] == {k: (row[0], None) for k, row in wanted.items() if k != 5}
    assert found.report.rows_lost == ROWS - 1


def test_pages_that_are_damaged_besides(table: kc.Table, path: Path) -> None:
    wanted = closed(table)
    file = file_of(path, "rows")
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        last = rows.columns[3].page_count - 1
        at, left = rows.columns[3].page_offset(last), rows.columns[3].page_rows(last)
    damage(file, lambda data, footer: flipped(data[: footer.offset], at + 50))
    found = Repaired(path)
    assert found.rows == {k: row for k, row in wanted.items() if k < ROWS - left}
    assert found.report.rows_lost == left < PAGE


# ---- another file


def test_another_file_without_its_footer_is_not_believed(make: Make, path: Path) -> None:
    """It has the same columns, rows and keys at the same places, but for a largest value."""
    keys = list(range(ROWS))
    plain = kc.Column("a", "int64", encoding="plain", compression="none")
    ends = []
    for place, largest in ((path, 999), (path.parent / "other", 998)):
        made = make(schema=[SCHEMA[0], plain, SCHEMA[2]], ingest_threshold_rows=INGEST_ROWS, at=place)
        made.insert({"k": keys, "a": [min(7919 * k % 1000, largest) for k in keys], "s": ["x"] * ROWS})
        made.flush()
        made.close()
        ends.append(footer_of(file_of(place, "rows")).offset)
    assert ends[0] == ends[1]
    other = file_of(path.parent / "other", "rows").read_bytes()
    file_of(path, "rows").write_bytes(other[: ends[1]])
    lost_without_a_trace(path, ROWS)


@pytest.mark.parametrize("what", ["as it is", "without a footer"])
def test_a_file_with_other_keys(make: Make, path: Path, what: str) -> None:
    made = make(schema=SCHEMA, ingest_threshold_rows=INGEST_ROWS)
    for first in (0, ROWS):
        keys = list(range(first, first + ROWS))
        made.insert({"k": keys, "a": [k % 100 for k in keys], "s": ["x"] * ROWS})
    made.flush()
    wanted = closed(made)
    first_file, other = sorted((path / "tablets" / "00000001").glob("*.rows"))
    data = other.read_bytes()
    first_file.write_bytes(data if what == "as it is" else data[: footer_of(other).offset])
    found = Repaired(path)
    assert found.rows == {k: row for k, row in wanted.items() if k >= ROWS}
    assert found.report.rows_lost == ROWS


# ---- every kind of file


def test_columns_that_stand_anew_in_a_file(table: kc.Table, path: Path) -> None:
    """Without the footer they are read; without half of the file the older ones do not take their place."""
    keys = list(range(ROWS))
    table.update({"k": keys, "a": [k + 1 for k in keys]})
    table.flush()
    (tablet,) = tablets_of(table)
    compact_major(tablet, tablet.view.rowsets[0].id)
    (rowset,) = tablet.view.rowsets
    (columns,) = rowset.meta.replaced
    wanted = closed(table)
    file = path / "tablets" / "00000001" / columns.file.name
    damage(file, lambda data, footer: data[: footer.offset])
    found = Repaired(path)
    assert found.rows == wanted and not found.report.rows_doubtful and not found.report.rows_lost
    file.write_bytes(file.read_bytes()[:-1000])
    Path(f"{path}.repaired").rename(f"{path}.first")
    found = Repaired(path)
    assert found.rows == {} and found.report.rows_lost == ROWS
    assert found.aside["lost"] == {k: (None, row[1]) for k, row in wanted.items()}


@pytest.mark.parametrize("columns", [6, 120])
def test_a_table_of_many_types(make: Make, path: Path, columns: int, seed: int) -> None:
    """A key of several columns, dictionaries, NULLs, columns that were dropped and added; statistics in the
    manifest, and of many columns in the file."""
    rng = random.Random(seed)
    extra = [kc.Column(f"x{i}", rng.choice(["int8", "float64", "bool", "string"])) for i in range(columns)]
    schema = [kc.Column("s", "string"), kc.Column("k", "int32"), *extra]
    made = make(schema=schema, key=["s", "k"], ingest_threshold_rows=50)
    for number in range(2):
        rows = []
        for k in range(100):
            row = {"s": rng.choice("abc") + "x" * number, "k": k + 100 * number}
            for column in made.schema:
                values = {
                    "int8": rng.randrange(100),
                    "double": rng.random(),
                    "bool": rng.random() < 0.5,
                    "string": rng.choice(["a", "b", "\u00e9" * rng.randrange(50)]),
                }
                if column.name not in row:
                    row[column.name] = rng.choice([None, values[str(column.type)]])
            rows.append(row)
        made.insert(rows)
        made.flush()
        if not number:
            made.alter(drop=["x1", "x3"], add=[kc.Column("y", "string", default="old")])
    wanted = made.scan(order="key").to_table()
    made.close()
    files = sorted((path / "tablets" / "00000001").glob("*.rows"))
    assert len(files) == 2
    for file, how in zip(files, (HEADERS["header"], FOOTERS["no footer"]), strict=True):
        damage(file, how)
    report = kc.repair(path, dry_run=False)
    with kc.open_table(f"{path}.repaired") as again:
        assert again.scan(order="key").to_table().equals(wanted), report.text()
    assert (report.rows_lost, report.rows_doubtful) == (0, 0)


@pytest.mark.parametrize("what", [*HEADERS, "place of the footer", "no trailer", "too long"])
def test_a_file_of_changes(table: kc.Table, path: Path, what: str) -> None:
    """Its header and trailer say nothing that its footer does not."""
    keys = list(range(2 * INGEST_ROWS))
    table.update({"k": keys, "s": ["new"] * len(keys)})
    table.delete({"k": keys[:INGEST_ROWS]})
    table.flush()
    wanted = closed(table)
    for file in (path / "tablets" / "00000001").glob("*.delta"):
        data = file.read_bytes()
        offset, length, _, _ = TRAILER.unpack(data[-TRAILER.size :])
        file.write_bytes((HEADERS | FOOTERS)[what](data, Extent(offset, length)))
    found = Repaired(path)
    assert found.rows == wanted
    assert not found.report.is_sound and not found.report.rows_doubtful and not found.report.rows_lost


# ---- the arithmetic


def test_the_start_of_a_checksum(seed: int) -> None:
    rng = random.Random(seed)
    for size in (1, 3, 10, 16, 255, 5000):
        data, start = rng.randbytes(size), rng.getrandbits(32)
        assert salvage._start_value(crc32c(data, start), data) == start


def test_columns_lie_in_the_order_of_their_ids(make: Make, path: Path) -> None:
    """By this a file is read without its footer: docs/format.md, "Rows files"."""
    made = make(schema=SCHEMA, ingest_threshold_rows=20)
    rows = range(40)
    made.insert({"k": list(rows), "a": list(rows), "s": ["x"] * 40})
    made.alter(drop=["a"], add=[kc.Column("a", "int64"), kc.Column("b", "int8")])
    made.insert({"b": [1] * 40, "s": ["y"] * 40, "a": list(rows), "k": [k + 40 for k in rows]})
    made.insert({"k": [99]})
    made.flush()
    with kc.open_table(path):  # as long as somebody reads, what was merged stays
        made.compact(full=True)
        made.close()
    files = list((path / "tablets" / "00000001").glob("*.rows"))
    assert len(files) > 2
    for file in files:
        with RowsFile(PosixFileSystem(), str(file)) as opened:
            ids = [column_id for column_id in opened.columns if column_id >= 0]
            assert ids == sorted(ids)
            at = HEADER.size
            for column_id in ids:
                extents = opened.columns[column_id].extents()
                assert extents[0].offset == at and extents[-1] == opened.columns[column_id].index_extent
                assert all(a.end == b.offset for a, b in pairwise(extents))
                at = extents[-1].end
