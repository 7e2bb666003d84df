"""Merges of a table in an object store whose outputs other processes build (protocol C2, B13)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.run.locks import Claim
from kudu_core.rowset.history.merging import OutputLimits
from kudu_core.table.jobs import merge_job
from kudu_core.table.jobs.merge_job import RemoteMergeTask, build_task, builder_of
from kudu_core.table.lifecycle.maintain import maintain_now
from kudu_core.tablet.compact import merge
from tests.support.faults import checking
from tests.support.inside import engine_of, handle_of, tablet_of, tablets_of
from tests.support.models.history import random_batch
from tests.support.models.merging import Builder, Merging
from tests.support.objects.jobs import TIME, job_files, made, rows, store_of_jobs
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL, guard_deletes, opened, rows_of, taken_over


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every merge is built elsewhere, in several ranges and tasks."""
    monkeypatch.setattr(merge_job, "SMALL_BYTES", 0)
    monkeypatch.setattr(merge_job, "TASK_BYTES", 1)
    monkeypatch.setattr(merge_job, "LOOK_PAUSE_S", 0.001)
    monkeypatch.setattr(merge, "OutputLimits", lambda file_bytes, memory_bytes: OutputLimits(8000, 1 << 20))
    with checking(True):
        yield


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryObjectStore:
    return store_of_jobs(monkeypatch)


def named(table: kc.Table) -> set[str]:
    """The files of jobs that the tablets have."""
    return {name for tablet in tablets_of(table) for name in tablet.state.files if name.startswith("files/")}


def overlapping(store: MemoryObjectStore, **options: Any) -> kc.Table:
    """Four rowsets of the same range of keys, of whose rows some have changed."""
    table = made(store, clock=TIME, staging_grace_s=1000.0, file_grace_s=10.0, **options)
    for part in range(4):
        table.insert(rows(range(part, 4_000, 4)))
        table.flush()
    table.upsert(rows(range(0, 4_000, 7), 1))
    return table


WANTED = {n: n + (n % 7 == 0) for n in range(4_000)}


def here(reader: kc.Table) -> Callable[[Sequence[RemoteMergeTask]], list[bytes]]:
    """The tasks, run by a reader of this process."""

    def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
        handle = handle_of(reader)
        return [told for number, task in enumerate(tasks) for told in build_task(handle, task, f"a{number}")]

    return run


def merged(table: kc.Table, run: Callable[[Sequence[RemoteMergeTask]], list[bytes]]) -> None:
    with Claim(engine_of(table).writers.committing) as claim:
        maintain_now(engine_of(table), None, builder_of(engine_of(table), run, claim), 2)


@pytest.mark.parametrize("retention", [None, 0.0])
def test_every_state_and_every_change_stay(
    store: MemoryObjectStore, seed: int, long: bool, retention: float | None
) -> None:
    rng = random.Random(seed)
    m = Merging(URL, store, history_retention_s=retention)  # type: ignore[arg-type]
    guard_deletes(store)
    builder = Builder(m.table)
    for _ in range(12 if long else 4):
        for _ in range(4):
            count, whole = rng.choice((1, 4, 70)), rng.random() < 0.5
            m.history.write(m.table, random_batch(rng, m.history.model, range(60), count, whole=whole))
            if rng.random() < 0.5:
                m.table.flush() if rng.random() < 0.5 else m.flush()
        if not m.ids:
            continue
        builder.between = lambda: m.history.write(
            m.table, random_batch(rng, m.history.model, range(60), rng.choice((1, 70)), whole=False)
        )
        m.merge(rng.sample(m.ids, rng.randint(1, len(m.ids))), builder=builder)
        assert builder.answers and named(m.table)
        m.check()
    m.reopen()
    m.check()
    with kc.open_table(URL) as reader:
        assert reader.scan(order="key").to_table() == m.table.scan(order="key").to_table()


def test_what_no_tablet_names_goes_with_its_grace(store: MemoryObjectStore) -> None:
    """The maps of rows, and what attempts have put that did not win; files that are taken in stay."""
    table = overlapping(store)
    guard_deletes(store)
    with opened(store) as reader:

        def twice(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
            for number, task in enumerate(tasks):
                build_task(handle_of(reader), task, f"lost{number}")
            return here(reader)(tasks)

        merged(table, twice)
    assert rows_of(table) == WANTED
    left = job_files(store) - named(table)
    assert any("/lost" in name for name in left) and any(name.endswith(".homes") for name in left)
    TIME.advance(999.0)
    table.gc()
    assert job_files(store) - named(table) == left
    for _ in range(3):
        TIME.advance(1001.0)
        table.gc()
    assert job_files(store) == named(table) != set()
    assert rows_of(table) == WANTED
    table.verify()
    table.close()
    with opened(store) as reader:
        assert rows_of(reader) == WANTED
        reader.verify()


def test_a_sweep_leaves_what_a_merge_is_about_to_take(store: MemoryObjectStore) -> None:
    """However long its tasks have taken."""
    table = overlapping(store)
    guard_deletes(store)
    with opened(store) as reader:

        def slowly(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
            told = here(reader)(tasks)
            for _ in range(3):
                TIME.advance(5000.0)
                table.gc()
            return told

        merged(table, slowly)
    assert named(table) and named(table) <= job_files(store)
    assert rows_of(table) == WANTED
    table.close()


def test_a_merge_between_whose_tasks_and_install_a_sweep_falls(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are there, and no tablet names them yet."""
    table = overlapping(store)
    guard_deletes(store)
    adopt, swept = merge_job.adopt, []

    def then_time_passes(*arguments: Any) -> Any:
        found = adopt(*arguments)
        swept.append(job_files(store))
        return found

    def at_step(step: str) -> None:
        if step == "ready":
            for _ in range(3):
                TIME.advance(5000.0)
                table.gc()
            assert swept.pop() <= job_files(store)

    monkeypatch.setattr(merge_job, "adopt", then_time_passes)
    with opened(store) as reader, Claim(engine_of(table).writers.committing) as claim:
        builder = builder_of(engine_of(table), here(reader), claim)
        ids = [rowset.id for rowset in tablet_of(table).view.rowsets]
        merge.merge_rowsets(
            tablet_of(table), ids, horizon=lambda drop: 0, builder=builder, at_step=at_step
        )
    assert not swept and named(table)
    assert rows_of(table) == WANTED
    table.close()


@pytest.mark.parametrize("what", ["fails", "does not answer"])
def test_a_task_that_fails(what: str, store: MemoryObjectStore) -> None:
    """Then the merge did not happen, or is the lease holder's own."""
    table = overlapping(store)
    guard_deletes(store)
    with opened(store) as reader:

        def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
            told = here(reader)(tasks)
            if what == "fails":
                raise OSError(5, "the executors are gone")
            return told[1:]

        if what == "fails":
            with pytest.raises(OSError, match="executors are gone"):
                merged(table, run)
        else:
            merged(table, run)
    assert not named(table) and job_files(store)
    assert rows_of(table) == WANTED
    for _ in range(3):
        TIME.advance(1001.0)
        table.gc()
    assert not job_files(store)
    assert rows_of(table) == WANTED
    table.close()


def test_a_writer_that_was_replaced_installs_nothing(store: MemoryObjectStore) -> None:
    table = overlapping(store)
    later: list[kc.Table] = []
    with opened(store) as reader:

        def replaced(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
            told = here(reader)(tasks)
            if not later:
                later.append(taken_over(store))
                guard_deletes(store)
            return told

        with suppress(kc.Fenced):
            merged(table, replaced)
        with pytest.raises(kc.Fenced):
            table.upsert(rows([1]))
    table.close()
    assert rows_of(later[0]) == WANTED
    merged(later[0], lambda tasks: [])
    assert rows_of(later[0]) == WANTED
    later[0].close()


def test_storage_options_travel_with_the_task(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory: what describes the task does not show them."""
    table = overlapping(store)
    seen: list[RemoteMergeTask] = []
    given = {"secret_access_key": "hidden"}
    monkeypatch.setattr(type(engine_of(table).table_file), "storage_options", given)
    with opened(store) as reader:

        def run(tasks: Sequence[RemoteMergeTask]) -> list[bytes]:
            seen.extend(tasks)
            return here(reader)(tasks)

        merged(table, run)
    assert seen and all(task.storage_options == given for task in seen)
    assert "hidden" not in repr(seen)
    table.close()
