"""A table in an object store that answers a GET after 25 ms and a PUT after 40: how long calls wait, how many
requests they are, and how many calls a second threads have that share puts.

Requests are counted in ``extra_info``; ``dollars_a_month`` are those of an idle table, at S3's prices.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kudu_core as kc
from kudu_core.objects.object_lease import RENEW_S
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from kudu_core.table.runs.staged import StagedRun
from tests.support.objects.jobs import begun, made, patch_clients, rows, staged, store_of_jobs
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL, requests_of, spent

GET_S, PUT_S = 0.025, 0.040
ROWS = 1_000_000
COLUMNS = 9
THREADS, CALLS = 32, 20
PUT_DOLLARS, GET_DOLLARS = 5e-6, 0.4e-6
MONTH_S = 30 * 86_400


class Slow:
    """A store in memory, as far away as S3."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self.is_slow = False
        self.bytes_a_second = 0.0
        """Of all answers together; 0: without a limit."""
        self._mutex = threading.Lock()
        self._free_s = 0.0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def get(self, path: str, limit: int | None) -> tuple[bytes, str]:
        self._wait(GET_S)
        return self._inner.get(path, limit)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._wait(GET_S)
        found = self._inner.get_ranges(path, ranges)
        if self.bytes_a_second:
            with self._mutex:  # one after the other over the link
                self._free_s = max(time.monotonic(), self._free_s)
                self._free_s += sum(map(len, found)) / self.bytes_a_second
                left_s = self._free_s - time.monotonic()
            time.sleep(max(0.0, left_s))
        return found

    def put(self, path: str, data: bytes, condition: object) -> str:
        self._wait(PUT_S)
        return self._inner.put(path, data, condition)  # type: ignore[arg-type]

    def _wait(self, seconds: float) -> None:
        if self.is_slow:
            time.sleep(seconds)


class Place:
    def __init__(self) -> None:
        self.memory = MemoryObjectStore()
        self.slow = Slow(self.memory)
        rng = np.random.default_rng(0)
        columns = {f"v{n}": rng.integers(0, 1 << 40, ROWS) for n in range(COLUMNS - 3)}
        columns |= {f"s{n}": pa.array([f"text {n} {row % 5000}" for row in range(ROWS)]) for n in range(3)}
        data = pa.table({"k": np.arange(ROWS), **columns})
        with kc.create_table(
            URL, data.schema, "k", partition_by=kc.HashPartition("k", 4), _requests=self.memory
        ) as table:
            table.insert(data)
            table.compact(full=True)
        self.row = {"k": 1, **{name: data[name][0].as_py() for name in data.column_names[1:]}}
        self.slow.is_slow = True

    def open(self, mode: str = "r") -> kc.Table:
        return kc.open_table(URL, mode, _requests=self.slow)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def place() -> Place:
    return Place()


@pytest.fixture
def writer(place: Place) -> Iterator[kc.Table]:
    with place.open("rw") as table:
        yield table


def counted(benchmark: BenchmarkFixture, place: Place, call: object, rounds: int = 5) -> None:
    """Time a call, which makes its own beginning, and keep the requests of the first."""
    before = requests_of(place.memory)
    call()  # type: ignore[operator]
    benchmark.extra_info["requests"] = spent(place.memory, before)
    benchmark.pedantic(call, rounds=rounds)  # type: ignore[arg-type]


def test_synced_write_of_one_row(benchmark: BenchmarkFixture, place: Place, writer: kc.Table) -> None:
    writer.upsert([place.row])
    counted(benchmark, place, lambda: writer.upsert([place.row]))


def test_calls_of_threads(benchmark: BenchmarkFixture, place: Place, writer: kc.Table) -> None:
    def many() -> None:
        for _ in range(CALLS):
            writer.upsert([place.row])

    def run() -> None:
        threads = [threading.Thread(target=many) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    began_s = time.perf_counter()
    counted(benchmark, place, run, rounds=2)
    benchmark.extra_info["calls_a_second"] = round(3 * THREADS * CALLS / (time.perf_counter() - began_s))


@pytest.mark.parametrize("what", ["open r", "get", "get_many of 100", "scan of 2 columns", "scan of all"])
def test_cold_reads(benchmark: BenchmarkFixture, place: Place, what: str) -> None:
    keys = pa.table({"k": np.random.default_rng(1).integers(0, ROWS, 100)})

    def run() -> None:
        with place.open() as table:
            if what == "get":
                assert table.get(777_777) is not None
            elif what == "get_many of 100":
                assert table.get_many(keys).num_rows == 100
            elif what == "scan of 2 columns":
                assert table.scan(["v0", "s0"]).to_table().num_rows == ROWS
            elif what == "scan of all":
                assert table.scan().to_table().num_rows == ROWS

    counted(benchmark, place, run, rounds=3)


def test_open_after_many_small_writes(benchmark: BenchmarkFixture) -> None:
    """100,000 synced calls of one row how long an open waits."""
    calls, memory = 100_000 if benchmark.enabled else 300, MemoryObjectStore()
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    written = kc.create_table(URL, schema, "k", _requests=memory)
    for call in range(calls):
        written.upsert([{"k": call % 50_000, "v": call}])
    left = MemoryObjectStore()
    left.objects.update(memory.objects)
    written.close()
    slow = Slow(left)
    slow.is_slow = True
    before = requests_of(left)

    def run() -> None:
        with kc.open_table(URL, _requests=slow) as table:  # type: ignore[arg-type]
            assert table.count() == min(calls, 50_000)

    run()
    benchmark.extra_info["requests"] = spent(left, before)
    benchmark.pedantic(run, rounds=3)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("columns", [None, ["v0", "v1", "v2"]], ids=["all columns", "3 columns"])
def test_full_scan_over_a_link(benchmark: BenchmarkFixture, place: Place, columns: list[str] | None) -> None:
    """Of 1 Gbit/s: which share of it a cold scan uses, and how much it reads of what it needs."""
    with place.open("rw") as table:
        table.compact(full=True)
    place.slow.bytes_a_second = 125e6
    shares = []
    try:
        with place.open() as warm:  # the log is read, and no page

            def run() -> None:
                with place.open() as table:
                    before, began_s = table.metrics()["bytes_get"], time.perf_counter()
                    assert table.scan(columns).to_table().num_rows == ROWS
                    read = place.memory.counts()["bytes_get"] - before
                    shares.append(read / 125e6 / (time.perf_counter() - began_s))

            assert warm.count() == ROWS
            benchmark.pedantic(run, rounds=3)  # type: ignore[no-untyped-call]
    finally:
        place.slow.bytes_a_second = 0.0
    benchmark.extra_info["share_of_the_link"] = round(sorted(shares)[len(shares) // 2], 2)


@pytest.mark.parametrize("disk", ["in memory", "cold"])
def test_a_scan_from_the_cache_of_the_machine(
    benchmark: BenchmarkFixture, place: Place, tmp_path: Path, disk: str
) -> None:
    """The data files come from there; beside it the same table in a folder.  ``cold``: the system has dropped
    its pages of both."""
    folder, cache = tmp_path / "table", tmp_path / "cache"
    with place.open("rw") as table:
        table.compact(full=True)
    with place.open() as table:
        data = table.scan().to_table()
        parts = kc.HashPartition("k", 4)
        with kc.create_table(folder, table.schema, "k", partition_by=parts) as local:
            local.insert(data)
            local.compact(full=True)

    def timed(table: kc.Table) -> float:
        with table:
            if disk == "cold":
                for path in (*folder.rglob("*"), *cache.rglob("*")):
                    if path.is_file():
                        with path.open("rb+") as file:
                            os.fsync(file.fileno())
                            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            began_s = time.perf_counter()
            assert table.scan().to_table().num_rows == ROWS
            return time.perf_counter() - began_s

    def near() -> kc.Table:
        options, requests = {"cache_dir": str(cache)}, place.slow
        return kc.open_table(URL, storage_options=options, _requests=requests)  # type: ignore[arg-type]

    timed(near())
    turns = 9 if benchmark.enabled else 1
    pairs = [(timed(kc.open_table(folder)), timed(near())) for _ in range(turns)]
    ratios, *times = ([a / b for a, b in pairs], *zip(*pairs, strict=True))
    benchmark.extra_info["of_the_speed_in_a_folder"] = round(sorted(ratios)[turns // 2], 2)
    benchmark.extra_info["ms"] = [round(1e3 * sorted(some)[turns // 2], 1) for some in times]
    benchmark.pedantic(lambda: timed(near()), rounds=3)  # type: ignore[no-untyped-call]


def test_refresh_with_nothing_new(benchmark: BenchmarkFixture, place: Place) -> None:
    with place.open() as table:
        counted(benchmark, place, table.refresh)
        # One probe a second, and TABLE once in half of an hour.
        gets = MONTH_S * (1 + 1 / 1800)
        benchmark.extra_info["dollars_a_month"] = round(gets * GET_DOLLARS, 2)
        assert benchmark.extra_info["requests"] == {"get": 1}


def test_open_for_writing(benchmark: BenchmarkFixture, place: Place) -> None:
    counted(benchmark, place, lambda: place.open("rw").close(), rounds=3)
    benchmark.extra_info["dollars_a_month"] = round(MONTH_S / RENEW_S * PUT_DOLLARS, 2)


@pytest.mark.parametrize("tablets", [4, 64])
def test_a_commit_of_a_thousand_files(
    benchmark: BenchmarkFixture, tablets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a driver of Spark does when its tasks have put their files: it opens the table, commits, and
    closes it."""
    store = store_of_jobs(monkeypatch)
    slow = Slow(store)
    slow.is_slow = True
    with made(store, tablets=tablets):
        pass
    begins = itertools.count(0, 10_000_000)
    attempts, each = 1000 // tablets, 10 * tablets

    def staging() -> tuple[tuple[Job, list[StagedRun]], dict[str, object]]:
        patch_clients(monkeypatch, store)
        job, first = begun("insert"), next(begins)
        runs = staged(job, *(rows(range(first + n * each, first + (n + 1) * each)) for n in range(attempts)))
        patch_clients(monkeypatch, slow)
        return (job, runs), {}

    def commit(job: Job, runs: list[StagedRun]) -> None:
        assert jobs.commit_job(job, runs).inserted == attempts * each

    arguments, _ = staging()
    before = requests_of(store)
    commit(*arguments)
    benchmark.extra_info["requests"] = spent(store, before)
    benchmark.extra_info["files"] = len(arguments[1])
    benchmark.pedantic(commit, setup=staging, rounds=3)
