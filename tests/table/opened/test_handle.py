"""A reader's handle, whose state moves under who reads it: a refresh, a close, a writer between two steps."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.opened.engine import Engine
from kudu_core.table.opened.handle import STATE_TRIES
from kudu_core.table.opened.pins import Pins
from tests.support.fs.slow import LATE_S, Thread
from tests.support.inside import engine_of, handle_of, is_closed, watch_of
from tests.support.interrupts import Interruption, interrupted
from tests.support.models.overtaken import AT_ONCE, ROWS, SCHEMA, WITHOUT_HISTORY, Pair


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """``parametrize("pair", [options], indirect=True)``: of other options."""
    made = Pair(tmp_path / "t", getattr(request, "param", AT_ONCE))
    yield made
    made.close()


without_history = pytest.mark.parametrize("pair", [WITHOUT_HISTORY], indirect=True)


# ---- history that is gone ----


@without_history
def test_shares_of_a_snapshot_whose_history_is_gone_are_refused(pair: Pair) -> None:
    """No share would be no rows, without an error, for who reads them all."""
    pair.writer.insert({"k": list(range(200, 20_200)), "v": [1] * 20_000})  # more than a page
    pair.writer.flush()
    pair.reader.refresh()
    at = pair.reader.timestamp
    pair.writer.delete(where=pc.field("k") >= 0)
    pair.writer.flush()
    pair.writer.compact(full=True)
    pair.writer.gc()
    with pytest.raises(kc.SnapshotTooOld):
        pair.reader.scan_tokens(at=at, target_rows=10)


@without_history
def test_shares_of_changes_whose_history_is_gone_are_refused(pair: Pair, monkeypatch: Any) -> None:
    """The table is refreshed by another thread, between the window's check and the cut."""
    from kudu_core.table.changes import change_tokens

    since = pair.reader.timestamp - 1
    cut = change_tokens._cut

    def later(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(change_tokens, "_cut", cut)
        pair.replace()
        pair.reader.refresh()
        return cut(*arguments, **options)

    monkeypatch.setattr(change_tokens, "_cut", later)
    with pytest.raises(kc.ChangesLost):
        pair.reader.change_tokens(since, pair.reader.timestamp)
    monkeypatch.setattr(change_tokens, "_cut", later)
    tokens = pair.reader.change_tokens(None, net=True)  # where history begins is found anew
    assert sum(pair.reader.change_token(token).to_table().num_rows for token in tokens) == ROWS


def test_a_writers_shares_hold_their_history(tmp_path: Path) -> None:
    """While they are cut no history is dropped that the snapshot needs."""
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=AT_ONCE) as table:
        table.insert({"k": [1], "v": [1]})
        held: list[int] = []
        pin = Pins.pin

        def noted(pins: Pins, snapshot: int) -> Any:
            held.append(snapshot)
            return pin(pins, snapshot)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Pins, "pin", noted)
            tokens = table.scan_tokens()
        assert held == [tokens[0].timestamp] and not len(engine_of(table).pins)


# ---- arguments that can be read once only ----


def once(*values: Any) -> Iterator[Any]:
    return iter(values)


def keys() -> pa.RecordBatchReader:
    batch = pa.record_batch({"k": pa.array([1, 5, 200], pa.int64())})
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def filters() -> list[Any]:
    return [("k", "in", once(1, 5, 200))]


# What is asked with arguments that can be read once; the answer is of the newest state, where v is 2, unless
# what is asked for is fixed before it is read.
ONCE: dict[str, tuple[Callable[[kc.Table], Any], Any]] = {
    "get": (lambda t: t.get(1, once("v")), {"v": 2}),
    "get_many": (lambda t: t.get_many(keys(), once("v"))["v"].to_pylist(), [2, 2, None]),
    "get_many of arrays": (lambda t: t.get_many({"k": [1]}, once("k", "v")).num_columns, 3),
    "scan": (lambda t: t.scan(once("v"), filters()).to_pylist(), [{"v": 1}, {"v": 1}]),
    "count": (lambda t: t.count(filters()), 2),
    "scan_tokens": (
        lambda t: [t.scan_token(s).to_pylist() for s in t.scan_tokens(once("v"), filters())],
        [[{"v": 1}, {"v": 1}]],
    ),
    "changes": (
        lambda t: t.changes(columns=once("v"), where=filters(), net=True).to_table()["v"].to_pylist(),
        [1, 1],
    ),
}


@pytest.mark.parametrize("name", ONCE)
def test_what_can_be_read_once_is_read_once(pair: Pair, name: str, monkeypatch: Any) -> None:
    """The reader's files are gone, so the call begins again; each plan is made twice, as beside ALTER."""
    ask, answer = ONCE[name]
    handle = handle_of(pair.reader)
    steady = handle.steady

    def twice(make: Callable[[Engine], Any]) -> Any:
        steady(make)
        return steady(make)

    monkeypatch.setattr(handle, "steady", twice)
    pair.replace()
    assert ask(pair.reader) == answer


# ---- the end ----


def test_a_close_beside_a_refresh_is_final(pair: Pair) -> None:
    inside, go_on = threading.Event(), threading.Event()
    pair.before_each_open(lambda: (inside.set(), go_on.wait(LATE_S)))
    pair.replace()
    refresh = Thread(pair.reader.refresh)
    assert inside.wait(LATE_S)
    pair.reader.close()  # does not wait for the refresh
    with pytest.raises(kc.Closed, match="was closed"):
        pair.reader.count()
    go_on.set()
    refresh.join(LATE_S)
    assert isinstance(refresh.answer[0], kc.Closed) and is_closed(pair.reader)
    with pytest.raises(kc.Closed, match="was closed"):
        pair.reader.count()
    assert not watch_of(pair.reader).alive


@pytest.mark.parametrize("act", ["count", "get", "refresh", "close"])
def test_a_listener_of_a_refresh_may_use_the_table(tmp_path: Path, act: str) -> None:
    """Listeners are told under no lock."""
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=AT_ONCE) as writer:
        told: list[str] = []
        tables: list[kc.Table] = []
        acts: dict[str, Callable[[kc.Table], Any]] = {
            "count": lambda t: t.count(),
            "get": lambda t: t.get(1),
            "refresh": lambda t: t.refresh(),
            "close": lambda t: t.close(),
        }

        def listener(event: Any) -> None:
            told.append(type(event).__name__)
            if len(told) == 2:
                other = Thread(lambda: acts[act](tables[0]))  # whoever holds a lock, it is not this thread
                other.join(LATE_S)
                assert not other.is_alive()
                told.append("ended")

        with kc.open_table(tmp_path / "t", listener=listener) as reader:
            tables.append(reader)
            writer.insert({"k": [1], "v": [1]})
            reader.refresh()
            assert told[:1] == ["TableOpened"] and "ended" in told
            assert is_closed(reader) == (act == "close")
            if act != "close":
                assert reader.count() == 1


def test_an_interrupted_refresh_leaves_no_state_behind(tmp_path: Path) -> None:
    """One state is held by a handle, wherever a refresh was cut short, and it is closed with the handle."""
    gc.freeze()  # else each look goes through all that tests before have left
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=AT_ONCE) as writer:
        writer.insert({"k": [1], "v": [1]})
        reader = kc.open_table(tmp_path / "t")

        def states() -> int:
            gc.collect()
            engines = [found for found in gc.get_objects() if isinstance(found, Engine)]
            return sum(engine.path == str(tmp_path / "t") and not engine.writer for engine in engines)

        whole = Interruption(None)
        with whole:
            reader.refresh()
        assert states() == 1
        for at in range(whole.count - 40, whole.count + 1):
            _, interruption = interrupted(reader.refresh, at)
            assert states() == 1, f"place {at} of {whole.count}: {interruption.where}"
        last = engine_of(reader)
        del reader
        gc.collect()
        assert last.closing.ended
    gc.unfreeze()


# ---- states that move ----


@pytest.mark.parametrize("name", ["count", "changes", "get", "get_many", "scan_tokens", "stats"])
def test_a_writer_may_replace_files_again_and_again(pair: Pair, name: str) -> None:
    """What a reader finds gone is damage where a state names it that was read after that, and not before."""
    calls: dict[str, Callable[[], Any]] = {
        "count": lambda: pair.reader.count(),
        "changes": lambda: len(pair.reader.changes(net=True).to_table()),
        "get": lambda: ROWS * bool(pair.reader.get(1)),
        "get_many": lambda: pair.reader.get_many(list(range(ROWS - 1)))["_found"].to_pylist().count(True) + 1,
        "scan_tokens": lambda: sum(token.rows for token in pair.reader.scan_tokens(target_rows=10)),
        "stats": lambda: pair.reader.stats("table")["rows_stored"].to_pylist()[0],
    }
    left = [4]

    def replace_again() -> None:
        if left[0]:
            left[0] -= 1
            pair.replace()

    pair.replace()
    pair.before_each_open(replace_again)
    assert calls[name]() == ROWS


def test_a_file_that_is_lost_is_told_after_one_look(pair: Pair) -> None:
    looks: list[int] = []
    pair.before_each_open(lambda: looks.append(1))
    for file in pair.path.rglob("*.rows"):
        file.unlink()
    with pytest.raises(kc.Corruption, match="missing"):
        pair.reader.count()
    assert len(looks) == 1


def test_a_reader_gives_up_on_a_writer_that_is_always_faster(pair: Pair) -> None:
    pair.replace()
    pair.before_each_open(pair.replace)
    with pytest.raises(kc.KuduError, match=f"changed {STATE_TRIES} times") as told:
        pair.reader.scan().to_table()
    assert not isinstance(told.value, kc.Corruption)
