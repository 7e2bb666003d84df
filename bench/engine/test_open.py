"""Opening a table: of 1,000 rowsets of eight columns, whose log has been truncated, and the first row read;
and of one whose log has small records to be replayed, in groups as it is, and one by one.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kudu_core as kc
import kudu_core.table.lifecycle.open_writer as opening
from kudu_core.tablet.replay.groups import GroupSize
from tests.support.faults import drop

ROWSETS = 1000
ROWS = 3_600 * ROWSETS


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("open") / "t"
    rng = np.random.default_rng(0)
    columns = [pa.field("k", pa.int64()), *(pa.field(f"c{n}", pa.float64()) for n in range(6))]
    schema = pa.schema([*columns, pa.field("host", pa.string())])
    options = {"maintenance": "manual", "rowset_target_bytes": 64 << 10}
    usual = opening.log_options
    with pytest.MonkeyPatch.context() as patch:
        small = {"segment_bytes": 4096, "first_fill_bytes": 4096, "fill_bytes": 4096}
        patch.setattr(opening, "log_options", lambda options: dataclasses.replace(usual(options), **small))
        with kc.create_table(where, schema, "k", options=options) as table:
            hosts = pa.array([f"host-{n}" for n in range(500)])
            table.insert(
                pa.table(
                    {
                        "k": np.arange(ROWS),
                        **{f"c{n}": rng.random(ROWS) for n in range(6)},
                        "host": hosts.take(pa.array(rng.integers(0, 500, ROWS))),
                    }
                )
            )
            for _ in range(2):  # the ingest's record is not in the segment that is kept
                table.upsert([{"k": ROWS, "host": "x" * 5000}])
                table.flush()
    with kc.open_table(where) as reader:
        assert reader.stats()["rowsets"][0].as_py() >= ROWSETS
    return where


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_open(benchmark: BenchmarkFixture, path: Path, mode: str) -> None:
    def run() -> None:
        with kc.open_table(path, mode, options={"maintenance": "manual"}) as table:
            assert table.get(ROWS // 2) is not None

    benchmark.extra_info["rowsets"] = ROWSETS
    benchmark.pedantic(run, rounds=7, warmup_rounds=1)  # type: ignore[no-untyped-call]


RECORDS = {
    "64 tablets, 16 x 500 rows": (64, 16, 500),
    "64 tablets, 8 x 10,000 rows": (64, 8, 10_000),
    "8 tablets, 1,000 x 100 rows": (8, 1000, 100),
    "1 tablet, 10,000 x 1 row": (1, 10_000, 1),
}


@pytest.mark.parametrize("how", ["groups", "one by one"])
@pytest.mark.parametrize("records", RECORDS)
def test_replay(
    benchmark: BenchmarkFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: str, how: str
) -> None:
    """Upserts of rows that are there and rows that are not, of which some come again."""
    tablets, calls, rows = RECORDS[records]
    if not benchmark.enabled:
        calls = min(calls, 20)
    rng = np.random.default_rng(0)
    keys = np.arange(200_000) * 10
    options = {"maintenance": "manual", "durability": "none"}
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
    partition_by = [kc.HashPartition(["k"], tablets)] if tablets > 1 else []
    table = kc.create_table(tmp_path / "t", schema, "k", partition_by=partition_by, options=options)
    table.insert(pa.table({"k": keys, "v": keys, "s": keys.astype(str)}))
    table.flush()
    for number in range(calls):
        some = rng.choice(keys, rows, replace=False) + rng.integers(0, 2, rows)
        table.upsert(pa.table({"k": some, "v": some + number, "s": some.astype(str)}))
    count = table.count()
    drop(table)
    if how != "groups":
        monkeypatch.setattr(GroupSize, "next_size", lambda sizes: 1)

    def run() -> None:
        with kc.open_table(tmp_path / "t", "r") as reader:
            assert reader.count() == count

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)  # type: ignore[no-untyped-call]
