"""What an open table knows of its writers, how it comes into TABLE, and that a close ends that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.format.names import mark_of_job
from kudu_core.common.idempotence import writers as limits
from kudu_core.common.idempotence.writers import AppliedWrite
from kudu_core.table.opened import writers as opened
from kudu_core.table.opened.job_marks import job_directory
from kudu_core.table.stored.table_state import read_state
from tests.support.clock import ManualClock
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of

PATH = "/d/t"
TABLE = f"{PATH}/TABLE"
SCHEMA = pa.schema([("k", pa.int64())])
LATE_S = 120.0


def empty() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    fs.sync_dir("/")
    return fs


class Replacing:
    """Who replaces TABLE of an open table, by their threads' names, and a step before the next time."""

    def __init__(self, table: kc.Table) -> None:
        self.by: list[str] = []
        self.before: Callable[[], object] | None = None
        fs: Any = engine_of(table).fs
        self._usual = fs.replace_file
        fs.replace_file = self._replace_file

    def _replace_file(self, path: str, data: Any) -> None:
        if path == TABLE and self.before is not None:
            step, self.before = self.before, None
            step()
        self._usual(path, data)
        if path == TABLE:
            self.by.append(threading.current_thread().name)


def create(disk: MemoryFileSystem) -> kc.Table:
    return kc.create_table(
        PATH, SCHEMA, "k", options={"maintenance": "manual"}, _fs=disk, _clock=ManualClock()
    )


def put(table: kc.Table, key: int, app_id: str) -> Any:
    return table.upsert({"k": [key]}, txn=(app_id, 1))


class Thread:
    """Work of another thread, and what it has raised."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.error = error

    def end(self) -> BaseException | None:
        self._thread.join(LATE_S)
        assert not self._thread.is_alive()
        return self.error


def test_tokens_are_written_where_there_is_something_new() -> None:
    disk = empty()
    with create(disk) as table:
        writers, replacing = engine_of(table).writers, Replacing(table)
        put(table, 1, "app")
        through = engine_of(table).committed_ts
        assert writers.save(through) == 0
        assert read_state(disk, TABLE).tokens == writers.applied_writes and len(replacing.by) == 1
        assert writers.save(through) == 0 and len(replacing.by) == 1, "nothing is new"
        assert writers.save(through + 1) == 0 and len(replacing.by) == 2
        assert read_state(disk, TABLE).applied_ts == through + 1
        put(table, 2, "another")
        assert writers.save(through) == 0 and len(replacing.by) == 3, "of the same records, with a token more"
        assert read_state(disk, TABLE).tokens == writers.applied_writes


def test_the_log_is_durable_up_to_the_newest_token_before_table_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protocol K3."""
    with create(empty()) as table:
        engine, replacing = engine_of(table), Replacing(table)
        newest = [put(table, key, f"app {key}").timestamp for key in range(3)][-1]
        waited: list[tuple[int, int]] = []

        def wait_durable(ts: int) -> None:
            waited.append((ts, len(replacing.by)))

        monkeypatch.setattr(engine.log, "wait_durable", wait_durable)
        engine.writers.save(engine.committed_ts)
        assert waited == [(newest, 0)] and len(replacing.by) == 1
        monkeypatch.undo()


def test_a_job_has_its_mark_before_the_log_may_forget_it() -> None:
    disk, job = empty(), "job-" + "a" * 32
    with create(disk) as table:
        writers = engine_of(table).writers
        disk.mkdir(job_directory(PATH, job))
        writers.applied_jobs[job] = AppliedWrite(0, 5, (1, 0, 0, 0))
        writers.save(4)
        assert not disk.exists(f"{PATH}/staging/{mark_of_job(job)}")
        writers.save(5)
        assert disk.exists(f"{PATH}/staging/{mark_of_job(job)}")


@pytest.fixture
def few_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fifth is one too many, and nobody is too young to be forgotten."""
    for module in (limits, opened):
        monkeypatch.setattr(module, "MAX_TOKENS", 4)
    monkeypatch.setattr(limits, "TOKENS_DROPPED", 2)
    monkeypatch.setattr(limits, "YOUNG_S", 0)


@pytest.mark.usefixtures("few_writers")
def test_a_writer_that_makes_room_after_a_close_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was let in before the close began, and holds no lock for which the close waits."""
    disk = empty()
    table = create(disk)
    for number in range(4):
        put(table, number, f"app {number}")
    writers, replacing = engine_of(table).writers, Replacing(table)
    there, go = threading.Event(), threading.Event()
    save = writers.save

    def late(*given: Any, **named: Any) -> int:
        there.set()
        assert go.wait(LATE_S)
        return save(*given, **named)

    monkeypatch.setattr(writers, "save", late)
    engine_of(table).clock.advance(10)  # type: ignore[attr-defined]
    writer = Thread("writer", lambda: put(table, 9, "one more"))
    assert there.wait(LATE_S)
    table.close()
    before = disk.identity(TABLE), disk.read_bytes(TABLE, 1 << 20), disk.listdir(f"{PATH}/staging")
    go.set()
    assert isinstance(writer.end(), kc.Closed)
    assert (disk.identity(TABLE), disk.read_bytes(TABLE, 1 << 20), disk.listdir(f"{PATH}/staging")) == before
    assert "writer" not in replacing.by
    with kc.open_table(PATH, _fs=disk) as reader:
        assert reader.count() == 4


@pytest.mark.usefixtures("few_writers")
def test_a_close_waits_for_a_writer_that_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """And writes TABLE after it: the end of the log is what TABLE says last."""
    disk = empty()
    table = create(disk)
    for number in range(4):
        put(table, number, f"app {number}")
    writers = engine_of(table).writers
    there, closing = threading.Event(), threading.Event()
    close = writers.close

    def closes() -> None:
        closing.set()
        close()
        assert "writer" in replacing.by, "it was at it, and has come to its end"

    def stands_still() -> None:
        there.set()
        assert closing.wait(LATE_S)

    monkeypatch.setattr(writers, "close", closes)
    engine_of(table).clock.advance(10)  # type: ignore[attr-defined]
    replacing = Replacing(table)
    replacing.before = stands_still
    writer = Thread("writer", lambda: put(table, 9, "one more"))
    assert there.wait(LATE_S)
    closer = Thread("closer", table.close)
    assert closer.end() is None
    assert isinstance(writer.end(), kc.Closed), "its turn to write comes after the close"
    assert replacing.by == ["writer", "closer"]
    assert read_state(disk, TABLE).clean_end
    with kc.open_table(PATH, _fs=disk) as reader:
        assert reader.count() == 4
