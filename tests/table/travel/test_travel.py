"""Tables, snapshots and scans that were pickled: what arrives, when it opens, and what it refuses."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.lifecycle.handles import OpenedFrom
from kudu_core.table.opened.handle import arrived as arrived_handle
from kudu_core.table.opened.handle import handle_of
from tests.support.fs.slow import LATE_S, Thread
from tests.support.inside import engine_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened
from tests.support.processes import in_child

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("s", pa.string()), ("n", pa.int32())])
MANUAL = {"maintenance": "manual"}


@pytest.fixture
def writer(path: Path) -> Iterator[kc.Table]:
    """A table of rows 0 to 9, in files but for the last."""
    with kc.create_table(path, SCHEMA, "k", options=MANUAL) as table:
        table.insert({"k": list(range(9)), "s": [f"s{k}" for k in range(9)], "n": list(range(9))})
        table.flush()
        table.insert({"k": [9], "s": ["s9"], "n": [9]})
        yield table


def sent(thing: Any) -> Any:
    """What arrives, in this process."""
    return pickle.loads(pickle.dumps(thing))


def sent_with_its_text(thing: Any) -> Any:
    """Likewise; to look at it opens nothing."""
    again = sent(thing)
    assert "not open yet" in repr(again)
    return again


def files_open(path: Path) -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return [name for name in found if name.startswith(f"{path}/")]


# ---- tables ----


def test_a_reader_arrives_as_a_reader_of_the_newest_state(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path, options={"scan_threads": 1}) as reader:
        data = pickle.dumps(reader)
        writer.insert({"k": [10], "s": ["new"], "n": [10]})
        assert reader.count() == 10
        with pickle.loads(data) as arrived:
            assert isinstance(arrived, kc.Table)
            assert "not open yet" in repr(arrived) and (arrived.path, arrived.mode) == (str(path), "r")
            assert arrived.get(10) == {"k": 10, "s": "new", "n": 10} and arrived.count() == 11
            assert arrived.options == reader.options and arrived.options.scan_threads == 1
            assert arrived.schema == SCHEMA and "key=('k',)" in repr(arrived)
            with pytest.raises(kc.ReadOnly, match='mode="rw"'):
                arrived.insert({"k": [11], "s": [""], "n": [0]})
            writer.insert({"k": [11], "s": ["x"], "n": [0]})
            assert arrived.count() == 11
            arrived.refresh()
            assert arrived.count() == 12


USES: dict[str, tuple[Callable[[kc.Table], Any], Any]] = {
    "get": (lambda t: t.get(3, ["n"]), {"n": 3}),
    "get of a row": (lambda t: t.get(3), {"k": 3, "s": "s3", "n": 3}),
    "get_many": (lambda t: t.get_many([3, 4])["n"].to_pylist(), [3, 4]),
    "scan": (lambda t: t.scan(["n"], order="key", limit=2).to_pylist(), [{"n": 0}, {"n": 1}]),
    "count": (lambda t: t.count([("n", ">", 7)]), 2),
    "changes": (lambda t: t.changes(key=9).to_table()["_op"].to_pylist(), ["insert"]),
    "snapshot": (lambda t: t.snapshot().get(1, ["n"]), {"n": 1}),
    "tokens": (lambda t: sum(t.scan_token(token).count() for token in t.scan_tokens()), 10),
    "change tokens": (lambda t: len(t.change_tokens(None, net=True)), 1),
    "dataset": (lambda t: t.to_dataset().to_table().num_rows, 10),
    "schema": (lambda t: t.schema, SCHEMA),
    "primary_key": (lambda t: t.primary_key, ("k",)),
    "partitions": (lambda t: len(t.partitions.partitions), 1),
    "options": (lambda t: t.options.maintenance, "manual"),
    "timestamp": (lambda t: t.timestamp > 0, True),
    "unreplayed": (lambda t: t.unreplayed, None),
    "stats": (lambda t: t.stats().num_rows, 1),
    "metrics": (lambda t: t.metrics()["rowsets"], 1),
    "history": (lambda t: t.history().num_rows, 0),
    "layout": (lambda t: t.layout().count("tablet 1"), 1),
    "verify": (lambda t: t.verify().records > 0, True),
    "refresh": (lambda t: t.refresh(), None),
}


@pytest.mark.parametrize("name", USES)
def test_any_first_use_opens_it(writer: kc.Table, path: Path, name: str) -> None:
    use, answer = USES[name]
    with kc.open_table(path) as reader:
        expected = use(reader)
        assert expected == answer
        arrived = sent_with_its_text(reader)
    with arrived:
        assert use(arrived) == expected


@pytest.mark.parametrize("durability", ["sync", "group", "none"])
def test_a_writer_arrives_as_a_reader_of_all_that_it_shows(path: Path, durability: str) -> None:
    """In another process, before the writer has synced by itself, and while it goes on."""
    options = {"durability": durability, "group_interval_s": 30.0}
    with kc.create_table(path, SCHEMA, "k", options=options) as writer:
        writer.insert({"k": [1], "s": ["a"], "n": [1]})
        data = pickle.dumps(writer)

        def look() -> Any:
            with pickle.loads(data) as arrived:
                return arrived.mode, arrived.get(1), arrived.count()

        assert in_child(look) == repr(("r", {"k": 1, "s": "a", "n": 1}, 1))

        def write() -> Any:
            with pickle.loads(data) as arrived:
                return arrived.insert({"k": [2], "s": ["a"], "n": [1]})

        assert in_child(write).startswith("ReadOnly: ")
        writer.insert({"k": [3], "s": ["c"], "n": [1]})
        assert writer.count() == 2


def test_another_table_at_the_path_is_refused(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path) as reader:
        things = {"table": sent(reader), "scan": sent(reader.scan()), "snapshot": sent(reader.snapshot())}
    writer.close()
    shutil.rmtree(path)
    for use in (things["table"].count, things["scan"].count, lambda: things["snapshot"].get(1)):
        with pytest.raises(kc.TableNotFound, match="there is no table"):
            use()
    with kc.create_table(path, SCHEMA, "k", options=MANUAL) as other:
        other.insert({"k": [1], "s": ["other"], "n": [1]})
        for use in (things["table"].count, things["scan"].count, lambda: things["snapshot"].get(1)):
            with pytest.raises(kc.TableNotFound, match="another one is there"):
                use()
    gc.collect()
    assert files_open(path) == []


def test_a_refresh_does_not_go_over_to_another_table(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path) as reader:
        scan = reader.scan()
        writer.close()
        shutil.rmtree(path)
        with kc.create_table(path, SCHEMA, "k") as other:
            other.insert({"k": [1], "s": ["other"], "n": [1]})
        for use in (reader.refresh, scan.to_table):
            with pytest.raises(kc.TableNotFound, match="another one is there"):
                use()
        assert reader.timestamp == scan.timestamp


def test_what_was_not_opened_goes_on_as_what_it_is(writer: kc.Table, path: Path) -> None:
    """Through a process that only hands it on, it is bound to its table all the same."""
    with kc.open_table(path) as reader:
        twice = sent(sent_with_its_text(reader))
    assert "not open yet" in repr(twice)
    writer.close()
    shutil.rmtree(path)
    kc.create_table(path, SCHEMA, "k").close()
    with pytest.raises(kc.TableNotFound, match="another one is there"):
        twice.count()


def test_closed_handles(writer: kc.Table, path: Path) -> None:
    reader = kc.open_table(path)
    arrived = sent(reader)
    reader.close()
    with pytest.raises(kc.Closed, match="was closed"):
        pickle.dumps(reader)
    writer.close()
    shutil.rmtree(path)
    arrived.close()  # opens nothing
    arrived.close()
    for use in (arrived.count, lambda: arrived.get(1), arrived.refresh, lambda: arrived.schema):
        with pytest.raises(kc.Closed, match="was closed"):
            use()


def test_what_arrived_is_closed_with_its_last_reference(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path) as reader:
        before = len(files_open(path))
        arrived = sent(reader)
        assert arrived.scan().to_table().num_rows == 10
        engine = engine_of(arrived)
        assert len(files_open(path)) > before
        del arrived
        gc.collect()
        assert engine.closing.ended


def test_threads_that_use_it_first_open_it_once(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path) as reader:
        arrived = sent(reader)
    with arrived:
        threads = [Thread(lambda: (arrived.count(), engine_of(arrived))) for _ in range(6)]
        for thread in threads:
            thread.join(LATE_S)
        answers = [thread.answer[0] for thread in threads]
        assert {count for count, _ in answers} == {10} and len({id(engine) for _, engine in answers}) == 1


def test_copies_are_handles_of_their_own(writer: kc.Table, path: Path) -> None:
    """Deep ones, as by pickle; a shallow one is the same handle."""
    with kc.open_table(path) as reader:
        other = copy.deepcopy(reader)
        assert other.count() == 10
        other.close()
        assert reader.count() == 10
        assert engine_of(copy.copy(reader)) is engine_of(reader)


def test_of_an_object_store() -> None:
    """What its client was given travels, as with a scan token; it is shown nowhere."""
    store = MemoryObjectStore()
    with created(store) as writer:
        writer.insert({"k": [1, 2], "v": [1, 2]})
        for table in (writer, opened(store)):
            _, (origin,) = handle_of(table).__reduce__()
            with table if table is not writer else nullcontext(), kc.Table(arrived_handle(origin)) as arrived:
                assert arrived.mode == "r" and arrived.path == writer.path
                assert arrived.get(2) == {"k": 2, "v": 2} and arrived.count() == 2


def test_storage_options_travel_and_are_not_shown() -> None:
    origin = OpenedFrom(path="s3://b/t", storage_options={"secret_access_key": "quiet"})
    again = pickle.loads(pickle.dumps(origin.sent()))
    assert again == origin and again.storage_options == {"secret_access_key": "quiet"}
    assert "quiet" not in repr(again)


# ---- snapshots and scans ----


def test_a_snapshot_arrives_as_the_same_state(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path) as reader:
        snapshots = [writer.snapshot(), reader.snapshot()]
        arrived = [sent(snapshot) for snapshot in snapshots]
        writer.update(where=pc.field("n") >= 0, set={"s": "new"})
        writer.delete([1])
        writer.flush()
        for snapshot, again in zip(snapshots, arrived, strict=True):
            assert again.timestamp == snapshot.timestamp
            assert again.get(1) == {"k": 1, "s": "s1", "n": 1}
            assert again.get_many([2], ["s"])["s"].to_pylist() == ["s2"]
            assert again.scan().count() == 10
            twice = sent(again)
            again.close()
            for use in (lambda s=again: s.get(1), lambda s=again: pickle.dumps(s)):
                with pytest.raises(kc.Closed):
                    use()
            assert twice.scan(["s"], pc.field("k") == 3).to_pylist() == [{"s": "s3"}]


def test_a_snapshot_whose_history_is_gone_is_refused(path: Path) -> None:
    options = {**MANUAL, "history_retention_s": 0}
    with kc.create_table(path, SCHEMA, "k", options=options) as writer:
        writer.insert({"k": [1], "s": ["a"], "n": [1]})
        with writer.snapshot() as held:
            arrived = sent(held)
            writer.update({"k": [1], "s": ["b"]})
            writer.flush()
            writer.gc()
            assert sent(held).get(1, ["s"]) == {"s": "a"}, "held here, it is readable there"
        writer.flush()
        writer.compact(full=True)
        writer.gc()
        with pytest.raises(kc.SnapshotTooOld):
            arrived.get(1)


SCANS: dict[str, dict[str, Any]] = {
    "all": {},
    "columns": {"columns": ["n", "k"]},
    "expression": {"columns": ["s"], "where": pc.field("n") > 4},
    "filter lists": {"where": [("n", "in", [1, 5, 70]), ("k", "<", 5)]},
    "key range": {"key_range": ((2,), (6,)), "order": "key"},
    "limit": {"columns": ["k"], "order": "key", "limit": 3},
    "dictionary": {"columns": ["s"], "dictionary": ["s"]},
    "small batches": {"batch_rows": 2},
}


@pytest.mark.parametrize("name", SCANS)
def test_a_scan_arrives_as_the_same_rows(writer: kc.Table, path: Path, name: str) -> None:
    with kc.open_table(path) as reader:
        for table in (writer, reader):
            scan = table.scan(**SCANS[name])
            expected, batches = scan.to_table(), [batch.num_rows for batch in scan]
            arrived = sent(scan)
            writer.upsert({"k": [3], "s": ["new"], "n": [100]})
            assert arrived.to_table() == expected and arrived.schema == scan.schema
            assert [batch.num_rows for batch in arrived] == batches
            assert arrived.count() == scan.count() and arrived.timestamp == scan.timestamp
            assert str(arrived.explain()) == str(scan.explain())
            assert sent(arrived).to_table() == expected
            writer.upsert({"k": [3], "s": ["s3"], "n": [3]})
            reader.refresh()


def test_a_scan_keeps_the_names_of_its_time(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path) as reader:
        arrived = sent(reader.scan(where=pc.field("n") > 7))
        before = sent(reader.scan(["s"]))
        writer.alter(rename={"n": "number"}, add=[kc.Column("more", pa.int64())], drop=["s"])
        columns = sent(reader.scan(["n"], pc.field("n") > 7))
        assert sorted(columns.to_table()["n"].to_pylist()) == [8, 9]
        for scan in (arrived, before):
            with pytest.raises(kc.SchemaMismatch, match="column 's' of the scan was dropped"):
                scan.to_table()


def test_a_share_of_a_scan_arrives_as_that_share(path: Path) -> None:
    with kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 3)) as writer:
        writer.insert({"k": list(range(50)), "s": [""] * 50, "n": [0] * 50})
        shares = [writer.scan_token(token) for token in writer.scan_tokens()]
        assert len(shares) == 3
        assert [sent(share).count() for share in shares] == [share.count() for share in shares]


def test_what_shares_a_handle_shares_it_there(writer: kc.Table, path: Path) -> None:
    """A dataset of a table, a snapshot of it and a scan opens one table in a worker."""
    with kc.open_table(path) as reader:
        table, snapshot, scan = sent((reader, reader.snapshot(), reader.scan()))
    with table:
        assert table.count() == scan.count() == snapshot.scan().count() == 10
    for use in (scan.to_table, lambda: snapshot.get(1)):
        with pytest.raises(kc.Closed, match="was closed"):
            use()
