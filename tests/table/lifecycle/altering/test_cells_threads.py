"""Readers, writers and maintenance beside a thread that changes the cells of a column."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.lifecycle import alter as alter_walk
from tests.support.threads import Run

KEYS = 200
TYPES = ["int16", "int64", "int32", "int64"]
OPTIONS = {"scan_threads": 1, "file_grace_s": 0, "ingest_threshold_rows": 50, "maintenance": "manual"}


@contextmanager
def short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def alter(table: kc.Table, run: Run) -> None:
    while run.goes_on():
        for name in TYPES:
            table.alter(change={"v": {"type": name}})
            run.did("alter")


def write(table: kc.Table, run: Run, seed: int) -> None:
    rng = random.Random(seed)
    while run.goes_on():
        keys = rng.sample(range(KEYS), rng.choice((1, 3, 80)))
        if len(keys) == 1:
            table.upsert([{"k": keys[0], "v": keys[0]}])
        else:
            table.upsert({"k": keys, "v": keys})
        run.did("write")


def point_reads(table: kc.Table, run: Run, seed: int) -> None:
    rng = random.Random(seed)
    while run.goes_on():
        for k in rng.sample(range(KEYS), 20):
            assert table.get(k) == {"k": k, "v": k}
        keys = rng.sample(range(KEYS), 20)
        assert table.get_many(keys)["v"].to_pylist() == keys
        run.did("get")


def scans(table: kc.Table, run: Run, seed: int) -> None:
    rng = random.Random(seed)
    while run.goes_on():
        scan = table.scan()
        bound = rng.randrange(KEYS)
        for found in (scan.to_table(), table.scan(where=pc.field("v") >= bound).to_table(), scan.to_table()):
            assert found["k"].to_pylist() == found["v"].to_pylist()
        few = table.scan(order="key", limit=3, where=pc.field("k") >= bound).to_table()
        assert few["k"].to_pylist() == few["v"].to_pylist()
        assert table.count(pc.field("v") < bound) == bound
        run.did("scan")


def reader(table: kc.Table, run: Run) -> None:
    with kc.open_table(table.path) as other:
        while run.goes_on():
            other.refresh()
            assert other.get(7)["v"] == 7
            with suppress(kc.SchemaMismatch):  # where the files of a read were replaced before it began
                for read in (other.scan(), other.changes()):
                    found = read.to_table()
                    assert found["k"].to_pylist() == found["v"].to_pylist()
                run.did("reader")


def maintain(table: kc.Table, run: Run) -> None:
    while run.goes_on():
        table.flush()
        table.compact(full=True)
        table.gc()
        run.did("maintain")


def test_no_read_mixes_types(tmp_path: Path, seed: int, long: bool) -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int32())])
    wanted = {"alter": 8, "write": 5, "get": 5, "scan": 5, "reader": 2, "maintain": 2}
    run = Run(60 if long else 1.0, wanted)
    with short_turns(), kc.create_table(str(tmp_path / "t"), schema, "k", options=OPTIONS) as table:
        table.insert(pa.table({"k": pa.array(range(KEYS)), "v": pa.array(range(KEYS), pa.int32())}))
        works = [partial(alter, table, run), partial(reader, table, run), partial(maintain, table, run)]
        for work in (write, point_reads, scans):
            works += [partial(work, table, run, seed), partial(work, table, run, seed + 1)]
        run.all(*works)
        found = table.scan(order="key").to_table()
        assert found["k"].to_pylist() == found["v"].to_pylist() == list(range(KEYS))
        table.verify()


def test_reads_in_the_midst_of_a_change_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the schema and the views, of which there are as many as tablets."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int32())])
    with kc.create_table(str(tmp_path / "t"), schema, "k", options=OPTIONS) as table:
        table.insert([{"k": 1, "v": 7}])
        table.flush()
        found: list[object] = []
        reads = [
            lambda: table.get(1),
            lambda: table.get(1, columns=["v", "k"]),
            lambda: table.get_many([1]).to_pylist()[0]["v"],
            lambda: table.scan().to_pylist(),
            lambda: table.changes().to_table()["v"].to_pylist(),
        ]
        threads = [threading.Thread(target=lambda one=one: found.append(one())) for one in reads]

        def retyped(*given: object) -> None:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(0.1)
            assert not found, "they were answered of a schema and files that do not fit together"
            retype(*given)

        retype = alter_walk.retype
        monkeypatch.setattr(alter_walk, "retype", retyped)
        table.alter(change={"v": {"type": "int64"}})
        for thread in threads:
            thread.join()
        assert len(found) == len(reads)
        row = {"k": 1, "v": 7}
        assert all(one in (row, 7, [row], [7]) for one in found)
