"""What compactions replace gives its room back at once, unless somebody else reads (protocol E4)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import kudu_core as kc
from tests.support.inside import tablets_of

ROWS, ROUNDS = 40_000, 20

READ = """
import sys
import kudu_core as kc
table = kc.open_table(sys.argv[1])
rows = table.count()
print(rows, flush=True)
sys.stdin.readline()
print(table.scan().to_table().num_rows, flush=True)
"""


def on_disk(path: Path) -> int:
    """Bytes of the data files."""
    return sum(os.stat(file).st_size for file in path.glob("tablets/*/*-*"))


def named_bytes(table: kc.Table) -> int:
    """Bytes of those that manifests name."""
    return sum(meta.size_bytes for tablet in tablets_of(table) for meta in tablet.rowset_metas)


def rows_of(rng: np.random.Generator, ids: np.ndarray) -> pa.Table:
    return pa.table({"id": ids, "a": rng.normal(size=len(ids)), "b": rng.integers(0, 1000, len(ids))})


def test_after_compact_the_disk_holds_one_copy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "t"
    options = {"maintenance": "manual", "durability": "none", "ingest_threshold_rows": 1000}
    schema = pa.schema([("id", pa.int64()), ("a", pa.float64()), ("b", pa.int64())])
    with kc.create_table(path, schema, "id", options=options) as table:
        table.insert(rows_of(rng, np.arange(ROWS)))
        table.flush()
        for round_ in range(ROUNDS):
            table.upsert(rows_of(rng, rng.choice(ROWS, ROWS // 20, replace=False)))
            table.compact(full=round_ % 5 == 4)
            assert on_disk(path) == named_bytes(table)
        reader = subprocess.Popen(
            [sys.executable, "-c", READ, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == f"{ROWS}\n"
            table.upsert(rows_of(rng, np.arange(0, ROWS, 20)))
            table.compact(full=True)
            kept = on_disk(path) - named_bytes(table)
            assert kept > 0, "a reader may still open what it has seen named"
            out, _ = reader.communicate("go on\n", timeout=60)
            assert out == f"{ROWS}\n"
        finally:
            reader.kill()
            reader.communicate()
        table.compact()
        assert on_disk(path) == named_bytes(table)
