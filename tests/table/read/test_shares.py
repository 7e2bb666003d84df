"""How a scan is cut into tokens: by rows, by what zone maps leave, without reading pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.pages.page import PAGE_ROWS
from kudu_core.common.run.clock import hybrid
from tests.support.clock import ManualClock
from tests.support.inside import oldest_ts_of
from tests.support.objects import tables as stores
from tests.support.objects.memory import MemoryObjectStore

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


@pytest.mark.parametrize("url", ["", stores.URL])
def test_a_snapshot_holds_what_its_tokens_are_of(url: str, tmp_path: Path) -> None:
    """It lies behind the newest commit, and they do not: others read what is durable.  Once there is a commit
    behind it, history may be dropped up to the snapshot, with what lies before."""
    clock, store = ManualClock(), MemoryObjectStore()
    place: dict[str, Any] = {"_clock": clock, **({"_requests": store} if url else {})}
    path = url or str(tmp_path / "t")
    options = {**stores.MANUAL, "history_retention_s": 0}
    with kc.create_table(path, stores.SCHEMA, "k", options=options, **place) as table:
        for v in (1, 2):
            table.upsert([{"k": 1, "v": v}])
            table.flush()
        table.compact(full=True)
        clock.advance(1)
        with table.snapshot(hybrid(clock.now_us())) as snapshot:
            tokens = table.scan_tokens(at=snapshot)
            assert [token.timestamp < snapshot.timestamp for token in tokens] == [True]
            clock.advance(1)
            table.upsert([{"k": 1, "v": 3}])
            table.gc()
            assert oldest_ts_of(table) == tokens[0].timestamp, "what is before is gone"
            with kc.open_table(path, **place) as reader:
                for handle in (table, reader):
                    assert handle.scan_token(tokens[0]).to_table()["v"].to_pylist() == [2]
