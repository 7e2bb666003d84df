"""What a scan does not read: rowsets, ranges, pages and keys that cannot matter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

import kudu_core as kc
from tests.support.fs.counting import counting, reads
from tests.support.tables import Make
from tests.table.read.conftest import PAGE


def test_explain_tells_what_each_level_prunes(make: Make) -> None:
    table = make(
        pa.schema([("h", pa.string()), ("k", pa.int64()), ("v", pa.int64())]),
        ("h", "k"),
        partition_by=[kc.HashPartition("h", 4), kc.RangePartition("k", [(0, 1000), (1000, None)])],
        ingest_threshold_rows=100,
    )
    for start in (0, 200, 400):  # three rowsets in one tablet
        table.insert(
            {"h": ["a"] * 200, "k": np.arange(start, start + 200), "v": np.arange(start, start + 200)}
        )

    def shape(**arguments: Any) -> tuple[int, int, int]:
        e = table.scan(**arguments).explain()
        return e.tablets - e.tablets_pruned, e.rowsets - e.rowsets_pruned, e.pages - e.pages_pruned

    assert shape() == (8, 3, 3)
    assert shape(where=[("h", "=", "a")]) == (2, 3, 3), "the hash says which bucket"
    assert shape(where=[("h", "=", "a"), ("k", "<", 500)])[0] == 1, "the range too"
    assert shape(where=[("h", "=", "a"), ("k", "<", 150)]) == (1, 1, 1), "bounds of rowsets"
    assert shape(where=[("v", ">=", 450)])[2] == 1, "zone maps"
    assert shape(where=[("v", ">", 10_000)])[2] == 0
    assert shape(key_range=(("a", 250), ("a", 260))) == (1, 1, 1), "bounds say which range of k"
    assert shape(where=[("h", "in", ["a", "b"]), ("k", ">", 5000)])[1] == 0
    text = str(table.scan(["v"], where=[("h", "=", "a"), ("v", "<", 5)]).explain())
    for line in ("columns   v", "tablets   2 of 8 read", "pages     1 of"):
        assert line in text
    assert "predicate" in text and "pruned by" in text


def test_changes_keep_zone_maps_from_lying(big: kc.Table) -> None:
    where = pc.field("v") < 50

    def pages() -> int:
        e = big.scan(where=where).explain()
        return e.pages - e.pages_pruned

    assert pages() == 1
    big.update({"k": [3 * PAGE], "w": [-1]})
    assert pages() == 1, "another column was changed"
    big.update({"k": [3 * PAGE], "v": [7]})
    assert big.scan(["k"], where=where, order="key").to_table()["k"].to_pylist() == [0, 1, 2, 3, 4, 3 * PAGE]
    big.flush()
    assert big.count(where) == 6


def test_what_is_pruned_is_not_read(big: kc.Table, path: Path) -> None:
    big.close()
    fs, reader = counting(path)

    def cost(act: Any) -> int:
        before = reads(fs)
        act()
        return reads(fs) - before

    with reader:
        reader.scan(["v"]).to_table()  # opens what there is to open
        assert cost(lambda: reader.scan(["v"])) == 0, "a scan that nobody iterates reads nothing"
        assert cost(reader.count) == 0, "the number of rows is known"
        assert cost(lambda: reader.scan(where=[("v", "<", 10**9)]).explain()) <= 1
        whole = cost(lambda: reader.scan(["v", "w", "s"]).to_table())
        one = cost(lambda: reader.scan(["v"]).to_table())
        assert one < whole, "columns that nobody asked for are not read"
        assert cost(lambda: reader.scan(["v", "w", "s"], where=[("v", "<", 5)]).to_table()) < whole
        assert cost(lambda: reader.scan(["s"], where=[("v", ">", 10**9)]).to_table()) == 0, "zone maps"
        assert cost(lambda: reader.scan(["s"], where=[("k", "<", 0)]).to_table()) == 0, "bounds"
        assert cost(lambda: reader.scan(["s"], where=[("w", "=", -1)]).to_table()) == 0
        # Predicate columns first: nothing of the others where no row was selected.
        no_row = [("w", ">", 5), ("w", "<", 6)]
        assert cost(lambda: reader.scan(["s", "v"], where=no_row).to_table()) == cost(
            lambda: reader.scan(["w"], where=no_row).to_table()
        )
        pages = cost(lambda: reader.scan(["v"], batch_rows=PAGE).to_table())
        assert cost(lambda: reader.scan(["v"], limit=1).to_table()) * 5 <= pages, "the first one is enough"
        assert cost(lambda: reader.get(12_345, ["v"])) <= 8
        assert cost(lambda: reader.get(-5)) == 0, "outside all bounds"


def test_the_cache_keeps_pages(big: kc.Table, path: Path) -> None:
    big.close()
    fs, reader = counting(path, {"page_cache_bytes": 64 << 20})
    with reader:
        first = reader.scan().to_table()
        before = reads(fs)
        assert reader.scan().to_table().equals(first)
        assert reads(fs) == before


def test_blooms_keep_absent_keys_from_files(make: Make, path: Path) -> None:
    table = make(pa.schema([("k", pa.int64()), ("v", pa.int64())]), ingest_threshold_rows=10)
    for part in range(8):  # eight rowsets with the same bounds
        table.insert({"k": np.arange(part, 80_000, 80), "v": np.arange(1000)})
    table.close()
    fs, reader = counting(path, {"page_cache_bytes": 16 << 20})
    with reader:
        reader.get_many(np.arange(10, 79_000, 80).tolist())
        before = reads(fs)
        missing = reader.get_many((np.arange(20, 79_000, 80)).tolist(), ["v"])
        assert not any(missing["_found"].to_pylist())
        assert reads(fs) - before < 200, "of 8,000 questions about single rowsets"
