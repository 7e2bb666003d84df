"""What is written to ``.rows`` files is what is read from them, by every way to read."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core._ext.keys import hashing
from kudu_core.cfile import PAGE_ROWS, PageCache, RowsFile, Zone
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.columns.statistics import StatisticsRef, read_statistics
from kudu_core.cfile.files.rows_writer import RowsFileSpec, write_rows_file
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.analysis import Term, passing_all
from kudu_core.errors import Closed, Corruption, InvalidArgument
from kudu_core.fs.posix import PosixFileSystem
from tests.support.cases.cfile import BytesFileSystem, Keys, column, encode_keys, make_case, read_codes, same

SIZES = [1, 7, 1023, 1024, 1025, 5000, PAGE_ROWS, PAGE_ROWS + 1, 40_000]


@pytest.fixture(params=["int", "string", "composite", "mixed"])
def key(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("rows", SIZES)
def test_rows_come_back_by_range_and_by_cell(rows: int, seed: int) -> None:
    rng = np.random.default_rng((seed, rows))
    case = make_case(rng, rows)
    fs = BytesFileSystem()
    meta = case.write(fs, "a")
    assert meta.rows == rows and meta.size == len(fs.files["a"])
    with RowsFile(fs, "a", PageCache(1 << 24), size=meta.size, footer_crc=meta.footer_crc) as file:
        assert file.column_ids == tuple(case.columns)
        assert file.meta == meta
        for id_, spec in case.specs.items():
            whole = file.read(id_, 0, rows)
            assert same(whole.to_arrow(spec.type), case.arrow(id_)), spec
            for _ in range(3):
                lower, upper = sorted(rng.integers(0, rows + 1, 2).tolist())
                part = file.read(id_, lower, upper)
                assert same(part.to_arrow(spec.type), case.arrow(id_, lower, upper)), (spec, lower, upper)
            picked = rng.integers(0, rows, 50)
            cells = file.cells([id_], picked)[0]
            wanted = case.columns[id_].take(picked).to_arrow(spec.type)
            assert same(cells.to_arrow(spec.type), wanted), spec
            assert file.read(id_, rows, rows).length == 0
            assert file.cells([id_], np.empty(0, np.int64))[0].length == 0
            with pytest.raises(InvalidArgument):
                file.read(id_, 0, rows + 1)
        times = file.insert_times(0, rows)
        if case.insert_times is None:
            assert times is None and meta.min_insert is None
        else:
            assert times is not None and (times == case.insert_times).all()
            assert meta.min_insert == int(case.insert_times.min())
            assert meta.max_insert == int(case.insert_times.max())
        file.verify()


def test_dictionary_codes_are_ordinals_of_sorted_words() -> None:
    rng = np.random.default_rng(1)
    case = make_case(rng, 20_000, types=["string"])
    words = [None if i % 11 == 0 else f"w{i % 300:03d}" for i in range(20_000)]
    case.columns[2] = column(words, "string")
    fs = BytesFileSystem()
    case.write(fs, "a")
    with RowsFile(fs, "a") as file:
        found = read_codes(file, 2, 5, 19_000)
        assert found is not None
        codes, width, validity, dictionary = found
        assert width == 2 and validity is not None
        listed = dictionary.to_arrow(ColumnType.parse("string")).to_pylist()
        assert listed == sorted({word for word in words if word is not None})
        values = codes.view("<u2")
        valid = np.unpackbits(validity, bitorder="little")[: len(values)]
        got = [listed[code] if ok else None for code, ok in zip(values.tolist(), valid, strict=True)]
        assert got == words[5:19_000]
        assert read_codes(file, 1, 0, 10) is None
        assert file.dictionary(1) is None


def test_every_key_is_found_and_no_other(key: str) -> None:
    rng = np.random.default_rng(2)
    case = make_case(rng, 6000, key, types=["int64"])
    fs = BytesFileSystem()
    case.write(fs, "a")
    keys = [
        case.keys.data[a:b].tobytes() for a, b in zip(case.keys.offsets, case.keys.offsets[1:], strict=False)
    ]
    with RowsFile(fs, "a") as file:
        assert (-1 in file.columns) == (key == "mixed"), "encoded keys are stored only where needed"
        assert file.find(case.keys.data, case.keys.offsets).tolist() == list(range(6000))
        hashes = hashing.murmur3(case.keys.data, case.keys.offsets)
        assert file.may_contain(hashes).all()
        others = rng.integers(0, 1 << 63, 20_000).astype(np.uint64)
        assert file.may_contain(others).mean() < 0.03
        probes = [keys[i] for i in rng.integers(0, 6000, 300)]
        probes += [probe + b"\x00" for probe in probes[:100]] + [probe[:-1] for probe in probes[:100]]
        probes += [b"", b"\xff" * 20]
        offsets = np.zeros(len(probes) + 1, np.int64)
        np.cumsum([len(probe) for probe in probes], out=offsets[1:])
        rank = {k: i for i, k in enumerate(keys)}
        found = file.find(np.frombuffer(b"".join(probes), np.uint8), offsets)
        assert found.tolist() == [rank.get(probe, -1) for probe in probes]
        for probe in probes[::29]:
            assert file.lower_bound(probe) == sum(k < probe for k in keys)
        data, offsets = file.keys(1000, 1003)
        assert [bytes(data[a:b]) for a, b in pairwise(offsets)] == keys[1000:1003]
        assert file.split_keys(2048) == [keys[2048], keys[4096]]
        assert file.min_key == keys[0] and file.max_key == keys[-1]
        file.verify()


@pytest.mark.parametrize("key", ["int", "composite"])
def test_search_by_number_finds_what_search_by_key_finds(key: str) -> None:
    rng = np.random.default_rng(10)
    case = make_case(rng, 9000, key, types=[])
    fs = BytesFileSystem()
    case.write(fs, "a")
    with RowsFile(fs, "a") as file:
        for count in (1, 3, 500, 4000):
            parts = []
            for id_ in case.key_ids:
                spec = case.specs[id_]
                if spec.type.width:
                    values = case.columns[id_].take(rng.integers(0, 9000, count)).values.view("<i8")
                    values = values + rng.integers(-1, 2, count)
                    parts.append((spec.type, ColumnBuffers(8, count, values.view(np.uint8), None, None)))
                else:
                    hosts = [f"host-{i}" for i in rng.integers(-1, 7, count)]
                    parts.append((spec.type, column(hosts, "string")))
            probes = encode_keys(parts, count)
            found = file.find(probes.data, probes.offsets)
            file._keys._by_number = False
            assert (file.find(probes.data, probes.offsets) == found).all()
            file._keys._by_number = True
            assert count < 500 or 0 < (found >= 0).sum() < count


@pytest.mark.parametrize("rows", [900, 3 * PAGE_ROWS + 5])
def test_zones_enclose_their_values(rows: int, seed: int) -> None:
    rng = np.random.default_rng((seed, rows))
    case = make_case(rng, rows)
    fs = BytesFileSystem()
    meta = case.write(fs, "a")
    with RowsFile(fs, "a") as file:
        for id_, spec in case.specs.items():
            zones, page_rows = file.zones(id_), 1 << file.columns[id_].page_bits
            assert len(zones) == math.ceil(rows / page_rows)
            for number, zone in enumerate([*zones, file.zone(id_)]):
                if number < len(zones):
                    lower, upper = number * page_rows, min((number + 1) * page_rows, rows)
                else:
                    lower, upper = 0, rows
                _check_zone(zone, case.arrow(id_, lower, upper), spec.type)
            statistics = meta.statistics
            if isinstance(statistics, StatisticsRef):
                statistics = read_statistics(fs, "a", statistics)
            assert statistics.stored_bytes(id_) > 0
            assert statistics.zone(id_) == file.zone(id_)


def _check_zone(zone: Zone, values: pa.Array, type_: ColumnType) -> None:
    assert zone.rows == len(values) and zone.null_count == values.null_count
    found: list[Any] = values.drop_null().to_pylist()
    if type_.name == "string":
        found = [value.encode() for value in found]
    if type_.name.startswith("float"):
        assert zone.nan_count == sum(math.isnan(value) for value in found)
        found = [value for value in found if not math.isnan(value)]
    if not found:
        assert zone.empty and zone.minimum is None and zone.maximum is None
        return
    low, high = zone.bounds(type_)
    if type_.width == 0:
        low, high = zone.minimum, zone.maximum
        assert low is not None
        assert low <= min(found) and (high is None or high >= max(found))
        assert zone.minimum_exact == (low == min(found)) and len(low) <= 32
        assert high is None or (zone.maximum_exact == (high == max(found)) and len(high) <= 32)
    else:
        assert (low, high) == (min(found), max(found))


def test_a_run_of_missing_pages_is_one_read() -> None:
    case = make_case(np.random.default_rng(4), 5 * PAGE_ROWS, "int", types=["float64"])
    fs = BytesFileSystem()
    case.write(fs, "a")
    cache = PageCache(1 << 24)
    file = RowsFile(fs, "a", cache)
    disk = fs.opened[-1]
    file.read(1, 0, 1)  # the page index, and a page
    before = disk.reads
    file.read(1, 0, 5 * PAGE_ROWS)
    assert disk.reads == before + 1
    file.read(1, 100, 4 * PAGE_ROWS)
    assert disk.reads == before + 1
    statistics = cache.statistics()
    assert statistics.pages == 5 and statistics.hits == 5 and statistics.misses == 5
    second = RowsFile(fs, "a", cache)
    file.close()
    assert cache.statistics().pages == 5
    second.close()
    assert cache.statistics().pages == 0 and cache.statistics().bytes == 0
    with pytest.raises(Closed):
        file.read(1, 0, 1)


def test_cache_forgets_the_least_recently_used() -> None:
    cache = PageCache(10_000)
    reader = cache.attach(b"x" * 16)
    token = reader.token
    for offset in range(8):
        cache.put(token, offset, b"y" * 1000)
        cache.get_many(token, [0])
    kept = [offset for offset in range(8) if cache.get_many(token, [offset])[0] is not None]
    assert kept[0] == 0 and kept[1:] == list(range(8 - len(kept) + 1, 8))
    assert cache.statistics().bytes <= 10_000
    cache.put(token, 99, b"z" * 9000)
    assert cache.get_many(token, [99]) == [None], "one page must not push out all others"


def test_columns_without_keys_make_a_file() -> None:
    case = make_case(np.random.default_rng(5), 3000, types=["int32", "string"])
    fs = BytesFileSystem()
    picked = [(case.specs[id_], case.columns[id_]) for id_ in (2, 3)]
    meta = write_rows_file(fs, "a", RowsFileSpec(picked))
    assert meta.bloom_bytes == 0
    with RowsFile(fs, "a") as file:
        assert same(file.read(2, 0, 3000).to_arrow(case.specs[2].type), case.arrow(2))
        file.verify()
        with pytest.raises(InvalidArgument):
            file.keys(0, 1)


def test_rows_out_of_order_are_refused() -> None:
    case = make_case(np.random.default_rng(6), 10, "int", types=[])
    case.keys = Keys(case.keys.data[::-1].copy(), case.keys.offsets)
    fs = BytesFileSystem()
    with pytest.raises(AssertionError):
        case.write(fs, "a")
    assert not fs.files


def test_a_file_that_its_manifest_does_not_mean_is_found() -> None:
    fs = BytesFileSystem()
    meta = make_case(np.random.default_rng(7), 10).write(fs, "a")
    with pytest.raises(Corruption, match="manifest"):
        RowsFile(fs, "a", size=meta.size + 1)
    with pytest.raises(Corruption, match="manifest"):
        RowsFile(fs, "a", footer_crc=meta.footer_crc ^ 1)


def test_compression_is_kept_only_where_it_saves() -> None:
    rng = np.random.default_rng(9)
    rows = 20_000
    text = [f"GET /index.html?session={i * 7919 % 1_000_003} HTTP/1.1" for i in range(rows)]
    noise = [rng.bytes(30) for _ in range(rows)]
    sizes = {}
    for name, values, type_name in (("text", text, "string"), ("noise", noise, "binary")):
        for codec in ("auto", "zstd", "none"):
            spec = ColumnSpec(0, ColumnType.parse(type_name), False, compression=codec)
            fs = BytesFileSystem()
            data = column(values, type_name)
            meta = write_rows_file(fs, "a", RowsFileSpec([(spec, data)]))
            sizes[name, codec] = meta.size
            with RowsFile(fs, "a") as file:
                assert same(file.read(0, 0, rows).to_arrow(spec.type), data.to_arrow(spec.type))
                file.verify()
    assert sizes["text", "auto"] < 0.7 * sizes["text", "none"]
    assert sizes["text", "zstd"] < sizes["text", "auto"]
    assert sizes["noise", "auto"] == sizes["noise", "none"]


def test_an_empty_column_needs_no_page() -> None:
    fs = BytesFileSystem()
    spec = ColumnSpec(0, ColumnType.parse("string"), True)
    empty = ColumnBuffers(0, 0, np.empty(0, np.uint8), np.zeros(1, np.int32), None)
    write_rows_file(fs, "a", RowsFileSpec([(spec, empty)]))
    with RowsFile(fs, "a") as file:
        assert file.rows == 0 and file.read(0, 0, 0).length == 0 and file.zones(0) == []
        file.verify()


def test_an_open_file_outlives_its_name(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    path = str(tmp_path / "a.rows")
    case = make_case(np.random.default_rng(11), 20_000, types=["float64", "string"])
    meta = case.write(fs, path)
    assert Path(path).stat().st_size == meta.size
    with pytest.raises(FileExistsError):
        case.write(fs, path)
    assert Path(path).exists(), "a name that was taken is not ours to remove"
    with RowsFile(fs, path, size=meta.size, footer_crc=meta.footer_crc) as file:
        fs.unlink(path)
        for id_, spec in case.specs.items():
            assert same(file.read(id_, 0, 20_000).to_arrow(spec.type), case.arrow(id_))
        file.verify()


def test_zones_rule_out_only_pages_without_a_match(seed: int) -> None:
    rng = np.random.default_rng((seed, 13))
    rows = 2 * PAGE_ROWS + 50
    case = make_case(rng, rows)
    fs = BytesFileSystem()
    case.write(fs, "a")
    with RowsFile(fs, "a") as file:
        for id_, spec in case.specs.items():
            values = case.arrow(id_).to_pylist()
            for picked in rng.integers(0, rows, 4).tolist():
                value = values[picked]
                pages, page = file.zone_table(id_), picked >> file.columns[id_].page_bits
                if value is None:
                    assert pages.may_be_null(True)[page], picked
                elif value == value:
                    term = Term(id_, str(rng.choice(["eq", "le", "ge"])), value, spec.type)
                    assert pages.may_hold(passing_all([term]))[page], (term, picked)
        low = min(value.as_py() for value in case.arrow(1, 0, 1 << file.columns[1].page_bits))
        assert not file.zone_table(1).may_hold(passing_all([Term(1, "lt", low, case.specs[1].type)]))[0]
