"""The commit of a distributed write of many tablets and runs, without Spark: what the driver alone does.

    python bench/spark/simulate_commit.py [tablets] [runs]

Attempts stage real runs of few rows each, tasks resolve them, and one process plans and commits.  Printed
are seconds of each step, elapsed and of the CPU, and what the driver's memory grew by, for the tablets and
runs given (1,000 and 10,000) and for half of the tablets with half of the runs.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

import kudu_core as kc
from kudu_core.engines.spark.write import resolutions_of, runs_of, tasks_of
from kudu_core.table.jobs import commit
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.lifecycle.handles import open_handle
from kudu_core.table.runs.staged import StagedRun

ROWS_OF_A_RUN = 20
SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int32()), ("b", pa.float64()), ("s", pa.string())])


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    started, worked = time.perf_counter(), time.process_time()
    yield
    seconds[step] = time.perf_counter() - started
    seconds[f"{step}, CPU"] = time.process_time() - worked


def rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_child(work: object) -> None:
    """What is another process's work, so that this one's memory is the driver's."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit("a child failed")


def simulate(root: str, tablets: int, runs: int) -> dict[str, float]:
    path = f"{root}/table-{tablets}"
    seconds: dict[str, float] = {}
    options = {"maintenance": "manual", "ingest_threshold_rows": 1}
    with timed(seconds, "create"):
        hashed = kc.HashPartition("k", tablets)
        kc.create_table(path, SCHEMA, "k", partition_by=hashed, options=options).close()
    with open_handle(path) as handle:
        job = commit.begin(handle, "upsert", [(f.name, str(f.type)) for f in SCHEMA])

    def stage() -> None:
        told = []
        for attempt in range(runs // tablets):
            count = tablets * ROWS_OF_A_RUN
            keys = np.arange(attempt * count, (attempt + 1) * count)
            columns = [keys, keys.astype(np.int32), keys / 7, pa.array(keys).cast(pa.string())]
            stager = commit.stager(job, f"a{attempt:05d}")
            stager.append(pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=SCHEMA))
            told += [run.to_json() for run in stager.finish()]
        with open(f"{root}/told", "wb") as file:
            file.write(b"\n".join(json.dumps(run).encode() for run in told))

    with timed(seconds, "stage (tasks)"):
        in_child(stage)
    before = rss_mib()
    with open(f"{root}/told", "rb") as file, timed(seconds, "plan"):
        told = runs_of(file.read().splitlines())
        tasks = tasks_of(told, 8)

    def resolve_all() -> None:
        with open(f"{root}/found", "wb") as file:
            for task in tasks:
                with open_handle(path, options={"scan_threads": 1}) as handle:
                    mine = [StagedRun.from_json(run) for run in json.loads(task)]
                    for resolution in resolve(handle, job, commit.form_of(job), mine):
                        file.write(resolution.to_bytes() + b"\n")

    with timed(seconds, "resolve (tasks)"):
        in_child(resolve_all)
    with open(f"{root}/found", "rb") as file, timed(seconds, "answers"):
        resolutions = resolutions_of(file.read().splitlines())
    with timed(seconds, "open"):
        handle = open_handle(path, "rw")
    with timed(seconds, "commit"):
        result = commit.commit_job(job, told, handle, resolutions)
    assert result.inserted == tablets * (runs // tablets) * ROWS_OF_A_RUN, result
    seconds["driver grew by MiB"] = rss_mib() - before
    handle.close()
    with kc.open_table(path) as table:
        assert table.count() == result.inserted
    seconds["runs"], seconds["tablets"] = len(told), tablets
    return seconds


def main() -> None:
    tablets = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    root = tempfile.mkdtemp(prefix="simulate-commit-")
    try:
        for part in (2, 1):
            found = simulate(root, tablets // part, runs // part)
            print(f"{int(found.pop('tablets')):,} tablets, {int(found.pop('runs')):,} runs")
            for step, value in found.items():
                print(f"  {step:24} {value:8.3f}")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
