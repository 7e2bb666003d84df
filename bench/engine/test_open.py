"""Opening a table of 1,000 rowsets of eight columns, whose log has been truncated; and the first row read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kudu_core as kc
import kudu_core.table.lifecycle.open_writer as opening

ROWSETS = 1000
ROWS = 3_600 * ROWSETS


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("open") / "t"
    rng = np.random.default_rng(0)
    columns = [pa.field("k", pa.int64()), *(pa.field(f"c{n}", pa.float64()) for n in range(6))]
    schema = pa.schema([*columns, pa.field("host", pa.string())])
    options = {"maintenance": "manual", "rowset_target_bytes": 64 << 10}
    usual = opening._log_options
    with pytest.MonkeyPatch.context() as patch:
        small = {"segment_bytes": 4096, "first_fill_bytes": 4096, "fill_bytes": 4096}
        patch.setattr(opening, "_log_options", lambda options: dataclasses.replace(usual(options), **small))
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
