"""Readers in the child of a fork: they open the table anew, at their first use there."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.fs.slow import LATE_S, Thread
from tests.support.inside import before_each_open
from tests.support.processes import in_child

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads, from 3.12 on


@pytest.fixture
def writer(path: Path) -> Iterator[kc.Table]:
    with kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual"}) as table:
        table.insert({"k": list(range(100)), "v": [0] * 100})
        table.flush()
        yield table


USES: dict[str, tuple[Callable[[kc.Table], Any], str]] = {
    "get": (lambda t: t.get(1), "{'k': 1, 'v': 1}"),
    "get of a column": (lambda t: t.get(1, ["v"]), "{'v': 1}"),
    "get_many": (lambda t: t.get_many([1, 2])["v"].to_pylist(), "[1, 1]"),
    "count": (lambda t: t.count(pc.field("v") == 1), "100"),
    "scan": (lambda t: pc.sum(t.scan().to_table()["v"]).as_py(), "100"),
    "changes": (lambda t: t.changes(key=5).to_table()["_op"].to_pylist(), "['insert', 'update']"),
    "schema": (lambda t: t.schema.names, "['k', 'v']"),
    "write": (lambda t: t.insert({"k": [1], "v": [1]}), "ReadOnly: "),
    "close": (lambda t: (t.close(), t.close())[0], "None"),
    "collect": (lambda t: gc.collect() >= 0, "True"),
}


@pytest.mark.parametrize("name", USES)
def test_a_reader_opens_itself_in_the_child(writer: kc.Table, path: Path, name: str) -> None:
    use, answer = USES[name]
    with kc.open_table(path) as reader:
        assert reader.scan().to_table().num_rows == 100  # with threads, and open files
        writer.update(where=pc.field("k") >= 0, set={"v": 1})
        assert in_child(lambda: use(reader)).startswith(answer)
        assert pc.sum(reader.scan().to_table()["v"]).as_py() == 0, "the parent's state is as it was"
        reader.refresh()
        assert reader.count(pc.field("v") == 1) == 100


def test_snapshots_and_scans_of_before_are_read_there(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path) as reader:
        snapshot, scan = reader.snapshot(), reader.scan(["v"], pc.field("k") < 10)
        begun = iter(reader.scan(batch_rows=10))
        next(begun)
        writer.update(where=pc.field("k") >= 0, set={"v": 1})
        writer.flush()

        def look() -> Any:
            again = [snapshot.get(1), scan.to_table()["v"].to_pylist(), reader.get(1)]
            snapshot.close()
            return [*again, scan.count()]

        assert in_child(look) == repr([{"k": 1, "v": 0}, [0] * 10, {"k": 1, "v": 1}, 10])
        assert snapshot.get(1) == {"k": 1, "v": 0} and sum(batch.num_rows for batch in begun) == 90


def test_a_grandchild_opens_it_too(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path) as reader:
        assert in_child(lambda: (in_child(reader.count), reader.count())) == "('100', 100)"
        assert in_child(lambda: (reader.count(), in_child(reader.count))) == "(100, '100')"


def test_a_reader_that_was_closed_stays_closed_there(writer: kc.Table, path: Path) -> None:
    reader = kc.open_table(path)
    reader.close()
    assert in_child(reader.count).startswith("Closed: ")
    with kc.open_table(path) as reader:
        assert in_child(lambda: (reader.count(), reader.close(), reader.count())).startswith("Closed: ")


def test_another_table_is_refused_in_the_child(writer: kc.Table, path: Path) -> None:
    with kc.open_table(path) as reader:
        writer.close()
        path.rename(path.with_name("old"))
        kc.create_table(path, SCHEMA, "k").close()
        assert in_child(reader.count).startswith("TableNotFound: the table that this handle was of")
        with pytest.raises(kc.TableNotFound, match="another one is there"):
            reader.refresh()


def test_a_fork_while_another_thread_refreshes(writer: kc.Table, path: Path) -> None:
    """It holds a lock of the handle, which nobody in the child gives back."""
    inside, go_on = threading.Event(), threading.Event()
    with kc.open_table(path) as reader:
        before_each_open(reader, lambda: (inside.set(), go_on.wait(LATE_S)))
        refresh = Thread(reader.refresh)
        assert inside.wait(LATE_S)
        before = os.times().elapsed
        assert in_child(lambda: (reader.count(), reader.refresh(), reader.count())) == "(100, None, 100)"
        assert os.times().elapsed - before < LATE_S
        go_on.set()
        refresh.join(LATE_S)
        assert refresh.answer == [None]


def test_listeners_are_told_in_the_child_too(writer: kc.Table, path: Path) -> None:
    told: list[str] = []
    with kc.open_table(path, listener=lambda event: told.append(type(event).__name__)) as reader:
        assert in_child(lambda: (reader.count(), told)[1]) == repr(["TableOpened", "TableOpened"])
        assert told == ["TableOpened"]
