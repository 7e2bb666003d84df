"""The curve of page sizes: ``python -m bench.page_sizes [--shape narrow] [--rows 1000000]
[--compression zstd]``.

One table for each size of pages, all in one process, measured in turns: the best CPU time of a scan of one
column and of all, of ``get`` and of ``get_many`` of 1,000 keys, with all pages in the cache; bytes on disk;
and, where a quarter of the table fits into the cache, the bytes that a ``get`` reads and its CPU time.
Ratios are to pages of 16,384 rows.  What is measured is written up in
docs/decisions/0006-pages-bounded-in-bytes.md.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import kudu_core as kc
from kudu_core.cfile.columns import page_size, writer
from kudu_core.cfile.pages.page import BLOCK_BITS, PAGE_BITS
from kudu_core.common.rows.rowblock import ColumnBuffers

SIZES = [16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 1 << 40]
ROUNDS = 7


def narrow(rows: int) -> pa.Table:
    """The shape of the speed table, in the order of keys."""
    rng = np.random.default_rng(1)
    at = np.arange(rows)
    words = pa.array(["ok", "warn", "error", "starting", "stopping", "idle", "busy", "lost"])
    return pa.table(
        {
            "k": at,
            "load": np.round(rng.normal(50, 10, rows), 2),
            "full": rng.normal(0, 1, rows),
            "bytes": rng.integers(0, 1 << 36, rows),
            "small": rng.integers(0, 1 << 12, rows).astype(np.int32),
            "status": words.take(pa.array(rng.integers(0, 8, rows))),
            "id": [f"{x:016x}" for x in rng.integers(0, 1 << 62, rows)],
        }
    )


def strings(columns: int, size: int) -> Callable[[int], pa.Table]:
    def make(rows: int) -> pa.Table:
        rng = np.random.default_rng(2)
        words = np.array([rng.bytes(8).hex()[: int(n)] for n in rng.integers(3, 12, 4096)])
        made: dict[str, Any] = {"k": np.arange(rows)}
        for number in range(columns):
            text = " ".join(words[rng.integers(0, 4096, 1 << 17)])
            starts = rng.integers(0, len(text) - size, rows)
            made[f"v{number}"] = [text[i : i + size] for i in starts.tolist()]
        return pa.table(made)

    return make


SHAPES: dict[str, tuple[Callable[[int], pa.Table], int]] = {
    "narrow": (narrow, 1_000_000),
    "10 x 100 B": (strings(10, 100), 60_000),
    "1 KB": (strings(1, 1000), 50_000),
    "10 KB": (strings(1, 10_000), 6_000),
    "100 KB": (strings(1, 100_000), 600),
}


def chooser(size: int) -> Callable[..., int]:
    """Pages of about so many bytes, whether of strings or of numbers."""

    def choose(column: ColumnBuffers, role: str, _compression: str, *, with_dictionary: bool) -> int:
        if column.width:
            fitting = max(BLOCK_BITS, min((size // column.width).bit_length() - 1, PAGE_BITS))
            return max(fitting, page_size.least_page_bits(role, column.width))
        names = ("PAGE_BYTES", "LARGE_PAGE_BYTES", "UNIT_BYTES")
        kept = [getattr(page_size, name) for name in names]
        for name in names:
            setattr(page_size, name, size)
        try:
            return page_size.choose_page_bits(column, role, with_dictionary=with_dictionary)
        finally:
            for name, value in zip(names, kept, strict=True):
                setattr(page_size, name, value)

    return choose


def made(folder: Path, size: int, rows: pa.Table, compression: str) -> Path:
    path = folder / f"{size}"
    writer.choose_page_bits = chooser(size)
    columns = [
        kc.Column(field.name, field.type, field.name != "k", compression=compression) for field in rows.schema
    ]
    with kc.create_table(path, columns, ["k"], options={"durability": "none"}) as table:
        table.insert(rows)
        table.flush()
    return path


def timed(call: Callable[[], Any], times: int = 1) -> float:
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def works(table: Any, rows: int, column: str) -> Iterator[tuple[str, Callable[[], Any], int]]:
    pick = random.Random(3)
    some = [pick.randrange(rows) for _ in range(1000)]
    keys = iter(some * 100)
    yield "scan 1", lambda: [len(b) for b in table.scan([column])], 1
    yield "scan all", lambda: [len(b) for b in table.scan()], 1
    yield "get", lambda: table.get(next(keys)), 200
    yield "get_many", lambda: table.get_many(some), 2


class Counted:
    """Bytes and calls of reads of this process while it is entered, as the system counts them."""

    def __enter__(self) -> Counted:
        self._before = _read_so_far()
        return self

    def __exit__(self, *_: object) -> None:
        before, after = self._before, _read_so_far()
        self.bytes, self.calls = after[0] - before[0], after[1] - before[1]


def _read_so_far() -> tuple[int, int]:
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"]), int(counts["syscr"])


def beyond(path: Path, rows: int, disk: int) -> tuple[float, float, float]:
    """Bytes, calls and seconds of a ``get`` where a quarter of the table fits into the cache."""
    with kc.open_table(path, mode="r", options={"page_cache_bytes": max(disk // 4, 1 << 20)}) as table:
        pick = random.Random(4)
        for _ in range(100):
            table.get(pick.randrange(rows))
        with Counted() as counted:
            seconds = timed(lambda: table.get(pick.randrange(rows)), 100)
        return counted.bytes / 100, counted.calls / 100, seconds


def curve(shape: str, rows: int, sizes: list[int], compression: str) -> None:
    made_of, usual = SHAPES[shape]
    data = made_of(rows or usual)
    rows = data.num_rows
    with tempfile.TemporaryDirectory() as folder:
        paths = [made(Path(folder), size, data, compression) for size in sizes]
        disks = [sum(f.stat().st_size for f in path.rglob("*.rows")) for path in paths]
        options = {"page_cache_bytes": 1 << 30}
        tables = [kc.open_table(path, mode="r", options=options) for path in paths]
        best: dict[tuple[str, int], float] = {}
        column = data.schema.names[-1] if shape != "narrow" else "full"
        for _ in range(ROUNDS):
            for at, table in enumerate(tables):
                for name, call, times in works(table, rows, column):
                    spent = timed(call, times)
                    best[name, at] = min(best.get((name, at), spent), spent)
        print(f"\n{shape}, {rows:,} rows; ratios to 16,384 rows a page\n")
        names = ("scan 1", "scan all", "get", "get_many")
        print("| bytes a page | MB on disk |", " | ".join(names), "| get beyond: us | KB read | reads |")
        print("| --- " * (len(names) + 5) + "|")
        for at, size in enumerate(sizes):
            tables[at].close()
            some = [f"{best[name, at] / best[name, len(sizes) - 1]:.2f}" for name in names]
            if at == len(sizes) - 1:
                some = [f"{best[name, at] * 1e6:,.0f} us" for name in names]
            read, calls, seconds = beyond(paths[at], rows, disks[at])
            label = f"{size >> 10} KiB" if size < 1 << 40 else "16,384 rows"
            print(
                f"| {label} | {disks[at] / 1e6:.1f} |",
                " | ".join(some),
                f"| {seconds * 1e6:,.0f} | {read / 1e3:,.1f} | {calls:.1f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", action="append", choices=list(SHAPES))
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--compression", default="auto", choices=["auto", "lz4", "zstd", "none"])
    options = parser.parse_args()
    for shape in options.shape or SHAPES:
        curve(shape, options.rows, SIZES, options.compression)


if __name__ == "__main__":
    main()
