"""Merges whose outputs other processes build: whatever goes wrong there, nothing is left half done."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.common.run.locks import Claim
from kudu_core.table.jobs import merge_job
from kudu_core.table.jobs.merge_job import RemoteMergeTask, TaskRunner, build_task, builder_of
from kudu_core.tablet.compact.merge_remote import BuiltRange
from tests.support.inside import engine_of, handle_of
from tests.support.models.merging import Builder, Merging
from tests.tablet.compact.elsewhere.test_states import staging


def unchanged(m: Merging, run: TaskRunner, error: type[BaseException], match: str) -> None:
    before, state = m.ids, m.tablet.state
    with pytest.raises(error, match=match):
        m.merge(builder=builder_of(engine_of(m.table), run, Claim(set())))
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

    def altered(change: Callable[[RemoteMergeTask], RemoteMergeTask]) -> TaskRunner:
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
        m.merge(builder=builder_of(engine_of(m.table), run, Claim(set())))
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
        build_task(handle_of(builder.reader), late, "late")
    builder.reader.refresh()
    assert build_task(handle_of(builder.reader), late, "late") == [], "its inputs have gone"
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
        handle = handle_of(builder.reader)
        twins = [told for n, task in enumerate(tasks) for told in build_task(handle, task, f"twin{n}")]
        assert len(twins) == len(answers)
        mixed = {BuiltRange.from_bytes(told).number: told for told in (*answers, *twins[::2])}
        return list(mixed.values())

    m.merge(builder=builder_of(engine_of(m.table), run, Claim(set())))
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
            m.merge(builder=builder_of(engine_of(table), run, Claim(set())))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert bool(staging(m)) == (step in ("asked", "built"))
    with kc.open_table(m.path) as reader:
        assert reader.count() == len(m.history.model.state())
    m.table = kc.open_table(m.path, "rw")
    assert m.ids == before and m.files() == set() and staging(m) == []
    m.check()
