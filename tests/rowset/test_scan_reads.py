"""What a scan reads of files: pages of wide strings once, also where they are too many for one batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.pages.container import FileReader
from kudu_core.rowset.scan import filescan


def test_a_scan_reads_each_page_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a batch is too large, which the sizes in the file say before a page is read."""
    monkeypatch.setattr(filescan, "MOST_BYTES", 256 << 10)
    rng = np.random.default_rng(3)
    cells = [rng.bytes(20_000) for _ in range(100)]
    schema = pa.schema([("k", pa.int64()), ("b", pa.binary())])
    with kc.create_table(path, schema, ["k"], options={"maintenance": "manual"}) as table:
        table.insert({"k": list(range(100)), "b": cells})
        table.flush()
    places: list[tuple[str, int]] = []
    one, more = FileReader.read_at, FileReader.read_adjacent

    def read_at(file: FileReader, offset: int, length: int) -> bytes:
        places.append((file.path, offset))
        return one(file, offset, length)

    def read_adjacent(file: FileReader, sizes: Sequence[int], offset: int) -> list[bytes]:
        if len(sizes) > 1:
            places.extend((file.path, offset + sum(sizes[:n])) for n in range(len(sizes)))
        return more(file, sizes, offset)

    with kc.open_table(path, options={"page_cache_bytes": 0}) as table:
        monkeypatch.setattr(FileReader, "read_at", read_at)
        monkeypatch.setattr(FileReader, "read_adjacent", read_adjacent)
        batches = list(table.scan(["b"]))
    assert [cell for batch in batches for cell in batch.column(0).to_pylist()] == cells
    assert len(batches) > 7, "more than one batch has room for"
    twice = len(places) - len(set(places))
    assert len(places) > 30 and twice <= len(batches), "at most the pages in which a batch ends"
