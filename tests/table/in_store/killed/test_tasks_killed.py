"""Tasks of a distributed write killed at each of their requests, with another attempt after them: each row is
there once, and what the dead have left goes in time (protocol B13)."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

import kudu_core as kc
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.lifecycle.staging_folders import FRESH_S
from kudu_core.table.opened.handle import handle_of
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun
from tests.support.fs.faulty import SimulatedCrash
from tests.support.objects.fates import Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.jobs import (
    TIME,
    begun,
    job_files,
    made,
    patch_clients,
    rows,
    small_logs,
    staged,
    store_of_jobs,
)
from tests.support.objects.tables import guard_deletes, opened, rows_of

FATES: dict[str, Callable[[int], list[Rule]]] = {
    "before": lambda nth: [Rule("crash before", nth=nth)],
    "after": lambda nth: [Rule("crash after", nth=nth)],
    "late": lambda nth: [Rule("late", nth=nth, after=10**9), Rule("crash before", nth=nth)],
}
GRACE_S = 100.0
"""``staging_grace_s``, less than after which a sweep looks for what jobs have left."""


def attempt(
    patch: pytest.MonkeyPatch, requests: FaultyStore, job: Job
) -> tuple[list[StagedRun], list[Resolution]]:
    """What the tasks of a write do: one stages the rows, another one resolves what was staged."""
    patch_clients(patch, requests)
    runs = staged(job, rows(range(1000, 4000), 1), rows(range(4000, 6000), 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kc.UnreplayedWarning)  # the death of a replay is no OSError
        reader = opened(requests)
    if reader.unreplayed is not None:
        raise SimulatedCrash
    try:
        return runs, resolve(handle_of(reader), job, jobs.form_of(job), runs)
    finally:
        reader.close()


def killed(patch: pytest.MonkeyPatch, fate: str, nth: int, tablets: int) -> bool:
    """Whether the first attempt came to its ``nth`` request."""
    small_logs(patch)
    memory = store_of_jobs(patch)
    options = {"file_grace_s": 0.0, "staging_grace_s": GRACE_S}
    with made(memory, tablets=tablets, **options) as table:
        table.insert(rows(range(3000)))
        table.upsert([{"k": 1005, "v": 7}])
    job = begun()
    guard_deletes(memory)
    dead = FaultyStore(memory, FATES[fate](nth))
    try:
        attempt(patch, dead, job)
    except SimulatedCrash:
        pass
    except (kc.KuduError, OSError):
        if not dead.crashed:
            raise
    if nth % 2:
        dead.land_late()
    living = FaultyStore(memory)
    runs, found = attempt(patch, living, job)
    result = jobs.commit_job(job, runs, None, found if nth % 3 else [])
    assert (result.inserted, result.updated) == (3000, 2000)
    dead.land_late()
    wanted = {n: n for n in range(1000)} | {n: n + 1 for n in range(1000, 6000)}
    with opened(memory) as reader:
        assert rows_of(reader) == wanted
    for _ in range(2):
        TIME.advance(max(FRESH_S, GRACE_S) + 1)
        with opened(memory, "rw", clock=TIME) as table:
            table.gc()
            table.gc()
            assert rows_of(table) == wanted
            named = {file for file in job_files(memory) if "/" in file}
            verified = table.verify()
    assert (verified.unnamed, verified.foreign) == ((), ())
    assert not [name for name in named if name.endswith("HEARTBEAT")]
    assert jobs.commit_job(job, runs).deduplicated
    return dead.crashed


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tablets" in metafunc.fixturenames:
        metafunc.parametrize("tablets", [2, 7, 11] if metafunc.config.getoption("--long") else [2])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fate", FATES)
def test_tasks_killed_at_each_request(fate: str, tablets: int) -> None:
    """Hundreds of kills in the long run."""
    nth = 1
    while True:
        with pytest.MonkeyPatch.context() as patch:
            if not killed(patch, fate, nth, tablets):
                break
        nth += 1
        assert nth < 1000
    assert nth > 8 * tablets
