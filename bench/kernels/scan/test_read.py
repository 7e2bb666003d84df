"""A scan's kernels over 16 pages: testing a column; reading columns of all rows, some, or small ranges."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.pages import blocks
from kudu_core._ext.pages.holder import PageHolder
from kudu_core._ext.scan.cell_set import CellSet
from kudu_core._ext.scan.column import ScanColumn
from kudu_core._ext.scan.read import read
from kudu_core._ext.scan.selection import Selection

PAGE = 16_384
ROWS = 16 * PAGE
CELLS, CODES = 0, 2


def column(values: np.ndarray, kind: int, words: list[bytes] | None = None, valid=None) -> ScanColumn:
    width = values.dtype.itemsize
    pages = []
    for i in range(0, ROWS, PAGE):
        bits = None if valid is None else np.packbits(valid[i : i + PAGE], bitorder="little")
        pages.append(blocks.encode_fixed(values[i : i + PAGE].view(np.uint8), width, kind, bits))
    place = object()
    named = None
    if words is not None:
        offsets = np.cumsum([0, *map(len, words)]).astype(np.int32)
        named = (offsets, np.frombuffer(b"".join(words), np.uint8))
    return ScanColumn(
        PageHolder(), lambda numbers: [(pages[n], (place, n)) for n in numbers], ROWS, width, named
    )


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(0)
    hosts = [b"host-%05d" % k for k in range(ROWS // 4096)]
    statuses = sorted([b"ok", b"warn", b"error", b"starting", b"stopping", b"idle", b"busy", b"lost"])
    noted = rng.random(ROWS) < 0.1
    return {
        "host": column(np.repeat(np.arange(len(hosts), dtype=np.uint8), 4096), 0, hosts),
        "ts": column(np.tile(np.arange(4096) * 1000, len(hosts)), 1),
        "load": column(np.round(rng.normal(50, 10, ROWS), 2), 2),
        "bytes": column(rng.integers(0, 1 << 36, ROWS), 1),
        "status": column(rng.integers(0, 8, ROWS).astype(np.uint8), 0, statuses),
        "note": column(
            rng.integers(0, 50, ROWS).astype(np.uint8), 0, [b"note %02d" % k for k in range(50)], noted
        ),
    }


class Rooms:
    """The same memory again and again, as Arrow's pool gives it."""

    def __init__(self) -> None:
        self.rooms: dict[int, np.ndarray] = {}

    def __call__(self, size: int) -> np.ndarray:
        return self.rooms.setdefault(size, np.zeros(size, np.uint8))


def whole() -> Selection:
    return Selection(np.array([[0, ROWS]]), ROWS)


def status_is(made, code: int) -> Selection:
    one = np.array([code], np.uint64)
    selection = whole()
    selection.test(made["status"], CellSet(3, 1, one, one, False, 8))
    return selection


@pytest.mark.benchmark(group="kernel: scans")
@pytest.mark.parametrize("name", ["host", "ts", "load", "bytes", "status", "note"])
def test_read_a_column(benchmark, made, name):
    benchmark.extra_info["rows"] = ROWS
    rooms = Rooms()
    (found,) = benchmark(lambda: read(whole(), [made[name]], b"\0", rooms))
    assert found is not None


@pytest.mark.benchmark(group="kernel: scans")
def test_read_a_copy_of_as_many_doubles(benchmark):
    """What memory alone costs."""
    benchmark.extra_info["rows"] = ROWS
    values, out = np.arange(ROWS, dtype=float), np.zeros(ROWS)
    benchmark(np.copyto, out, values)
    assert out[-1] == ROWS - 1


@pytest.mark.benchmark(group="kernel: scans")
def test_read_codes(benchmark, made):
    benchmark.extra_info["rows"] = ROWS
    rooms = Rooms()
    (found,) = benchmark(lambda: read(whole(), [made["status"]], b"\2", rooms))
    assert found is not None


@pytest.mark.benchmark(group="kernel: scans")
def test_select_words(benchmark, made):
    benchmark.extra_info["rows"] = ROWS
    chosen = benchmark(lambda: status_is(made, 3).chosen)
    assert 0.1 * ROWS < chosen < 0.15 * ROWS


@pytest.mark.benchmark(group="kernel: scans")
def test_select_doubles(benchmark, made):
    benchmark.extra_info["rows"] = ROWS

    def run() -> int:
        selection = whole()
        low = int(np.float64(60.0).view(np.uint64)) ^ 1 << 63
        ends = np.array([low], np.uint64), np.array([low + (1 << 52)], np.uint64)
        selection.test(made["load"], CellSet(2, 8, *ends, False))
        return int(selection.chosen)

    assert 0.1 * ROWS < benchmark(run) < 0.2 * ROWS


@pytest.mark.benchmark(group="kernel: scans")
def test_select_words_and_read_three_columns(benchmark, made):
    benchmark.extra_info["rows"] = ROWS
    rooms = Rooms()
    columns = [made["load"], made["bytes"], made["ts"]]
    found = benchmark(lambda: read(status_is(made, 3), columns, bytes(3), rooms))
    assert None not in found


@pytest.mark.benchmark(group="kernel: scans")
def test_read_five_columns_of_small_ranges(benchmark, made):
    benchmark.extra_info["rows"] = 50 * (ROWS // 1000)
    lower = np.arange(0, ROWS - 1000, 1000, dtype=np.int64)
    ranges = np.stack([lower, lower + 50], axis=1)
    rooms = Rooms()
    columns = [made[name] for name in ("host", "ts", "load", "bytes", "status")]
    found = benchmark(lambda: read(Selection(ranges, ROWS), columns, bytes(5), rooms))
    assert None not in found
