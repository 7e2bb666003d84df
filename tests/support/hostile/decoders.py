"""The decoders of stored bytes, each with artefacts to be mutated and a reader that says what it found."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

import kudu_core as kc
from kudu_core._ext.changes.replay import replay
from kudu_core._ext.keys import keys
from kudu_core._ext.pages import blocks
from kudu_core._ext.scan.cell_set import CellSet
from kudu_core._ext.scan.read import read as scan_read
from kudu_core._ext.scan.selection import Selection
from kudu_core.cfile import UNDO, DeltaFile, RowsFile, write_delta_file
from kudu_core.cfile.columns import statistics
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.pages import page
from kudu_core.cfile.pages.page_cache import PageCache
from kudu_core.common.types.types import ColumnType
from kudu_core.table.stored import table_state
from kudu_core.tablet.store import manifest, records
from kudu_core.wal import tail as wal_tail
from tests.support.cases.blocks import bits_of, integers, raw
from tests.support.cases.cfile import FILE_ID, BytesFileSystem, column, make_case, read_codes
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.first_rows import REFUSALS, first_rows
from tests.support.inside import table_file_of


@dataclass(frozen=True)
class Target:
    """A decoder: artefacts that it reads, and the reading of all there is."""

    name: str
    samples: Callable[[], list[bytes]]
    read: Callable[[bytes], Any]
    share: int
    """Of the mutations, in proportion: what is slower gets fewer."""


# ---- pages ----


@cache
def fixed_pages() -> list[bytes]:
    rng = np.random.default_rng(1)
    out = []
    for dtype in ("i1", "u2", "i4", "i8"):
        for rows in (7, 1024, 3000):
            for number, (_, values) in enumerate(integers(rng, rows, dtype)):
                validity = bits_of(rng.random(rows) >= 0.2) if number % 3 == 0 else None
                out.append(blocks.encode_fixed(raw(values), values.itemsize, 1, validity))
    for values in (np.round(rng.random(2000) * 100, 2), rng.random(2000), np.full(1500, np.nan)):
        out.append(blocks.encode_fixed(raw(values), 8, 2))
        out.append(blocks.encode_fixed(raw(values.astype("f4")), 4, 2, None, form="plain"))
    wide = np.repeat(rng.integers(0, 1000, 1500), 2)
    out.append(blocks.encode_fixed(raw(wide), 16, 4))
    return out


@cache
def binary_pages() -> list[bytes]:
    out = []
    for cells in (
        [b"host-%05d" % (i // 9) for i in range(3000)],
        [b"", b"a" * 300, b"\0\0"] * 50,
        [b"x" * (i % 40) for i in range(1100)],
    ):
        offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
        data = np.frombuffer(b"".join(cells), np.uint8)
        for prefix in (False, True):
            out.append(blocks.encode_binary(offsets, data, None, prefix))
        out.append(blocks.encode_binary(offsets, data, bits_of(np.arange(len(cells)) % 3 > 0), False))
    return out


def read_page(data: bytes) -> None:
    """As fixed values of the width that the payload names, and of others; as strings."""
    width = data[5] if len(data) > 5 and data[5] in (1, 2, 4, 8, 16) else 8
    rows = min(int.from_bytes(data[:4], "little"), page.PAGE_ROWS)
    parts = ((0, rows), (rows // 2, rows - rows // 2), (rows // 3, min(60, rows - rows // 3)))
    for wide in {width, 4}:
        for first, count in parts:
            out = np.zeros(count * wide, np.uint8)
            bits = np.zeros((count + 7) // 8, np.uint8)
            with contextlib.suppress(*REFUSALS):
                blocks.decode_fixed(data, wide, out, bits, first, count)
        cells = np.array([0, 1, 1023, 1024, max(rows - 1, 0), rows // 2], np.int64)
        with contextlib.suppress(*REFUSALS):
            blocks.cells_fixed(data, wide, cells, np.zeros(6 * wide, np.uint8), np.zeros(1, np.uint8))
    for first, count in parts:
        with contextlib.suppress(*REFUSALS):
            blocks.decode_binary(data, first, count, lambda n: np.empty(n, np.uint8))
    with contextlib.suppress(*REFUSALS):
        blocks.cells_binary(data, np.array([0, 5, rows // 2, max(rows - 1, 0)], np.int64))
    blocks.describe(data)


# ---- keys and dictionaries ----


@cache
def key_bytes() -> list[bytes]:
    cells = [b"host", b"a\0b", b"", b"\xff\xff"]
    offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    number = np.array([-1, 2**40, 0, 5], "<i8")
    data, ends = keys.encode(
        [(3, 0, np.frombuffer(b"".join(cells), np.uint8), offsets), (1, 8, raw(number), None)], 4
    )
    return [bytes(ends.astype("<i8")) + bytes(data)]


def read_keys(data: bytes) -> None:
    ends = np.frombuffer(data[:40].ljust(40, b"\0"), "<i8")
    rest = np.frombuffer(data[40:], np.uint8)
    types = [(3, 0), (1, 8)]
    keys.decode(rest, ends, types)
    for probe in (rest, np.empty(0, np.uint8)):
        keys.lower_bound(rest, ends, probe, np.array([0, len(probe)], np.int64))
    keys.sort(rest, ends)


@cache
def dictionaries() -> list[bytes]:
    codes = np.random.default_rng(3).integers(0, 9, 500).astype("<u2")
    ends = np.arange(10, dtype="<i4") * 4
    return [bytes(ends) + bytes(codes) + b"abcd" * 9]


def expand_dictionary(data: bytes) -> None:
    ends = np.frombuffer(data[:40].ljust(40, b"\0"), "<i4")
    codes = np.frombuffer(data[40:1040].ljust(1000, b"\0"), np.uint8)
    words = np.frombuffer(data[1040:], np.uint8)
    blocks.dictionary_expand(codes, 2, ends, words, None, lambda n: np.empty(n, np.uint8))


# ---- files ----


@cache
def rows_files() -> list[bytes]:
    out = []
    for rows, types in ((9, ["float64", "string", "bool"]), (2100, ["int64", "float32", "string"])):
        case = make_case(np.random.default_rng(12), rows, "mixed", types)
        if rows == 9:
            case.columns[3] = column([None if i % 4 == 0 else f"w{i % 3}" for i in range(rows)], "string")
        case.insert_times = np.arange(rows, dtype=np.uint64) // 3
        fs = BytesFileSystem()
        case.write(fs, "f")
        out.append(bytes(fs.files["f"]))
    return out


def read_rows_file(data: bytes) -> None:
    fs = BytesFileSystem()
    fs.files["f"] = bytearray(data)
    with RowsFile(fs, "f", PageCache(1 << 20)) as file:
        rows = min(file.rows, 5000)
        some = np.unique(np.array([0, 1, rows // 2, max(rows - 1, 0)], np.int64))
        ranges = np.array([[0, rows]] if rows else np.empty((0, 2)), np.int64).reshape(-1, 2)
        for id_ in file.columns:
            for what in (
                lambda: file.read(id_, 0, rows),  # noqa: B023
                lambda: file.cells([id_], some),  # noqa: B023
                lambda: file.zones(id_),  # noqa: B023
                lambda: read_codes(file, id_, 0, rows),  # noqa: B023
                lambda: _scanned(file, id_, ranges),  # noqa: B023
            ):
                with contextlib.suppress(*REFUSALS):
                    what()
        found: Any = None
        with contextlib.suppress(*REFUSALS):
            found = file.keys(0, rows)
            file.find(*found)
        if found is not None:
            with contextlib.suppress(*REFUSALS):
                file.points.find_many(*found, np.zeros(len(found[1]) - 1, np.uint64))
        for what in (
            lambda: file.may_contain(np.arange(100, dtype=np.uint64)),
            lambda: first_rows(file),
            lambda: file.lower_bound(b"\x80" * 8),
            lambda: file.insert_times(0, rows),
            file.verify,
        ):
            with contextlib.suppress(*REFUSALS):
                what()


def _scanned(file: RowsFile, column_id: int, ranges: np.ndarray) -> None:
    """Through the kernels of scans: a test of every cell, then the cells that pass."""
    scan = file.scans.column(column_id)
    selection = Selection(ranges, file.rows)
    if scan.width:
        words = 2 if scan.width == 16 else 1
        least, most = np.zeros(words, np.uint64), np.full(words, 77, np.uint64)
        with contextlib.suppress(*REFUSALS):
            selection.test(scan, CellSet(0, scan.width, least, most, True))
    scan_read(selection, [scan], bytes(1), lambda n: np.empty(n, np.uint8))


def delta_file() -> bytes:
    fs = BytesFileSystem()
    spec = ColumnSpec(4, ColumnType.parse("string"), True)
    fixed = ColumnSpec(5, ColumnType.parse("int64"), True)
    write_delta_file(
        fs,
        "f",
        UNDO,
        np.array([2, 2, 5, 9], np.uint32),
        np.array([900, 800, 850, 1], np.uint64),
        np.array([1, 2, 3, 1], np.uint8),
        {
            4: (spec, np.array([0, 2, 3], np.uint32), column(["x", None, "yy"], "string")),
            5: (fixed, np.array([0, 2], np.uint32), column([7, None], "int64")),
        },
        file_id=FILE_ID,
    )
    return bytes(fs.files["f"])


@cache
def delta_files() -> list[bytes]:
    return [delta_file()]


def read_delta_file(data: bytes) -> None:
    fs = BytesFileSystem()
    fs.files["f"] = bytearray(data)
    with DeltaFile(fs, "f", PageCache(1 << 20)) as file:
        for what in (file.entries, file.liveness, lambda: file.entries(3, 6), file.verify):
            with contextlib.suppress(*REFUSALS):
                what()
        with contextlib.suppress(*REFUSALS):
            replay(file.liveness_parts(0, 10), np.zeros(10, np.uint8), 1, 0, 10)
        with contextlib.suppress(*REFUSALS):
            file.points.newest(None, np.array([0, 1, 2, 3], np.int64), None, True)
        for id_ in file.column_ids:
            for read in (file.updates, file.updates_with_entries):
                with contextlib.suppress(*REFUSALS):
                    read(id_)
            if file.spec(id_).type.width:
                with contextlib.suppress(*REFUSALS):
                    replay(file.parts(id_, 0, 10), np.zeros(80, np.uint8), 8, 0, 10, np.zeros(2, np.uint8))
            with contextlib.suppress(*REFUSALS):
                file.points.newest(id_, np.array([0, 1, 2, 3], np.int64), 2, False)


# ---- manifest, TABLE, log ----


@cache
def table_files() -> dict[str, list[bytes]]:
    """TABLE, manifest and log of a small table, by kind."""
    fs = MemoryFileSystem()
    schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
    options = {"maintenance": "manual", "ingest_threshold_rows": 50}
    table = kc.create_table("/t", schema, "k", options=options, _fs=fs)
    table.insert({"k": list(range(60)), "s": ["x"] * 60})
    table.insert({"k": [100, 101], "s": ["a", None]})
    table.flush()
    with table.batch() as b:
        b.update({"k": [100], "s": ["b"]})
        b.delete({"k": [101]})
    found: dict[str, list[bytes]] = {"TABLE": [], "MANIFEST": [], "log": []}
    found["TABLE"].append(fs.read_bytes("/t/TABLE", 1 << 20))
    found["MANIFEST"].append(fs.read_bytes("/t/tablets/00000001/MANIFEST", 1 << 20))
    for name in fs.listdir("/t/wal"):
        if name.endswith(".log"):
            found["log"].append(fs.read_bytes(f"/t/wal/{name}", 1 << 20)[:8192])
            _SEGMENT.append(name)
    uuid = table_file_of(table).uuid
    _UUID.append(uuid)
    table.close()
    return found


_UUID: list[bytes] = []
_SEGMENT: list[str] = []


def read_table_file(data: bytes) -> None:
    fs = MemoryFileSystem()
    fs.replace_file("/TABLE", data)
    table_state.read_state(fs, "/TABLE")


def read_manifest(data: bytes) -> None:
    fs = MemoryFileSystem()
    fs.replace_file("/MANIFEST", data)
    table_files()
    manifest.read_manifest(fs, "/MANIFEST", _UUID[0], 1)


def statistics_blocks() -> list[bytes]:
    zones = {
        1: Zone(b"\x05" * 8, b"\x06" * 8, 0, 0, 90),
        4: Zone(b"a", None, 3, 0, 90, True, False),
        7: Zone(None, None, 90, 0, 90),
    }
    return [statistics.pack(90, {i: (1000 * i, zone) for i, zone in zones.items()}).data]


def read_statistics(data: bytes) -> None:
    block = statistics.StatisticsBlock(data)
    for column_id in block.column_ids[:20]:
        block.zone(column_id), block.stored_bytes(column_id)


def read_log(data: bytes) -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/wal")
    table_files()
    fs.replace_file(f"/wal/{_SEGMENT[0]}", data)
    tail = wal_tail.read_log(fs, "/wal", _UUID[0])
    for record in tail.records():
        with contextlib.suppress(*REFUSALS):
            records.decode(memoryview(record.payload), "log", 0)
    tail.close()


@cache
def payloads() -> list[bytes]:
    fs = MemoryFileSystem()
    fs.mkdir("/wal")
    sample = table_files()["log"][0]
    fs.replace_file(f"/wal/{_SEGMENT[0]}", sample)
    tail = wal_tail.read_log(fs, "/wal", _UUID[0])
    found = [bytes(record.payload) for record in tail.records()]
    tail.close()
    return found


def read_payload(data: bytes) -> None:
    payload = records.decode(memoryview(data), "log", 0)
    for sections in records.split(payload.sections, len(payload.tablets)):
        for _, block in sections:
            block.take(np.arange(min(block.rows, 3)))


TARGETS = {
    target.name: target
    for target in (
        Target("fixed pages", fixed_pages, read_page, 30),
        Target("binary pages", binary_pages, read_page, 20),
        Target("keys", key_bytes, read_keys, 10),
        Target("dictionaries", dictionaries, expand_dictionary, 5),
        Target("rows files", rows_files, read_rows_file, 12),
        Target("delta files", delta_files, read_delta_file, 8),
        Target("TABLE", lambda: table_files()["TABLE"], read_table_file, 4),
        Target("manifests", lambda: table_files()["MANIFEST"], read_manifest, 4),
        Target("column statistics", statistics_blocks, read_statistics, 3),
        Target("log segments", lambda: table_files()["log"], read_log, 4),
        Target("record payloads", payloads, read_payload, 3),
    )
}
