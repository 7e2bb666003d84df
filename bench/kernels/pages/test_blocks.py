"""Pages: encode, decode and single cells of one million values, against copying the same bytes.

``gigabytes`` are of plain values, so rates compare with ``test_copy``.  Buffers are reused: what the
first touch of fresh memory costs is not measured here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.pages import blocks

PAGE_ROWS = 16_384
PAGES = 64
ROWS = PAGES * PAGE_ROWS

UNSIGNED, SIGNED, FLOAT = 0, 1, 2

Values = npt.NDArray[Any]


def two_decimals(rng: np.random.Generator) -> Values:
    return np.round(50 + np.cumsum(rng.normal(0, 0.05, ROWS)), 2)


def with_nan(rng: np.random.Generator) -> Values:
    return np.where(rng.random(ROWS) < 0.01, np.nan, two_decimals(rng))


def jumps(rng: np.random.Generator) -> Values:
    return np.cumsum(np.where(rng.random(ROWS) < 0.01, 1 << 29, rng.integers(0, 32, ROWS)))


SERIES: dict[str, tuple[int, Callable[[np.random.Generator], Values]]] = {
    "times, 1 ms jitter": (SIGNED, lambda rng: np.arange(ROWS) * 10_000_000 + rng.integers(0, 1000, ROWS)),
    "counter, 1% jumps": (SIGNED, jumps),
    "int64 of 36 bits": (SIGNED, lambda rng: rng.integers(0, 1 << 36, ROWS)),
    "int64 lognormal": (SIGNED, lambda rng: np.exp(rng.normal(10, 1.2, ROWS)).astype(np.int64)),
    "float64, 2 decimals": (FLOAT, two_decimals),
    "float64, 2 decimals, 1% NaN": (FLOAT, with_nan),
    "float64, full entropy": (FLOAT, lambda rng: rng.normal(0, 1, ROWS)),
    "float32, 2 decimals": (FLOAT, lambda rng: two_decimals(rng).astype(np.float32)),
    "int32 of 20 bits": (SIGNED, lambda rng: rng.integers(0, 1 << 20, ROWS).astype(np.int32)),
    "codes of 1,000 words": (UNSIGNED, lambda rng: rng.integers(0, 1000, ROWS).astype(np.uint16)),
    "codes of 8 words": (UNSIGNED, lambda rng: rng.integers(0, 8, ROWS).astype(np.uint8)),
}


class Pages:
    """A series, cut into pages, encoded, with room to decode it to."""

    def __init__(self, name: str, null_share: float = 0) -> None:
        rng = np.random.default_rng(1)
        self.kind, make = SERIES[name]
        values = make(rng)
        self.width = values.itemsize
        self.raw = values.view(np.uint8)
        self.out = np.zeros_like(self.raw)
        size = PAGE_ROWS * self.width
        self.parts = [self.raw[i : i + size] for i in range(0, len(self.raw), size)]
        self.rooms = [self.out[i : i + size] for i in range(0, len(self.raw), size)]
        self.bits: npt.NDArray[np.uint8] | None = None
        if null_share:
            self.bits = np.packbits(rng.random(PAGE_ROWS) >= null_share, bitorder="little")
        self.payloads = self.encode()

    def encode(self) -> list[bytes]:
        return [blocks.encode_fixed(part, self.width, self.kind, self.bits) for part in self.parts]

    def decode(self) -> None:
        for payload, room in zip(self.payloads, self.rooms, strict=True):
            blocks.decode_fixed(payload, self.width, room, None, 0, PAGE_ROWS)

    def describe(self, benchmark: Any) -> None:
        benchmark.extra_info |= {
            "rows": ROWS,
            "gigabytes": len(self.raw) / 1e9,
            "bits a value": round(8 * sum(map(len, self.payloads)) / ROWS, 2),
        }


@pytest.mark.benchmark(group="kernel: pages, decode")
def test_copy(benchmark: Any) -> None:
    """The ceiling: the same bytes, copied page by page."""
    pages = Pages("int64 of 36 bits")
    pages.describe(benchmark)

    def copy() -> None:
        for part, room in zip(pages.parts, pages.rooms, strict=True):
            np.copyto(room, part)

    benchmark(copy)


@pytest.mark.benchmark(group="kernel: pages, decode")
@pytest.mark.parametrize("name", SERIES)
def test_decode(benchmark: Any, name: str) -> None:
    pages = Pages(name)
    pages.describe(benchmark)
    benchmark(pages.decode)
    assert pages.out.tobytes() == pages.raw.tobytes()


@pytest.mark.benchmark(group="kernel: pages, decode with 10% nulls")
@pytest.mark.parametrize("name", ["int64 of 36 bits", "float64, 2 decimals", "codes of 8 words"])
def test_decode_nulls(benchmark: Any, name: str) -> None:
    pages = Pages(name, 0.1)
    pages.describe(benchmark)
    benchmark(pages.decode)


@pytest.mark.benchmark(group="kernel: pages, encode")
@pytest.mark.parametrize("name", SERIES)
def test_encode(benchmark: Any, name: str) -> None:
    pages = Pages(name)
    pages.describe(benchmark)
    assert benchmark(pages.encode) == pages.payloads


@pytest.mark.benchmark(group="kernel: pages, 1,000 single cells")
@pytest.mark.parametrize("name", ["int64 of 36 bits", "float64, 2 decimals", "times, 1 ms jitter"])
def test_cells(benchmark: Any, name: str) -> None:
    pages = Pages(name)
    rows = np.sort(np.random.default_rng(2).integers(0, PAGE_ROWS, 1000))
    out = np.zeros(1000 * pages.width, np.uint8)
    benchmark.extra_info |= {"rows": 1000}
    benchmark(lambda: blocks.cells_fixed(pages.payloads[3], pages.width, rows, out))
    np.testing.assert_array_equal(out.view(np.int64), pages.parts[3].view(np.int64)[rows])


def strings(kind: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    rng = np.random.default_rng(3)
    if kind == "status":
        words = [b"ok", b"warn", b"error", b"fatal", b"unknown", b"pending", b"retry", b"closed"]
        cells = [words[k] for k in rng.integers(0, 8, 4 * PAGE_ROWS)]
    elif kind == "host":
        cells = sorted(b"host-%05d" % k for k in rng.integers(0, 1000, 4 * PAGE_ROWS))
    else:
        cells = [b"host-%05d\0\0%08d" % (k // 512, k) for k in range(4 * PAGE_ROWS)]
    offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    return offsets, np.frombuffer(b"".join(cells), np.uint8)


@pytest.mark.benchmark(group="kernel: pages of strings")
@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("verb", ["encode", "decode"])
def test_strings(benchmark: Any, verb: str, prefix: bool) -> None:
    offsets, data = strings("key")
    page = offsets[: PAGE_ROWS + 1]
    payload = blocks.encode_binary(page, data, None, prefix)
    benchmark.extra_info |= {"rows": PAGE_ROWS, "bits a value": 8 * len(payload) / PAGE_ROWS}
    if verb == "encode":
        assert benchmark(lambda: blocks.encode_binary(page, data, None, prefix)) == payload
    else:
        found, _, _ = benchmark(lambda: blocks.decode_binary(payload, 0, PAGE_ROWS))
        np.testing.assert_array_equal(found, page)


@pytest.mark.benchmark(group="kernel: dictionaries, 65,536 rows")
@pytest.mark.parametrize("kind", ["status", "host"])
@pytest.mark.parametrize("verb", ["build", "expand"])
def test_dictionary(benchmark: Any, verb: str, kind: str) -> None:
    offsets, data = strings(kind)
    built = blocks.dictionary_build(offsets, data, None, 65536)
    assert built is not None
    codes, word_offsets, word_data = built
    benchmark.extra_info |= {"rows": len(codes)}
    if verb == "build":
        benchmark(lambda: blocks.dictionary_build(offsets, data, None, 65536))
        return
    room = np.zeros(len(data), np.uint8)
    raw = codes.view(np.uint8)
    benchmark(
        lambda: blocks.dictionary_expand(
            raw, codes.itemsize, word_offsets, word_data, None, lambda size: room[:size]
        )
    )
    assert room.tobytes() == data.tobytes()


@pytest.mark.benchmark(group="kernel: zones of a page")
@pytest.mark.parametrize("name", ["int64 of 36 bits", "float64, 2 decimals"])
def test_zone(benchmark: Any, name: str) -> None:
    pages = Pages(name)
    benchmark.extra_info |= {"rows": PAGE_ROWS}
    benchmark(lambda: blocks.zone_fixed(pages.parts[0], pages.width, pages.kind))
