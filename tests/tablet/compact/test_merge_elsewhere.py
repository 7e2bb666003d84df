"""Merges whose outputs other processes build: the same states and changes, and nothing half."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.history.merging import Limits
from kudu_core.table.jobs import merge_job
from kudu_core.table.jobs.merge_job import RemoteMergeTask, Run, build_task, builder_of
from kudu_core.table.opened.maintain import maintain_now
from kudu_core.tablet.compact import merge
from kudu_core.tablet.compact.merge_remote import BuiltRange
from tests.support.faults import checking
from tests.support.inside import engine_of, tablets_of
from tests.support.models.history import SCHEMA, History, random_batch
from tests.support.models.merging import OPTIONS, Merging


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every merge is built elsewhere, in several ranges and tasks; the invariants after each install."""
    monkeypatch.setattr(merge_job, "SMALL_BYTES", 0)
    monkeypatch.setattr(merge_job, "TASK_BYTES", 1)
    monkeypatch.setattr(merge_job, "LOOK_PAUSE_S", 0.001)
    monkeypatch.setattr(merge, "Limits", lambda file_bytes, memory_bytes: Limits(500, 1 << 20))
    with checking(True):
        yield


class Builder:
    """Tasks that are run here, on a table that is open for reading as in a worker."""

    def __init__(self, table: kc.Table) -> None:
        self.table = table
        self.reader: kc.Table | None = None
        """Kept open from task to task."""
        self.tasks: list[RemoteMergeTask] = []
        self.answers: list[bytes] = []
        self.between: Callable[[], object] = lambda: None
        """Called before each task and after the last."""

    def run(self, tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        self.tasks, self.answers = list(tasks), []
        for number, task in enumerate(tasks):
            self.between()
            if self.reader is None:
                self.reader = kc.open_table(task.table_path, options={"scan_threads": 1})
            self.answers += build_task(self.reader, pickle.loads(pickle.dumps(task)), f"a{number}")
        self.between()
        self.answers.reverse()
        return self.answers

    def __call__(self, *arguments: Any) -> Any:
        return builder_of(engine_of(self.table), self.run)(*arguments)


@pytest.fixture
def m(tmp_path: Path) -> Merging:
    m = Merging(tmp_path / "t")
    for part in range(3):
        m.put(*range(part, 120, 3), a=part)
        m.flush()
    m.delete(3)
    m.put(3, a=33)
    m.flush()
    m.set(1, 2, a=7)
    m.delete(9)
    return m


def staging(m: Merging) -> list[str]:
    return os.listdir(m.path / "staging")


@pytest.mark.parametrize("retention", [None, 0.0])
def test_every_state_and_every_change_stay(
    tmp_path: Path, seed: int, retention: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merges of random rowsets, each by a reader that stays open, with histories of all kinds."""
    monkeypatch.setattr(merge, "Limits", lambda file_bytes, memory_bytes: Limits(1500, 1 << 20))
    rng = random.Random(seed)
    m = Merging(tmp_path / "t", history_retention_s=retention)
    builder = Builder(m.table)
    several = 0
    for step in range(8):
        for _ in range(4):
            rows, whole = rng.choice((1, 4, 70)), rng.random() < 0.5
            m.history.write(m.table, random_batch(rng, m.history.model, range(60), rows, whole=whole))
            if rng.random() < 0.5:
                m.table.flush() if rng.random() < 0.5 else m.flush()
        if not m.ids:
            continue
        builder.between = lambda: m.history.write(
            m.table, random_batch(rng, m.history.model, range(60), rng.choice((1, 70)), whole=False)
        )
        ids = rng.sample(m.ids, rng.randint(1, len(m.ids)))
        done = m.merge(ids, builder=builder)
        several += done.rowsets_added > 1 and len(builder.tasks) > 1
        assert builder.answers and staging(m) == []
        if step % 4 == 3:
            m.check()
    assert several
    m.crash()
    m.check()


def test_what_is_written_meanwhile_is_carried_over(m: Merging) -> None:
    """Updates, deletions, rows that come back, delta flushes and an ingest between the tasks."""
    builder = Builder(m.table)
    steps: list[Callable[[], object]] = [
        lambda: m.set(4, 5, 100, c=0.25),
        lambda: m.delete(4, 50),
        m.flush_all,
        lambda: m.write(("upsert", [{"k": k, "a": 5} for k in range(0, 120, 2) if k not in (4, 50)])),
        lambda: m.put(4, a=44),
    ]
    builder.between = lambda: steps.pop(0)() if steps else None
    done = m.merge(builder=builder)
    assert not steps and len(builder.tasks) > 3
    assert done.changes > 0 and done.rowsets_added > 1
    m.check()
    m.reopen()
    m.check()


@pytest.mark.parametrize("flush", [False, True])
def test_a_reader_that_is_behind_looks_again(m: Merging, flush: bool) -> None:
    """Changes that it has not seen, in the log or in a file of a rowset that it knows."""
    builder = Builder(m.table)
    m.flush_all()
    builder.reader = kc.open_table(m.path)
    m.set(4, 5, 100, a=99)
    m.delete(50)
    if flush:
        m.flush_all()
    m.merge(builder=builder)
    assert len(builder.answers) > 1
    m.check()


def test_columns_that_come_and_go_meanwhile(m: Merging) -> None:
    builder = Builder(m.table)
    alters: list[dict[str, Any]] = [
        {"add": [kc.Column("n", pa.int64(), default=7)]},
        {"drop": ["b"]},
    ]
    builder.between = lambda: m.table.alter(**alters.pop()) if alters else None
    m.merge(builder=builder)
    m.table.update({"k": [1], "n": [8]})
    assert m.table.get(1) == {"k": 1, "a": 7, "c": 0.5, "n": 8}
    m.merge(builder=builder)
    assert m.table.get(1) == {"k": 1, "a": 7, "c": 0.5, "n": 8}
    assert m.table.verify().files


def test_the_outputs_are_those_of_a_merge_here(m: Merging, tmp_path: Path) -> None:
    other = Merging(tmp_path / "other")
    for one in (m, other):
        one.table.close()
    shutil.rmtree(other.path)
    shutil.copytree(m.path, other.path)
    m.table, other.table = kc.open_table(m.path, "rw"), kc.open_table(other.path, "rw")
    there, here = m.merge(builder=Builder(m.table)), other.merge()
    assert replace(there, horizon=0) == replace(here, horizon=0)

    def told(m: Merging) -> list[Any]:
        found: list[Any] = []
        for meta in m.tablet.rowset_metas:
            found += [meta.rows, meta.min_key, meta.max_key, meta.insert_ts, meta.statistics]
            found += [(d.entries, d.min_ts, d.max_ts, d.liveness) for d in (*meta.redo, *meta.undo)]
        return found

    assert told(m) == told(other)


# ---- what goes wrong


def unchanged(m: Merging, run: Run, error: type[BaseException], match: str) -> None:
    before, state = m.ids, m.tablet.state
    with pytest.raises(error, match=match):
        m.merge(builder=builder_of(engine_of(m.table), run))
    assert m.ids == before and m.tablet.state == state
    assert m.files() == set() and m.tablet.compacting == set() and staging(m) == []
    m.check()


def test_a_task_that_fails(m: Merging) -> None:
    """Then the merge did not happen, whatever the others have written; the next one does."""
    builder = Builder(m.table)
    calls = [0]

    def fails() -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise OSError(28, "no room there")

    builder.between = fails
    unchanged(m, builder.run, OSError, "no room there")
    m.merge(builder=builder)
    m.check()


DAMAGES: dict[str, tuple[str, Callable[[bytearray], object]]] = {
    "a map with another byte": ("*.homes", lambda data: data.__setitem__(0, data[0] ^ 1)),
    "a map that is cut": ("*.homes", lambda data: data.pop()),
    "a map that is longer": ("*.homes", lambda data: data.append(0)),
    "rows that are cut": ("*.rows", lambda data: data.pop()),
    "a footer with another byte": ("*.rows", lambda data: data.__setitem__(-30, data[-30] ^ 1)),
    "changes with another footer": ("*.delta", lambda data: data.__setitem__(-30, data[-30] ^ 1)),
}


@pytest.mark.parametrize("damage", [*DAMAGES, "rows that are missing", "a map that is missing"])
def test_files_that_are_not_those_that_were_told_of(m: Merging, damage: str) -> None:
    builder = Builder(m.table)

    def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        answers = builder.run(tasks)
        pattern, change = DAMAGES.get(damage, ("*.homes" if "map" in damage else "*.rows", None))
        path = sorted(Path(tasks[0].order.directory).rglob(pattern))[-1]
        data = bytearray(path.read_bytes())
        path.unlink()
        if change is not None:
            change(data)
            path.write_bytes(data)
        return answers

    unchanged(m, run, kc.Corruption, "staged|bytes|missing|CRC")


def test_an_answer_that_is_none(m: Merging) -> None:
    unchanged(m, lambda tasks: [b"{}"], kc.Corruption, "answer")


def test_a_task_that_does_not_see_the_rowsets_leaves_the_merge_to_this_process(m: Merging) -> None:
    """Other files, another table at the path, a part of the ranges alone: it is built here."""
    builder = Builder(m.table)

    def altered(change: Callable[[RemoteMergeTask], RemoteMergeTask]) -> Run:
        return lambda tasks: builder.run([change(tasks[0]), *tasks[1:]])

    def foreign(task: RemoteMergeTask) -> RemoteMergeTask:
        return replace(task, table_uuid="0" * 32)

    def other(task: RemoteMergeTask) -> RemoteMergeTask:
        first, *rest = task.order.inputs
        base = replace(first.base, name="000001-00009999.rows")
        return replace(task, order=replace(task.order, inputs=(replace(first, base=base), *rest)))

    def unknown(task: RemoteMergeTask) -> RemoteMergeTask:
        return replace(task, order=replace(task.order, tablet_id=77))

    def early(task: RemoteMergeTask) -> RemoteMergeTask:
        return replace(task, order=replace(task.order, seen=1 << 62))

    runs = [altered(change) for change in (foreign, other, unknown, early)]
    for run in (*runs, lambda tasks: builder.run(tasks)[1:]):
        m.put(500 + len(m.history.writes), a=1)
        m.flush()
        m.set(1, a=len(m.history.writes))
        before = set(m.ids)
        m.merge(builder=builder_of(engine_of(m.table), run))
        m.table.gc()
        assert not before & set(m.ids) and staging(m) == [] and m.files() == set()
    m.check()


def test_small_merges_are_not_sent(m: Merging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_job, "SMALL_BYTES", sum(r.meta.size_bytes for r in m.rowsets) + 1)
    builder = Builder(m.table)
    m.merge(builder=builder)
    assert builder.tasks == [] and len(m.ids) > 1
    m.check()


def test_an_attempt_that_outlives_its_merge(m: Merging) -> None:
    """It finds no place to write to; and what one leaves all the same goes at the next open."""
    builder = Builder(m.table)
    m.merge(builder=builder)
    late = builder.tasks[0]
    m.put(1000, a=1)
    assert builder.reader is not None
    with pytest.raises(FileNotFoundError):
        build_task(builder.reader, late, "late")
    builder.reader.refresh()
    assert build_task(builder.reader, late, "late") == [], "its inputs have gone"
    assert staging(m) == []
    os.makedirs(f"{late.order.directory}/later")
    Path(late.order.directory, "later/00000000.rows").write_bytes(b"half")
    m.table.gc()
    assert staging(m) != [], "it may be of a merge that is under way"
    m.reopen()
    assert staging(m) == []
    m.check()


def test_an_attempt_that_is_repeated_while_its_merge_goes_on(m: Merging) -> None:
    """Only what the merge is told of counts."""
    builder = Builder(m.table)

    def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        answers = builder.run(tasks)
        assert builder.reader is not None
        twins = [
            told for n, task in enumerate(tasks) for told in build_task(builder.reader, task, f"twin{n}")
        ]
        assert len(twins) == len(answers)
        mixed = {BuiltRange.from_bytes(told).number: told for told in (*answers, *twins[::2])}
        return list(mixed.values())

    m.merge(builder=builder_of(engine_of(m.table), run))
    m.table.gc()
    assert staging(m) == [] and m.files() == set()
    m.check()


def test_staging_is_swept_beside_a_merge(tmp_path: Path) -> None:
    """What is older than its grace goes, but not what a merge of this process waits for."""
    m = Merging(tmp_path / "t", staging_grace_s=0)
    m.put(*range(50), a=1)
    m.flush()
    left = f"merge-{0:032x}"
    os.mkdir(m.path / "staging" / left)
    os.utime(m.path / "staging" / left, (0, 0))
    builder = Builder(m.table)
    swept: list[list[str]] = []

    def sweep() -> None:
        for name in staging(m):
            os.utime(m.path / "staging" / name, (0, 0))
        m.table.gc()
        swept.append(staging(m))

    builder.between = sweep
    m.merge(builder=builder)
    assert len(swept) > 1 and all(len(names) == 1 and left not in names for names in swept)
    assert builder.answers and staging(m) == []
    m.check()


@pytest.mark.parametrize("step", ["asked", "built", "linked", "before the edit"])
def test_a_driver_that_is_killed(m: Merging, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    before = m.ids
    m.table.close()

    def dies(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            table = m.table = kc.open_table(m.path, "rw")
            builder = Builder(table)

            def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
                if step == "asked":
                    dies()
                answers = builder.run(tasks)
                if step == "built":
                    dies()
                return answers

            if step == "linked":
                monkeypatch.setattr(type(m.tablet), "sync_directory", dies)
            if step == "before the edit":
                monkeypatch.setattr(type(m.tablet), "install", dies)
            m.merge(builder=builder_of(engine_of(table), run))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert bool(staging(m)) == (step in ("asked", "built"))
    with kc.open_table(m.path) as reader:
        assert reader.count() == len(m.history.model.state())
    m.table = kc.open_table(m.path, "rw")
    assert m.ids == before and m.files() == set() and staging(m) == []
    m.check()


# ---- maintenance


def overlapping(path: Path, history: History, rng: random.Random) -> kc.Table:
    by = kc.HashPartition("k", 3)
    table = kc.create_table(path, SCHEMA, "k", partition_by=by, options={**OPTIONS, "flush_age_s": 3600})
    for _ in range(6):
        history.write(table, random_batch(rng, history.model, range(300), 200, whole=True))
        table.flush()
    return table


@pytest.mark.parametrize("threads", [1, 4])
def test_maintenance_does_what_it_does_here(tmp_path: Path, seed: int, threads: int) -> None:
    here, there = History(), History()
    wanted = overlapping(tmp_path / "here", here, random.Random(seed))
    found = overlapping(tmp_path / "there", there, random.Random(seed))
    runs: list[int] = []

    def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        runs.append(len(tasks))
        with kc.open_table(tasks[0].table_path) as reader:
            return [told for n, task in enumerate(tasks) for told in build_task(reader, task, f"a{n}")]

    def merges(table: kc.Table) -> float:
        return table.metrics().get("merge_count", 0)  # what else there is depends on the time it takes

    assert maintain_now(engine_of(found), None, builder_of(engine_of(found), run), threads)
    assert wanted.maintain()
    assert merges(found) == merges(wanted) and len(runs) >= 3
    maintain_now(engine_of(found), None, builder_of(engine_of(found), run), threads)
    assert merges(found) == merges(wanted)
    layouts = [
        sorted((t.id, r.meta.min_key, r.meta.max_key, r.meta.rows) for t in e.tablets for r in t.view.rowsets)
        for e in (engine_of(found), engine_of(wanted))
    ]
    assert layouts[0] == layouts[1]
    assert os.listdir(tmp_path / "there/staging") == []
    for mine, at in zip(there.writes, here.writes, strict=True):
        assert found.scan(order="key", at=mine).to_table() == wanted.scan(order="key", at=at).to_table()
    found.verify()


def test_an_operation_that_fails_ends_the_others_and_is_told(tmp_path: Path, seed: int) -> None:
    table = overlapping(tmp_path / "t", History(), random.Random(seed))
    before = table.scan(order="key").to_table()

    def fails(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        raise OSError(5, "the executors are gone")

    with pytest.raises(OSError, match="executors are gone"):
        maintain_now(engine_of(table), None, builder_of(engine_of(table), fails), 3)
    errors = table.history()["error"].drop_null().to_pylist()
    assert errors and all("executors are gone" in error for error in errors)
    assert maintain_now(engine_of(table), 0, builder_of(engine_of(table), fails), 3) == 0, "no budget"
    assert table.scan(order="key").to_table() == before
    assert os.listdir(tmp_path / "t/staging") == []
    assert all(not tablet.compacting for tablet in tablets_of(table))


def test_several_are_under_way_at_a_time(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And those that are built here one after the other: each may take its share of the memory limit."""
    table = overlapping(tmp_path / "t", History(), random.Random(seed))
    meeting = threading.Barrier(3, timeout=20)
    building, most = [0], [0]
    usual = merge.build

    def build(*arguments: Any) -> Any:
        building[0] += 1
        most[0] = max(most[0], building[0])
        try:
            return usual(*arguments)
        finally:
            building[0] -= 1

    def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        if not meeting.broken and most[0] == 0:
            meeting.wait()
        return []  # all of them are built here then

    monkeypatch.setattr(merge, "build", build)
    assert maintain_now(engine_of(table), None, builder_of(engine_of(table), run), 3) >= 3
    assert most[0] == 1
