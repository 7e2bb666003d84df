"""Promises that a review found broken, each by the case that broke it.

What a call may rest on (protocol W4), interrupts between two steps, a close beside other calls, readers
that meet a writer in the middle of a step, names and edits that a failed fsync may have lost.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.cfile.files.delta_codes import REDO_UPDATE
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from kudu_core.table.opened.pins import Pins
from kudu_core.tablet.flush.memory import flush_memrowset
from kudu_core.tablet.maintain import flush_lane
from kudu_core.tablet.store import manifest
from kudu_core.tablet.store.manifest import Edit
from tests.support import clock
from tests.support.fs.faulty import Call, FaultyFileSystem, Rule
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, flush_lane_of, log_of, poison_of, tablet_of, tablets_of, watch_of

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("s", pa.string())])
PATH = "/d/t"
SOON_S = 0.3
LATE_S = 10.0


class Disk(FaultyFileSystem):
    """A file system in memory that can hold up one call of the thread named "slow"."""

    def __init__(self) -> None:
        self.memory = MemoryFileSystem()
        self.memory.mkdir("/d")
        self.memory.sync_all()
        super().__init__(self.memory, before=self._look)
        self.hold: Callable[[Call], bool] = lambda call: False
        self.see: Callable[[Call], object] = lambda call: None
        self.reached, self.go = threading.Event(), threading.Event()

    def _look(self, call: Call) -> None:
        self.see(call)
        if threading.current_thread().name == "slow" and not self.reached.is_set() and self.hold(call):
            self.reached.set()
            assert self.go.wait(LATE_S)

    @contextmanager
    def held(self, hold: Callable[[Call], bool], action: Callable[[], object]) -> Iterator[None]:
        """``action`` stands in a call that ``hold`` picks; it goes on at the end."""
        self.hold = hold
        slow = Thread(action, "slow")
        try:
            assert self.reached.wait(LATE_S)
            yield
        finally:
            self.go.set()
            slow.join(LATE_S)


class Thread(threading.Thread):
    """Runs an action and keeps its answer or its exception."""

    def __init__(self, action: Callable[[], object], name: str = "other") -> None:
        super().__init__(name=name, daemon=True)
        self.answer: list[object] = []
        self._action = action
        self.start()

    def run(self) -> None:
        try:
            self.answer.append(self._action())
        except BaseException as exc:  # noqa: BLE001  the test looks at it
            self.answer.append(exc)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def create(disk: Disk, path: str = PATH, **options: Any) -> kc.Table:
    return kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual", **options}, _fs=disk)


def reopen(disk: Any, **options: Any) -> kc.Table:
    return kc.open_table(PATH, "rw", options=options or None, _fs=disk)


def rows(lower: int, upper: int) -> pa.Table:
    keys = list(range(lower, upper))
    return pa.table({"k": keys, "a": keys, "s": ["x"] * len(keys)}, schema=SCHEMA)


def values_of(table: kc.Table) -> dict[int, int]:
    found = table.scan(["k", "a"]).to_table().to_pydict()
    return dict(zip(found["k"], found["a"], strict=True))


def log_sync(call: Call) -> bool:
    return call.op == "sync" and "/wal/" in call.path


# ---- protocol W4: an answer rests on nothing that a crash may take back ----


@pytest.mark.parametrize("ingest", [False, True])
def test_w4_a_refusal_waits_for_the_record_it_rests_on(disk: Disk, ingest: bool) -> None:
    table = create(disk, ingest_threshold_rows=3)
    data = rows(10, 14 if ingest else 11)
    with disk.held(log_sync, lambda: table.insert(rows(10, 11))):
        other = Thread(lambda: table.insert(data))
        other.join(SOON_S)
        assert other.is_alive(), "the row that refuses it is not durable"
    other.join(LATE_S)
    assert isinstance(other.answer[0], kc.RowErrors)


def test_w4_nothing_to_delete_waits_for_the_delete_that_left_nothing(disk: Disk) -> None:
    table = create(disk)
    table.insert(rows(0, 5))
    with disk.held(log_sync, lambda: table.delete(where=pc.field("k") < 3)):
        other = Thread(lambda: table.delete(where=pc.field("k") < 3))
        other.join(SOON_S)
        assert other.is_alive()
    other.join(LATE_S)
    assert other.answer[0].counts == (0, 0, 0, 0)  # type: ignore[attr-defined]


def test_w4_an_ingest_that_ignores_all_waits(disk: Disk) -> None:
    table = create(disk, ingest_threshold_rows=3)
    table.insert(rows(10, 12))
    with disk.held(log_sync, lambda: table.insert(rows(12, 13))):
        other = Thread(lambda: table.insert(rows(10, 13), on_conflict="ignore"))
        other.join(SOON_S)
        assert other.is_alive()
    other.join(LATE_S)
    assert other.answer[0].ignored == 3  # type: ignore[attr-defined]


def test_g3_a_key_that_came_to_nothing_is_decided_again(disk: Disk) -> None:
    """Insert and delete of a key leave nothing to conflict with, but somebody inserted it meanwhile."""
    table = create(disk, ingest_threshold_rows=3)
    done: list[int] = []

    def meanwhile(call: Call) -> None:
        if not done and call.op == "create" and "/staging/" in call.path:
            done.append(1)
            table.insert(rows(50, 51))

    disk.see = meanwhile
    operations = {"k": [50, 50, 1, 2], "a": [0] * 4, "_op": ["insert", "delete", "insert", "insert"]}
    with pytest.raises(kc.RowErrors):
        table.apply(operations)
    assert done and table.count() == 1


# ---- interrupts: what a signal handler raises between two steps ----


class Interrupting:
    """An object whose method ``name`` is cut off right after its work."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner, self._name = inner, name

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name != self._name:
            return real

        def cut(*arguments: Any) -> None:
            real(*arguments)
            raise KeyboardInterrupt

        return cut


@pytest.mark.parametrize("data", [rows(0, 2), [{"k": 1, "a": 1, "s": "x"}], rows(0, 9)])
def test_w6_an_interrupt_after_the_append_poisons(disk: Disk, data: Any) -> None:
    """Else the record is in the log and in no store, and every later call waits for it."""
    table = create(disk, ingest_threshold_rows=5)
    log = log_of(table)
    log.append = Interrupting(log, "append").append  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        table.insert(data)
    with pytest.raises(kc.Poisoned):
        table.insert(rows(20, 21))
    table.close()
    assert reopen(disk).count() == len(data)


def test_an_interrupt_after_the_tree_is_filled_doubles_no_row(disk: Disk) -> None:
    table = create(disk)
    table.insert(rows(0, 50))
    memory = tablet_of(table).view.active
    tree = memory._tree
    memory._tree = Interrupting(tree, "insert_sorted")  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        table.scan(order="key").to_table()
    memory._tree = tree
    assert table.scan(["k"], order="key").to_table()["k"].to_pylist() == list(range(50))


def test_e2_an_interrupt_between_edit_and_view_poisons(disk: Disk) -> None:
    """Else the next flush writes the same rows a second time."""
    table = create(disk)
    table.insert(rows(0, 50))
    tablet = tablet_of(table)
    assert tablet.manifest is not None
    tablet.manifest.append = Interrupting(tablet.manifest, "append").append  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        table.flush()
    with pytest.raises(kc.Poisoned):
        table.flush()
    table.close()
    assert reopen(disk).count() == 50


def test_an_interrupt_at_the_end_of_open_leaves_no_thread(disk: Disk) -> None:
    """Protocol O8: maintenance starts when nothing is left that could fail."""
    create(disk).close()

    def listener(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kc.open_table(PATH, "rw", options={"maintenance": "background"}, listener=listener, _fs=disk)
    assert not [t for t in threading.enumerate() if t.name == "kudu-core-flush"]
    reopen(disk).close()


# ---- close beside other calls, and by the collector ----


def test_close_waits_for_a_flush(disk: Disk) -> None:
    """No MANIFEST is written without the lease."""
    table = create(disk)
    table.insert(rows(0, 50))
    order: list[str] = []
    lease = engine_of(table).lease
    assert lease is not None
    release = lease.release

    def released() -> None:
        order.append("release")
        release()

    lease.release = released  # type: ignore[method-assign]

    def look(call: Call) -> None:
        if call.op in ("rename", "append") and call.path.endswith("/MANIFEST"):
            order.append("edit")

    disk.see = look
    with disk.held(lambda c: c.op == "sync_dir" and "/tablets/" in c.path, table.flush):
        closing = Thread(table.close)
        closing.join(SOON_S)
    closing.join(LATE_S)
    assert order == ["edit", "release"]
    with pytest.raises(kc.Closed):
        table.flush()


def test_o3_clean_end_names_no_record_that_a_power_cut_may_take(disk: Disk) -> None:
    """A write that comes during the last fsync of a close."""
    create(disk).close()
    disk.memory.sync_all()
    table = reopen(disk, durability="none")
    table.insert(rows(20, 22))
    engine = engine_of(table)
    decided, go = threading.Event(), threading.Event()
    synced, end = threading.Event(), threading.Event()
    reserve, fence = engine.memory.reserve, engine.log._fence_check

    def slow_reserve(layings: Any, record_bytes: int) -> None:
        decided.set()
        assert go.wait(LATE_S)
        reserve(layings, record_bytes)

    def slow_fence() -> None:
        if threading.current_thread().name == "closing" and not synced.is_set():
            synced.set()
            assert end.wait(LATE_S)
        fence()

    engine.memory.reserve = slow_reserve  # type: ignore[method-assign,assignment]
    engine.log._fence_check = slow_fence
    write = Thread(lambda: table.insert(rows(30, 32)))
    assert decided.wait(LATE_S)
    closing = Thread(table.close, "closing")
    synced.wait(SOON_S)
    go.set()
    write.join(SOON_S)
    end.set()
    closing.join(LATE_S)
    write.join(LATE_S)
    assert not closing.is_alive() and not write.is_alive()
    for seed in range(10):
        reopen(disk.memory.crash_clone(random.Random(seed))).close()


def test_a_table_is_collected_on_its_own_thread(disk: Disk) -> None:
    """The collector runs wherever memory is asked for, also under the locks that a close needs."""
    table = create(disk, durability="group", group_interval_s=0.01)
    collect, done = watch_of(table), threading.Event()

    def by_the_log_thread(call: Call) -> None:
        if threading.current_thread().name == "kudu-log" and log_sync(call) and collect.alive:
            collect()
            done.set()

    disk.see = by_the_log_thread
    table.insert(rows(0, 2))
    assert done.wait(LATE_S)
    deadline = time.monotonic() + LATE_S
    while time.monotonic() < deadline:
        with suppress(kc.Locked):
            assert reopen(disk).count() == 2
            return
        time.sleep(0.02)
    pytest.fail("the table was not closed")


def test_h1_the_collector_may_unpin_in_the_middle_of_a_pin() -> None:
    pins = Pins(0)
    entered: list[int] = []
    held = [pins.pin(1)]

    class Snapshot(int):
        def __hash__(self) -> int:
            if not entered:
                entered.append(1)
                held.pop().release()
            return super().__hash__()

    pin = Thread(lambda: held.append(pins.pin(Snapshot(5))))
    pin.join(LATE_S)
    assert not pin.is_alive() and len(pins) == 1
    held.clear()
    assert not len(pins)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_p1_a_scan_that_was_begun_before_a_fork(tmp_path: Any) -> None:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"scan_threads": 2}) as table:
        table.insert(rows(0, 60_000))
        batches = iter(table.scan(batch_rows=100))
        next(batches)
        child = os.fork()
        if not child:
            code = 1
            try:
                list(batches)
            except kc.Closed:
                code = 0
            finally:
                os._exit(code)
        deadline = time.monotonic() + LATE_S
        ended = (0, 0)
        while not ended[0] and time.monotonic() < deadline:
            ended = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if not ended[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert ended == (child, 0)
        assert sum(b.num_rows for b in batches) == 59_900


# ---- readers beside a writer in the middle of a step ----


def test_a_point_read_while_changes_get_their_numbers() -> None:
    """The map names a change whose chain does not yet, in a kernel that works without the GIL."""
    rows = 50_000
    rowids = np.arange(rows, dtype=np.uint32)
    log, first = ChangeLog(), ColumnBuffers(8, rows, np.arange(rows).view(np.uint8))
    log.append(1, Change(REDO_UPDATE, rowids, {2: first}))
    view, stop = log.at(1), threading.Event()

    def write() -> None:
        later = ColumnBuffers(8, rows, np.full(rows, 7).view(np.uint8))
        try:
            for ts in range(2, 40):
                log.append(ts, Change(REDO_UPDATE, rowids[::-1].copy(), {2: later}))
        finally:
            stop.set()

    writing = Thread(write)
    reads = 0
    while not stop.is_set() or not reads:
        for row in (0, 5, rows - 1):
            for read in (view.updates(2, row, row + 1), view.updates_of(2, np.array([row]))):
                assert read is not None
                assert read[0].tolist() == [row]
                assert read[1].values.view(np.int64).tolist() == [row]
        reads += 1
    writing.join(LATE_S)
    assert len(log) == 39 * rows


def test_memory_is_measured_while_a_column_gets_its_first_change() -> None:
    cell, stop = ColumnBuffers(8, 1, np.zeros(8, np.uint8)), threading.Event()
    logs = [ChangeLog()]

    def measure() -> None:
        while not stop.is_set():
            assert logs[0].nbytes >= 0

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        measuring = Thread(measure)
        end = time.monotonic() + 0.5
        while time.monotonic() < end and measuring.is_alive():
            logs[0] = log = ChangeLog()
            for number in range(60):
                log.append(number + 1, Change(REDO_UPDATE, np.array([5], np.uint32), {number: cell}))
    finally:
        stop.set()
        sys.setswitchinterval(before)
    measuring.join(LATE_S)
    assert measuring.answer == [None]


def test_a_snapshot_of_another_table_reads_nothing_that_is_not_visible(disk: Disk) -> None:
    table, other = create(disk), create(disk, "/d/u")
    with disk.held(log_sync, lambda: table.insert(rows(7, 9))):
        other.insert(rows(0, 2))
        snapshot = other.snapshot()
        read = Thread(lambda: table.get(7, at=snapshot))
        read.join(SOON_S)
        assert read.is_alive()
    read.join(LATE_S)
    assert read.answer == [{"k": 7, "a": 7, "s": "x"}]


@pytest.mark.parametrize("durability", ["sync", "group", "none"])
@pytest.mark.parametrize("now", [False, True])
def test_tokens_can_be_read_by_others_at_once(disk: Disk, durability: str, now: bool) -> None:
    table = create(disk, durability=durability, group_interval_s=30.0)
    table.insert(rows(0, 5))
    time.sleep(0.001)
    tokens = table.scan_tokens(at=clock.now() if now else None)
    with kc.open_table(PATH, _fs=disk) as reader:
        assert sum(reader.scan_token(token).to_table().num_rows for token in tokens) == 5


def test_r1_a_writer_may_act_anywhere_in_a_readers_open() -> None:
    """The reader sees the table of before, or of after one of the steps."""
    call, acted = 0, True
    while acted:
        disk = Disk()
        table = create(disk, ingest_threshold_rows=8)
        table.insert(rows(0, 5))
        table.flush()
        table.update({"k": [1], "a": [9]})
        table.insert(rows(5, 8))
        table.close()
        acted, seen, at = False, 0, call + 1
        writers: list[kc.Table] = []
        legal = [{i: i for i in range(8)} | {1: 9}]

        def act(
            _: Call,
            at: int = at,
            disk: Disk = disk,
            legal: list[Any] = legal,
            writers: list[kc.Table] = writers,
        ) -> None:
            nonlocal acted, seen
            seen += 1
            if seen != at:
                return
            acted = True
            writer = kc.open_table(PATH, "rw", _fs=disk.memory)
            writers.append(writer)
            steps: list[Callable[[], object]] = [
                lambda: writer.insert(rows(100, 120)),
                lambda: writer.delete({"k": [2]}),
                lambda: writer.flush(),
                lambda: writer.insert(rows(200, 203)),
            ]
            for step in steps:
                step()
                legal.append(values_of(writer))

        disk.see = act
        with kc.open_table(PATH, _fs=disk) as reader:
            assert values_of(reader) in legal, call
        for writer in writers:
            writer.close()
        call += 3
    assert call > 30


# ---- what an open, a flush and a create rest on ----


def test_rows_larger_than_a_file_can_be_flushed(disk: Disk) -> None:
    table = create(disk, rowset_target_bytes=64 << 10)
    table.insert({"k": [1, 2, 3], "s": ["y" * (1 << 20)] * 3})
    table.flush()
    assert table.count() == 3


def test_a_smaller_memory_limit_opens_what_a_larger_one_wrote(disk: Disk) -> None:
    table = create(disk, ingest_threshold_rows=1 << 31, ingest_threshold_bytes=1 << 30)
    table.insert({"k": list(range(17)), "s": ["z" * (1 << 20)] * 17})
    table.close()
    assert reopen(disk, memory_limit_bytes=16 << 20).count() == 17


def test_a_token_that_cannot_be_stored_is_refused(disk: Disk) -> None:
    table = create(disk)
    with pytest.raises(kc.InvalidArgument, match="Unicode"):
        table.insert(rows(0, 2), txn=("a\ud800", 1))
    table.close()
    assert reopen(disk).count() == 0


def test_staging_that_cannot_be_removed_keeps_nobody_from_opening(disk: Disk) -> None:
    create(disk).close()
    disk.memory.mkdir(f"{PATH}/staging", exist_ok=True)
    disk.memory.mkdir(f"{PATH}/staging/ingest-{0:032x}")
    disk.rules = [Rule(ops={"rmdir"}, error=errno.ENOTEMPTY)]
    reopen(disk).close()
    assert disk.fired == 1


def test_two_that_create_a_table_at_once(disk: Disk) -> None:
    """The second one must not take the first one's rows away."""
    with disk.held(lambda call: (call.op, call.path) == ("mkdir", PATH), lambda: create(disk)):
        table = create(disk)
        table.insert(rows(0, 5))
    table.insert(rows(5, 7))
    table.close()
    assert reopen(disk).count() == 7


def test_w8_a_failed_fsync_of_a_directory_poisons(disk: Disk) -> None:
    table = create(disk)
    table.insert(rows(0, 5))
    disk.rules = [Rule(ops={"sync_dir"}, path_glob="*/tablets/*")]
    with pytest.raises(OSError, match="Input/output"):
        table.flush()
    with pytest.raises(kc.Poisoned):
        table.flush()
    assert table.count() == 5
    table.close()
    assert reopen(disk).count() == 5


def test_a_manifest_is_rewritten_beside_its_fsync(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(disk)
    table.insert(rows(0, 5))
    table.flush()
    edits = tablet_of(table).manifest
    assert edits is not None
    edits.append(Edit(next_file=50))
    monkeypatch.setattr(manifest, "REWRITE_BYTES", 0)
    edits._checkpoint_size = 1
    with disk.held(lambda call: call.op == "sync" and call.path.endswith("/MANIFEST"), edits.sync):
        rewriting = Thread(lambda: edits.append(Edit(next_file=51)))
        rewriting.join(SOON_S)
    rewriting.join(LATE_S)
    assert rewriting.answer == [None] and poison_of(table) is None


def test_a_tablet_that_cannot_be_flushed_does_not_hold_up_the_others(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = kc.create_table(
        PATH,
        SCHEMA,
        "k",
        partition_by=kc.HashPartition(["k"], 3),
        options={"maintenance": "manual", "flush_age_s": 0},
        _fs=disk,
    )
    table.insert(rows(0, 40))
    time.sleep(0.001)
    first, *others = tablets_of(table)
    real = flush_memrowset

    def flush(tablet: Any) -> Any:
        if tablet is first:
            raise RuntimeError("broken")
        return real(tablet)

    monkeypatch.setattr(flush_lane, "flush_memrowset", flush)
    flush_lane_of(table).run_due()
    assert [len(t.view.active) for t in others] == [0, 0] and len(first.view.active)


def test_a_token_of_another_kind_is_an_invalid_argument(disk: Disk) -> None:
    table = create(disk)
    with pytest.raises(kc.InvalidArgument):
        table.scan_token(5)  # type: ignore[arg-type]
    for target in ("x", None, 0, True):
        with pytest.raises(kc.InvalidArgument):
            table.scan_tokens(target_rows=target)  # type: ignore[arg-type]
