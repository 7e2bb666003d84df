"""``Table.alter(options=...)``: options for good, for this handle at once or at the next open."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.options import NAMES
from kudu_core.table.lifecycle.altering.altered_options import AT_NEXT_OPEN, AT_ONCE
from tests.support.inside import engine_of, table_file_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
MANUAL = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0}
OTHERS: dict[str, Any] = {
    "durability": "group",
    "group_interval_s": 0.5,
    "maintenance": "background",
    "maintenance_threads": 2,
    "memory_limit_bytes": 64 << 20,
    "page_cache_bytes": 1 << 20,
    "flush_threshold_bytes": 1 << 20,
    "flush_age_s": 7.0,
    "rowset_target_bytes": 1 << 20,
    "compaction_budget_bytes": 2 << 20,
    "bloom_false_positive_rate": 0.1,
    "history_retention_s": 5.0,
    "token_retention_s": 9.0,
    "ingest_threshold_rows": 10,
    "ingest_threshold_bytes": 1 << 20,
    "scan_threads": 2,
    "file_grace_s": 3.0,
    "staging_grace_s": 700.0,
    "lost_grace_s": 4.0,
    "lock_timeout_s": 2.0,
    "slow_operation_s": 5.0,
}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[kc.Table]:
    made = kc.create_table(str(tmp_path / "t"), SCHEMA, "k", options=MANUAL)
    made.insert({"k": [1, 2, 3], "v": [10, 20, 30]})
    yield made
    made.close()


def test_every_option_can_change_and_stays(table: kc.Table) -> None:
    assert OTHERS.keys() == set(NAMES)
    with kc.open_table(table.path) as reader:
        before = table.options
        ts = table.alter(options=OTHERS)
        assert table.timestamp >= ts
        for name in AT_ONCE:
            assert getattr(table.options, name) == OTHERS[name] == getattr(engine_of(table).options, name)
        for name in AT_NEXT_OPEN:
            assert getattr(table.options, name) == getattr(before, name)
        assert reader.options == before
        reader.refresh()
        assert reader.options == kc.Options(**OTHERS)
    table.close()
    for mode in ("r", "rw"):
        with kc.open_table(table.path, mode) as again:
            assert again.options == kc.Options(**OTHERS)
            assert again.count() == 3


def test_other_options_stay_and_a_handle_keeps_its_own(table: kc.Table) -> None:
    table.alter(options={"flush_age_s": 7})
    table.close()
    with kc.open_table(table.path, "rw", options={"flush_age_s": 9, "scan_threads": 3}) as own:
        assert (own.options.flush_age_s, own.options.scan_threads) == (9, 3)
        own.alter(options={"lost_grace_s": 1})
        assert (own.options.flush_age_s, own.options.scan_threads) == (9, 3), "of the handle"
        own.alter(options={"flush_age_s": 7})  # as it is stored: here it says something
        assert own.options.flush_age_s == 7
    with kc.open_table(table.path, "rw") as again:
        stored = again.options
        assert (stored.flush_age_s, stored.scan_threads, stored.lost_grace_s) == (7, 1, 1)
        again.alter(options=kc.Options(history_retention_s=0))
        assert again.options == stored.replace(history_retention_s=0), "what is not named stays"


def test_history_ends_at_once_where_it_is_no_longer_kept(table: kc.Table) -> None:
    at = table.timestamp
    table.update({"k": [1], "v": [11]})
    table.flush()
    table.compact(full=True)
    assert table.get(1, at=at) == {"k": 1, "v": 10}
    table.alter(options={"history_retention_s": 0})
    table.insert({"k": [4], "v": [40]})
    table.flush()
    table.compact(full=True)
    with pytest.raises(kc.SnapshotTooOld):
        table.get(1, at=at)


def test_thresholds_hold_at_once(table: kc.Table) -> None:
    table.insert([{"k": 4, "v": 40}])  # the way of few rows is set up
    assert table.metrics()["rowsets"] == 0
    table.alter(options={"ingest_threshold_rows": 2, "flush_threshold_bytes": 64 << 10})
    table.insert([{"k": 5, "v": 50}, {"k": 6, "v": 60}])
    assert table.metrics()["rowsets"] == 1, "so many rows go to files"
    assert engine_of(table).memory.step_bytes == 16 << 10
    table.alter(options={"ingest_threshold_rows": 100_000})
    table.insert([{"k": 7, "v": 70}])
    table.maintain()
    assert table.maintain() == 0
    table.alter(options={"flush_age_s": 0})
    assert table.maintain() > 0, "what is older than flush_age_s is flushed"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"history_retention_days": 1}, "history_retention_s"),
        ({"history_retention_s": -1}, "history_retention_s is -1"),
        ({"durability": "later"}, "durability"),
        ({"primary_key": "v"}, "the key of a table is fixed"),
        ({"partition_by": ()}, "fixed when it is made"),
        ({"scan_threads": 1}, "changes nothing"),
        ({}, "changes nothing"),
        (7, "options are"),
    ],
)
def test_what_no_option_can_be_changes_nothing(table: kc.Table, options: Any, named: str) -> None:
    before, state = table.timestamp, table_file_of(table)
    with pytest.raises(kc.InvalidArgument, match=named):
        table.alter(options=options)
    with pytest.raises(kc.InvalidArgument, match=named):
        table.alter(options=options, rename={"v": "v"})
    assert table.timestamp == before
    assert table_file_of(table) is state


def test_with_columns_and_ranges_in_one_record(tmp_path: Path) -> None:
    cut = kc.RangePartition("k", [(0, 10)])
    with kc.create_table(str(tmp_path / "t"), SCHEMA, "k", partition_by=cut, options=MANUAL) as table:
        ts = table.alter(add=[pa.field("w", pa.int64())], add_range=(10, 20), options={"lost_grace_s": 1})
        assert table.timestamp == ts
        table.insert({"k": [15], "v": [1], "w": [2]})
        assert table.options.lost_grace_s == 1
    with kc.open_table(table.path) as again:
        assert again.options.lost_grace_s == 1
        assert again.get(15) == {"k": 15, "v": 1, "w": 2}


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_the_record_alone_says_it(table: kc.Table, tmp_path: Path, mode: Any) -> None:
    """After a crash between the record and TABLE."""
    old = Path(table.path, "TABLE").read_bytes()
    table.alter(options={"history_retention_s": 77})
    copy = tmp_path / "copy"
    shutil.copytree(table.path, copy)
    (copy / "TABLE").write_bytes(old)
    with kc.open_table(str(copy), mode) as found:
        assert found.options.history_retention_s == 77
        assert found.count() == 3


def test_in_a_store(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    with kc.create_table(URL, SCHEMA, "k", options=MANUAL, _requests=store) as table:
        table.insert({"k": [1], "v": [10]})
        with kc.open_table(URL, _requests=store) as reader:
            assert reader.count() == 1
            table.alter(options={"history_retention_s": 77, "scan_threads": 2})
            assert (table.options.history_retention_s, table.options.scan_threads) == (77, 1)
            reader.refresh()
            assert (reader.options.history_retention_s, reader.options.scan_threads) == (77, 2)
        with pytest.raises(kc.InvalidArgument, match="in a store it is fixed when the table is made"):
            table.alter(options={"file_grace_s": 5})
    for mode in ("r", "rw"):
        with kc.open_table(URL, mode, _requests=store) as again:
            assert (again.options.history_retention_s, again.options.scan_threads) == (77, 2)
