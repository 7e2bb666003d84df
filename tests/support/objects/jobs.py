"""Distributed writes of a table in an object store in memory, as drivers and tasks make them; for tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.objects.repeating import RepeatingStore
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.job_table import JobTable
from kudu_core.table.lifecycle.in_store import store_home, store_location
from kudu_core.table.runs.staged import StagedRun
from kudu_core.wal.objects import object_log
from tests.support.clock import ManualClock
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL, created

COLUMNS = (("k", "int64"), ("v", "int64"))
TIME = ManualClock(time.time_ns() // 1000)
"""Of stores, and of tables that are opened with it."""
_numbers = count()


def patch_clients(patch: pytest.MonkeyPatch, requests: object) -> None:
    """Every URL leads to a store, as drivers and tasks open it."""

    def connect(url: str, storage_options: object, *, put_id_of: object, clock: object) -> RepeatingStore:
        return RepeatingStore(requests, put_id_of, clock)  # type: ignore[arg-type]

    patch.setattr(store_location, "open_store", connect)


def store_of_jobs(patch: pytest.MonkeyPatch) -> MemoryObjectStore:
    """A new one, to which every URL leads, and whose time is ``TIME``."""
    memory = MemoryObjectStore(now_s=lambda: TIME.now_us() / 1e6)
    patch_clients(patch, memory)
    return memory


def small_logs(patch: pytest.MonkeyPatch, *, closes: bool = True) -> None:
    """Checkpoints come soon; ``closes``: also when a table is closed."""
    patch.setattr(object_log, "CHECKPOINT_OBJECTS", 3)
    if closes:
        patch.setattr(store_home, "CLOSE_OBJECTS", 3)


def made(store: MemoryObjectStore, **options: object) -> kc.Table:
    """A new table that takes a thousand rows in as files."""
    return created(store, ingest_threshold_rows=1000, **options)  # type: ignore[arg-type]


def rows(numbers: Sequence[int], add: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(numbers, pa.int64()), "v": pa.array([n + add for n in numbers])})


def begun(operation: str = "upsert", **how: object) -> Job:
    return jobs.begin(JobTable.at(URL), operation, COLUMNS, **how)  # type: ignore[arg-type]


def staged(job: Job, *parts: pa.RecordBatch) -> list[StagedRun]:
    """By one attempt for each part."""
    found: list[StagedRun] = []
    for part in parts:
        attempt = jobs.stager(job, f"p{next(_numbers)}")
        attempt.append(part)
        found += attempt.finish()
    return found


def job_files(store: MemoryObjectStore) -> set[str]:
    return {name for name in store.objects if name.startswith("files/")}


__all__ = [
    "COLUMNS",
    "TIME",
    "begun",
    "job_files",
    "made",
    "patch_clients",
    "rows",
    "small_logs",
    "staged",
    "store_of_jobs",
]
