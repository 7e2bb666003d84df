"""Shares of changes, and how far a window of so many changes reaches."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.table.changes.change_tokens import ChangeToken
from kudu_core.table.changes.counts import told
from tests.support.inside import changes_within, is_opened, rowsets_of, tablets_of
from tests.support.models.history import SCHEMA, History, random_batch


def rows_of(batches: Any) -> list[tuple[Any, ...]]:
    """Rows as plain values, in an order of their own."""
    return sorted((tuple(row.values()) for row in batches.to_pylist()), key=repr)


def from_tokens(table: kc.Table, tokens: list[ChangeToken]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for token in tokens:
        found += rows_of(table.change_token(pickle.loads(pickle.dumps(token))))
    return sorted(found, key=repr)


@pytest.fixture
def history(tmp_path: Path, seed: int) -> tuple[str, History]:
    """A table of two tablets with some flushed, ingested and unflushed changes."""
    rng = random.Random(seed)
    history = History()
    path = str(tmp_path / "t")
    options = {"maintenance": "manual", "ingest_threshold_rows": 40}
    with kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 2), options=options) as table:
        for step in range(40):
            history.write(table, random_batch(rng, history.model, range(60), rng.choice((1, 4, 50))))
            if step % 9 == 4:
                table.flush()
            if step == 20:
                table.compact(full=True)
    return path, history


@pytest.mark.parametrize("net", [False, True], ids=["all", "net"])
@pytest.mark.parametrize("target", [1, 20, 10**6])
def test_shares_together_are_the_changes(history: tuple[str, History], target: int, net: bool) -> None:
    path, told_by = history
    times = told_by.writes
    with kc.open_table(path) as table, kc.open_table(path) as other:
        for since, until in ((times[3], times[30]), (times[10], times[11]), (times[5], times[-1])):
            for kwargs in ({}, {"columns": ["k", "a"], "images": "both"}, {"where": [("a", ">", 0)]}):
                tokens = table.change_tokens(since, until, net=net, target_rows=target, **kwargs)
                whole = rows_of(table.changes(since, until, net=net, **kwargs))
                assert from_tokens(other, tokens) == whole
                if target == 20 and not net and not kwargs and until == times[-1]:
                    assert len(tokens) > 6
                    assert len({t.tablet_ids for t in tokens}) == 2
                if target == 10**6:
                    assert len(tokens) <= 2
        tokens = table.change_tokens(None, times[25], net=True)
        assert from_tokens(other, tokens) == rows_of(table.changes(None, times[25], net=True))


def test_a_key_leaves_out_tablets(history: tuple[str, History]) -> None:
    path, told_by = history
    with kc.open_table(path) as table:
        where = [("k", "=", 7)]
        tokens = table.change_tokens(told_by.writes[2], where=where)
        assert len({t.tablet_ids for t in tokens}) == 1
        assert from_tokens(table, tokens) == rows_of(table.changes(told_by.writes[2], where=where))


def test_a_window_of_so_many_changes_goes_as_far_as_it_can(history: tuple[str, History]) -> None:
    path, told_by = history
    times = told_by.writes
    with kc.open_table(path) as table:
        last = table.timestamp
        taken = []
        for limit in (1, 7, 60, 300, 10**6):
            since = times[4]
            steps = 0
            while since < last:
                until = changes_within(table, since, last, limit)
                assert since < until <= last
                changes = table.changes(since, until).to_table()
                stamps = set(changes["_timestamp"].to_pylist())
                assert changes.num_rows <= limit or len(stamps) == 1
                since, steps = until, steps + 1
            taken.append(steps)
        assert taken == sorted(taken, reverse=True) and taken[1] > 10 > taken[-2] and taken[-1] == 1
        assert changes_within(table, last, last, 5) == last
        bounds = [part for tablet in tablets_of(table) for part in told(tablet, times[4], last)]
        events = table.changes(times[4], last).to_table().num_rows
        assert sum(part.sure for part in bounds) <= sum(table.changes(times[4], last).counts()[1])
        assert events <= sum(part.most for part in bounds)


def test_only_what_is_old_enough_is_opened_to_count(tmp_path: Path) -> None:
    """A long backlog costs its first part alone, and nothing when all of it is admitted."""
    options = {"maintenance": "manual", "ingest_threshold_rows": 10}
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    with kc.create_table(tmp_path / "t", schema, "k", options=options) as table:
        since = table.insert({"k": range(100), "v": [0] * 100}).timestamp
        for first in range(0, 100, 10):
            for k in range(first, first + 5):
                table.update({"k": [k], "v": [1]})
            table.flush()

    def opened(table: kc.Table) -> int:
        rowset = rowsets_of(table)[0]
        return sum(is_opened(store) for store in rowset.redo if isinstance(store, DeltaStore))

    with kc.open_table(tmp_path / "t") as table:
        assert changes_within(table, since, table.timestamp, 50) == table.timestamp
        assert opened(table) == 0
        until = changes_within(table, since, table.timestamp, 3)
        assert opened(table) == 1, "of ten"
        assert table.changes(since, until).to_table().num_rows == 3


def test_a_dropped_range_is_among_the_shares(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    ranges = kc.RangePartition("k", [(0, 10), (10, 20)])
    with kc.create_table(tmp_path / "t", schema, "k", partition_by=ranges) as table:
        since = table.insert({"k": [1, 2, 11], "v": [1, 2, 11]}).timestamp
        table.update({"k": [1], "v": [5]})
        table.alter(drop_range=(0, 10), add_range=(0, 10))
        table.insert({"k": [2, 3], "v": [20, 30]})
        for net in (False, True):
            whole = rows_of(table.changes(since, net=net))
            assert from_tokens(table, table.change_tokens(since, net=net, target_rows=1)) == whole
        last = table.timestamp
        until = changes_within(table, since, last, 1)
        assert table.changes(since, until).to_table().num_rows == 1


def test_tokens_survive_a_rename_and_refuse_a_drop(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64())])
    with kc.create_table(tmp_path / "t", schema, "k") as table:
        since = table.insert({"k": [1], "v": [1], "w": [1]}).timestamp
        table.update({"k": [1], "w": [2]})
        tokens = table.change_tokens(since, columns=["k", "v"], where=[("v", "=", 1)])
        table.alter(rename={"v": "x", "w": "v"})
        assert from_tokens(table, tokens) == [("update", tokens[0].timestamp, 1, 1)]
        table.alter(drop=["x"])
        with pytest.raises(kc.SchemaMismatch, match="column 'v' of the token was dropped"):
            table.change_token(tokens[0])


def test_wrong_tokens_say_what_is_wrong(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64())])
    with (
        kc.create_table(tmp_path / "t", schema, "k") as table,
        kc.create_table(tmp_path / "u", schema, "k") as other,
    ):
        since = table.insert({"k": [1]}).timestamp
        table.insert({"k": [2]})
        tokens = table.change_tokens(since)
        with pytest.raises(kc.InvalidArgument, match="another table"):
            other.change_token(tokens[0])
        with pytest.raises(kc.InvalidArgument, match="change_tokens made"):
            table.change_token(table.scan_tokens()[0])  # type: ignore[arg-type]
        with pytest.raises(kc.InvalidArgument, match="net changes"):
            table.change_tokens(None)
        with pytest.raises(kc.InvalidArgument, match="target_rows"):
            table.change_tokens(since, target_rows=0)
