"""``table.changes``: every change in order of time, and net changes."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.rowset.history.history import RowSetHistory
from kudu_core.rowset.history.straight import StraightHistory
from kudu_core.table.changes import changes as module
from kudu_core.table.changes import net as net_changes
from tests.support.inside import engine_of, is_opened, oldest_ts_of, rowsets_of, wait_durable
from tests.support.models.changes import check_changes, check_pairs, image
from tests.support.models.history import SCHEMA, History, random_batch
from tests.support.models.model import State


@pytest.fixture(params=[1 << 20, 8], ids=["one range", "ranges"])
def net_ranges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Changes of a range of keys, when net changes are put together."""
    monkeypatch.setattr(net_changes, "RANGE_EVENTS", request.param)
    monkeypatch.setattr(net_changes, "_SAMPLES", 2)
    monkeypatch.setattr(net_changes, "_ROWS", 7)
    monkeypatch.setattr(module, "FIRST_ROWS", 7)
    size: int = request.param
    return size


@pytest.mark.parametrize("slice_events", [1 << 20, 64])
@pytest.mark.parametrize("ingest_rows", [10**6, 40])
def test_a_state_and_its_changes_give_every_later_state(
    tmp_path: Path,
    seed: int,
    long: bool,
    slice_events: int,
    ingest_rows: int,
    net_ranges: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "STRETCH_EVENTS", slice_events)
    for run in range(40 if long else 1):
        rng = random.Random(f"{seed}-{run}")
        history = History()
        path = tmp_path / f"t{run}"
        budget = 300 if run % 2 and net_ranges == 8 else 1 << 28
        monkeypatch.setattr(module, "budget_bytes", lambda limit, budget=budget: budget)
        table = kc.create_table(
            path,
            SCHEMA,
            "k",
            partition_by=[kc.HashPartition(["k"], 2)] if run % 2 else [],
            options={"maintenance": "manual", "ingest_threshold_rows": ingest_rows, "durability": "none"},
        )
        for step in range(40 if long else 14):
            history.write(
                table,
                random_batch(rng, history.model, range(60), rng.choice((1, 4, 50)), whole=rng.random() < 0.5),
            )
            draw = rng.random()
            if draw < 0.2:
                table.flush()
            elif draw < 0.25:
                table.close()
                table = kc.open_table(path, "rw")
            if step % 13 == 12:
                wait_durable(table)
                check_pairs(table, history, rng, 6)
        wait_durable(table)
        assert check_changes(table, history, 0, history.writes[-1]) > 100
        check_pairs(table, history, rng, 10)
        with kc.open_table(path) as reader:
            check_pairs(reader, history, rng, 2)
        table.close()


def rows_after(rows: list[dict[str, Any]]) -> State:
    """The state that changes lead to from nothing."""
    state: State = {}
    for row in rows:
        if row["_op"] == "delete":
            del state[(row["k"],)]
        else:
            assert ((row["k"],) in state) == (row["_op"] == "update")
            state[(row["k"],)] = image(row)
    return state


def test_from_the_first_state_that_history_has(
    tmp_path: Path, seed: int, long: bool, net_ranges: int
) -> None:
    """``since=None``: a copy can be built from it, whatever GC has taken, and wherever rows lie."""
    for run in range(20 if long else 2):
        rng = random.Random(f"{seed}-{run}")
        history = History()
        table = kc.create_table(
            tmp_path / f"t{run}",
            SCHEMA,
            "k",
            partition_by=[kc.HashPartition(["k"], 3)] if run % 2 else [],
            options={"maintenance": "manual", "history_retention_s": 0, "file_grace_s": 0},
        )
        pinned: kc.Snapshot | None = None
        for step in range(24):
            history.write(table, random_batch(rng, history.model, range(60), rng.choice((1, 4, 50))))
            draw = rng.random()
            if draw < 0.3:
                table.flush()
            elif draw < 0.4:
                table.compact(full=True)
            if step % 4 == 3:
                table.gc()
                assert engine_of(table).horizon(drop=True) == oldest_ts_of(table) > 0
                for whole in (table.changes(), table.changes(None, table.snapshot())):
                    rows = whole.to_pylist()
                    assert rows == whole.to_pylist()
                    first = [row for row in rows if row["_timestamp"] == whole.since]
                    assert {row["_op"] for row in first} <= {"insert"} and rows[: len(first)] == first
                    assert [r["_timestamp"] for r in rows] == sorted(r["_timestamp"] for r in rows)
                    assert rows_after(first) == history.past.at(whole.since)
                    assert rows_after(rows) == history.model.state()
                net = table.changes(net=True, images="both")
                found = net.to_pylist()
                assert {row["_op"] for row in found} <= {"insert"}
                assert all(row["_before"] is None for row in found)
                assert rows_after(found) == history.model.state()
                last = {row["k"]: row["_timestamp"] for row in rows}
                assert {row["k"]: row["_timestamp"] for row in found} == {
                    k: last[k] for k in last if (k,) in history.model.state()
                }
                some = table.changes(columns=["a", "k"], where=pc.field("a") > 0, net=True).to_pylist()
                assert sorted(r["k"] for r in some) == sorted(
                    k for (k,), row in history.model.state().items() if row[0] is not None and row[0] > 0
                )
                if pinned is not None:
                    pinned.close()
                pinned = table.snapshot()
        table.close()


def test_changes_of_a_reader_that_refreshes(tmp_path: Path) -> None:
    """``until`` of one answer is ``since`` of the next: nothing is told twice, nothing is left out."""
    rng, history = random.Random(3), History()
    told: list[dict[str, Any]] = []
    since: int | None = None
    table = kc.create_table(tmp_path / "t", SCHEMA, "k", options={"maintenance": "manual"})
    with table, kc.open_table(tmp_path / "t") as reader:
        for step in range(20):
            history.write(table, random_batch(rng, history.model, range(40), 5))
            if step % 4 == 1:
                table.flush()
            if step % 6 == 5:
                table.compact(full=True)
            if step % 3 == 0:
                reader.refresh()
            answer = reader.changes(since)
            told += answer.to_pylist()
            since = answer.until
            assert rows_after(told) == history.past.at(since)


def test_memory_follows_the_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many changes, images are in memory slice by slice, also when they are put together by key."""
    monkeypatch.setattr(module, "STRETCH_EVENTS", 2_000)
    monkeypatch.setattr(net_changes, "RANGE_EVENTS", 2_000)
    sizes: list[int] = []
    named = [(RowSetHistory, name) for name in ("after", "before", "at_start", "at_end")]
    for owner, name in [*named, (StraightHistory, "images")]:
        usual = getattr(owner, name)

        def counted(self: Any, *asked: Any, usual: Any = usual, **more: Any) -> Any:
            columns = usual(self, *asked, **more)
            for images in columns if isinstance(columns, list) else [columns]:
                sizes.extend(column.length for column in images.values())
            return columns

        monkeypatch.setattr(owner, name, counted)
    options = {"maintenance": "manual", "durability": "none"}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        table.insert([{"k": k, "a": 0} for k in range(20_000)])
        table.flush()
        since = table.timestamp
        for call in range(40):
            table.update([{"k": k, "a": call} for k in range(call % 2 * 20, 20_000, 40)])
        wait_durable(table)
        for flushed in (False, True):
            if flushed:
                table.flush()
            count = table.changes(since).to_table().num_rows
            assert count == 20_000
            distinct = table.changes(since, net=True).to_table()["k"].to_pylist()
            assert distinct == sorted(set(distinct)) and len(distinct) == 1_000
            assert max(sizes) <= 4_000, max(sizes)
        table.upsert([{"k": k, "a": 2} for k in range(20_000, 50_000)])
        wait_durable(table)
        distinct = table.changes(since, net=True, images="both").to_table()["k"].to_pylist()
        assert distinct == sorted(set(distinct)) and len(distinct) == 31_000
        assert max(sizes) <= 6_000, max(sizes)


def test_a_rowset_without_changes_in_the_window_is_not_opened(tmp_path: Path) -> None:
    options = {"maintenance": "manual"}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        for first in (0, 100):
            table.insert([{"k": first + i, "a": i} for i in range(50)])
            table.flush()
        since = table.update([{"k": 3, "a": 7}, {"k": 4, "a": 7}]).timestamp - 1
        table.flush()
    with kc.open_table(tmp_path / "t") as table:
        rows = table.changes(since, columns=["k", "a"]).to_pylist()
        assert [(r["_op"], r["k"], r["a"]) for r in rows] == [("update", 3, 7), ("update", 4, 7)]
        opened = [is_opened(r.base) for r in rowsets_of(table)]
        assert opened == [True, False]
        assert table.changes(table.timestamp).to_table().num_rows == 0


def test_wrong_windows_say_what_is_wrong(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"maintenance": "manual"}) as table:
        first = table.insert([{"k": 1}]).timestamp
        last = table.delete([1]).timestamp
        with pytest.raises(kc.InvalidArgument, match="after until"):
            table.changes(last, first)
        with pytest.raises(kc.InvalidArgument, match="images"):
            table.changes(images="before")
        with pytest.raises(kc.SnapshotInFuture):
            table.changes(first, 2**63)
        with pytest.raises(kc.InvalidArgument, match="nope"):
            table.changes(columns=["nope"])
        changes = table.changes(first)
        assert (changes.since, changes.until) == (first, last)
        assert (
            [r["_op"] for r in changes.to_pylist()] == ["delete"] == [r["_op"] for r in changes.to_pylist()]
        )


def test_where_history_begins_it_begins_with_inserts(tmp_path: Path) -> None:
    """After GC ``since=None`` still leads to the whole newest state, also with nothing else to tell."""
    options = {"maintenance": "manual", "history_retention_s": 0, "file_grace_s": 0}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        table.insert([{"k": i, "a": i, "b": "x"} for i in range(6)])
        table.update([{"k": i, "a": 10 + i} for i in range(4)])
        table.flush()
        table.gc()
        begin = oldest_ts_of(table)
        assert begin > 0, "history was dropped"
        table.insert([{"k": 100}])
        table.flush()
        last = table.update([{"k": 1, "a": 21}]).timestamp
        table.delete([2])
        for handle in (table, kc.open_table(tmp_path / "t")):
            changes = handle.changes(None, columns=["k", "a"], images="both")
            assert changes.since == begin
            rows = changes.to_pylist()
            assert [(r["_op"], r["k"], r["a"]) for r in rows[:6]] == [
                ("insert", i, (10 if i < 4 else 0) + i) for i in range(6)
            ]
            assert {r["_timestamp"] for r in rows[:6]} == {begin}
            assert {r["_before"] for r in rows[:7]} == {None}
            assert [(r["_op"], r["k"]) for r in rows[6:]] == [("insert", 100), ("update", 1), ("delete", 2)]
            some = handle.changes(None, columns=["a"], where=[("k", "<", 3)]).to_pylist()
            assert [(r["_op"], r["a"]) for r in some] == [
                ("insert", 10), ("insert", 11), ("insert", 12), ("update", 21), ("delete", None)
            ]  # fmt: skip
            net = handle.changes(None, columns=["k", "a"], images="both", net=True).to_pylist()
            net.sort(key=lambda r: r["k"])
            assert [(r["_op"], r["k"], r["a"]) for r in net] == [
                ("insert", k, a) for k, a in ((0, 10), (1, 21), (3, 13), (4, 4), (5, 5), (100, None))
            ]
            assert {r["_before"] for r in net} == {None}
            assert [r["_timestamp"] for r in net if r["k"] in (0, 1)] == [begin, last]
        handle.close()


def test_history_that_is_gone_is_lost_however_it_is_asked_for(tmp_path: Path) -> None:
    options = {"maintenance": "manual", "history_retention_s": 0}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        first = table.insert([{"k": 1, "a": 1}]).timestamp
        old = datetime.fromtimestamp((first >> 12) / 1e6 - 1, UTC)
        table.update([{"k": 1, "a": 2}])
        table.flush()
        table.gc()
        for since in (first, old):
            for until in (None, since):
                with pytest.raises(kc.ChangesLost, match="since=None"):
                    table.changes(since, until)


def test_an_image_of_no_columns_is_one_all_the_same(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"maintenance": "manual"}) as table:
        table.insert([{"k": 1}])
        table.update([{"k": 1, "a": 2}])
        rows = table.changes(columns=[], images="both").to_pylist()
        assert [(r["_op"], r["_before"]) for r in rows] == [("insert", None), ("update", {})]


def test_history_that_goes_while_one_looks_where_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"maintenance": "manual", "history_retention_s": 0}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        first = table.insert([{"k": 1, "a": 1}]).timestamp
        table.update([{"k": 1, "a": 2}])
        table.flush()
        real = module.window

        def slow(*args: Any) -> tuple[int, int]:
            found = real(*args)
            table.gc()
            return found

        monkeypatch.setattr(module, "window", slow)
        with pytest.raises(kc.ChangesLost, match="since=None"):
            table.changes(first)
        table.update([{"k": 1, "a": 3}])
        table.flush()
        table.compact(full=True)
        before = oldest_ts_of(table)
        changes = table.changes(None)
        assert changes.since > before
        assert [(r["_op"], r["a"]) for r in changes.to_pylist()] == [("insert", 3)]


def test_net_changes_of_few_columns_read_rows_that_differ(tmp_path: Path) -> None:
    """Updates that come back to what was leave no net change, whichever columns they set."""
    columns = {f"v{i}": list(range(20)) for i in range(30)}
    with kc.create_table(tmp_path / "t", pa.table({"k": range(20), **columns}).schema, "k") as table:
        table.insert({"k": range(20), **columns})
        table.flush()
        since = table.timestamp
        table.update({"k": [3, 5, 7, 9], "v1": [0, 0, 0, 9]})
        table.update({"k": [5, 11], "v1": [5, 1], "v2": [5, 11]})
        table.flush()
        net = table.changes(since, table.timestamp, net=True, images="both").to_table()
        assert net["k"].to_pylist() == [3, 7, 11]
        assert net["v1"].to_pylist() == [0, 0, 1] and net["v29"].to_pylist() == [3, 7, 11]
        assert [row["v1"] for row in net["_before"].to_pylist()] == [3, 7, 11]
        assert [row["v29"] for row in net["_before"].to_pylist()] == [3, 7, 11]
        table.update({"k": [3, 7, 11], "v1": [3, 7, 11]})
        assert table.changes(since, table.timestamp, net=True).to_table().num_rows == 0
        rows = table.changes(since, table.timestamp).to_table()
        assert rows["k"].to_pylist() == [3, 5, 7, 9, 5, 11, 3, 7, 11]
        assert rows["v29"].to_pylist() == rows["k"].to_pylist()
