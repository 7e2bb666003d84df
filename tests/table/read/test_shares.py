"""How a scan is cut into tokens: by rows, by what zone maps leave, without reading pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.pages.page import PAGE_ROWS

ROWS = 10 * PAGE_ROWS
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rowset of ten pages: v and s ascend with k."""
    path = tmp_path_factory.mktemp("shares") / "t"
    k = np.arange(ROWS)
    s = pa.array([f"{i // PAGE_ROWS:04}" for i in k])
    with kc.create_table(path, SCHEMA, "k", options={"ingest_threshold_rows": 1000}) as table:
        table.insert({"k": k, "v": k * 2, "s": s})
    return path


def pages_read(table: kc.Table) -> float:
    return table.metrics()["page_cache_misses"]


@pytest.mark.parametrize("target", [PAGE_ROWS // 4, PAGE_ROWS, 3 * PAGE_ROWS, ROWS, 2 * ROWS])
def test_a_rowset_is_cut_by_its_index(path: Path, target: int) -> None:
    with kc.open_table(path) as table:
        assert table.stats("rowset").num_rows == 1
        tokens = table.scan_tokens(["k"], target_rows=target)
        assert pages_read(table) == 0
        assert len(tokens) == -(-ROWS // target)
        assert sum(token.rows for token in tokens) == ROWS
        found = [table.scan_token(token).count() for token in tokens]
        assert found == [token.rows for token in tokens]
        assert max(found) <= target * 5 // 4


def test_what_zone_maps_leave_is_cut(path: Path) -> None:
    page = PAGE_ROWS
    with kc.open_table(path) as table:
        for where, rows, count in (
            ([("v", "<", 4 * page)], 2 * page, 2),
            ([("s", "in", ["0003", "0007"])], 2 * page, 2),
            ([("v", ">=", 2 * page), ("v", "<", 2 * page + 8)], page, 1),
            ([("k", ">=", 5 * page)], 5 * page, 5),
            ([("v", "=", -1)], 0, 0),
            ([("s", "=", "0003x")], 0, 0),
        ):
            tokens = table.scan_tokens(["k"], where, target_rows=page)
            assert len(tokens) == count, where
            assert sum(token.rows for token in tokens) == rows
            told = sum(table.scan_token(token).count() for token in tokens)
            assert told == table.count(where)


def test_changes_that_a_snapshot_sees_are_respected(path: Path, tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"ingest_threshold_rows": 1000}) as table:
        k = np.arange(ROWS)
        before = table.insert({"k": k, "v": k}).timestamp
        table.flush()
        where = [("v", "=", -5)]
        assert table.scan_tokens(where=where) == []
        table.update({"k": [7], "v": [-5]})
        for _ in range(2):
            tokens = table.scan_tokens(["k"], where)
            assert [r for t in tokens for r in table.scan_token(t).to_table()["k"].to_pylist()] == [7]
            assert table.scan_tokens(where=where, at=before) == []
            table.flush()


def test_rows_in_memory_are_cut_by_samples(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    keys = rng.permutation(50_000)
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"maintenance": "manual"}) as table:
        for part in np.array_split(keys, 5):
            table.insert({"k": part})
        tokens = table.scan_tokens(["k"], target_rows=5000)
        found = [table.scan_token(token).count() for token in tokens]
        assert len(tokens) == 10 and sum(found) == 50_000
        assert max(found) < 8000
        where = [("k", ">=", 49_990)]
        assert sum(table.scan_token(t).count() for t in table.scan_tokens(where=where, target_rows=100)) == 10


def test_overlapping_rowsets_are_cut_together(tmp_path: Path) -> None:
    options = {"maintenance": "manual", "ingest_threshold_rows": 1000}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        for first in range(3):
            table.insert({"k": np.arange(first, 120_000, 3)})
        assert table.stats("rowset").num_rows == 3
        tokens = table.scan_tokens(["k"], target_rows=20_000)
        found = [table.scan_token(token).count() for token in tokens]
        assert len(tokens) == 6 and sum(found) == 120_000
        assert max(found) < 30_000
