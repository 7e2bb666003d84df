"""Which rows a scan touches: 1,000,000 rows of (host, ts), 200 hosts, one rowset, all in the page cache.

pytest bench/engine/test_ranges.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.schema.declare import declare
from kudu_core.common.where.predicates import compile_where
from kudu_core.rowset.disk.diskrowset import DiskRowsAt
from kudu_core.rowset.scan.row_ranges import Pruning, choose
from tests.support.inside import schema_of, tablets_of

ROWS, HOSTS = 1_000_000, 200
EACH = ROWS // HOSTS
SCHEMA = pa.schema([("host", pa.string()), ("ts", pa.int64()), ("load", pa.float64()), ("seq", pa.int64())])
TIMES = [("ts", ">=", 2_000_000), ("ts", "<", 2_050_000)]  # 1%
ONE_HOST = [("host", "=", "host-00077")]
WORKS = [(TIMES, ROWS // 100), (ONE_HOST, EACH)]
GROUP = "which rows a scan touches"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kc.Table]:
    path: Path = tmp_path_factory.mktemp("ranges") / "t"
    rng = np.random.default_rng(0)
    with kc.create_table(path, SCHEMA, ["host", "ts"], options={"durability": "none"}) as made:
        made.insert(
            pa.table(
                {
                    "host": np.repeat([f"host-{i:05d}" for i in range(HOSTS)], EACH),
                    "ts": np.tile(np.arange(EACH) * 1000, HOSTS),
                    "load": np.round(rng.normal(50, 10, ROWS), 2),
                    "seq": np.arange(ROWS),
                },
                SCHEMA,
            )
        )
        made.flush()
        yield made


def rowset(table: kc.Table) -> DiskRowsAt:
    sources = [s for tablet in tablets_of(table) for s in tablet.view.at(2**64 - 1)]
    (found,) = (s for s in sources if isinstance(s, DiskRowsAt))
    return found


@pytest.mark.benchmark(group=GROUP)
@pytest.mark.parametrize(("where", "rows"), WORKS, ids=["1% of ts", "one host"])
def test_choose(benchmark: Any, table: kc.Table, where: Any, rows: int) -> None:
    source = rowset(table)
    schema = schema_of(table)
    compiled = compile_where(where, schema)
    chosen = benchmark(lambda: choose(source, Pruning.of(schema, compiled, None, None), compiled))
    assert (chosen.by_keys, chosen.where) == (rows, None)


@pytest.mark.benchmark(group=GROUP)
def test_zone_maps(benchmark: Any, table: kc.Table) -> None:
    source = rowset(table)
    schema = schema_of(table)
    compiled = compile_where([("seq", ">=", 500_000), ("seq", "<", 510_000)], schema)
    column_id = schema.by_name["seq"].id
    wanted = Pruning.of(schema, compiled, None, None).columns[column_id]
    found = benchmark(lambda: source.file.zone_table(column_id).may_hold(wanted))
    assert sum(found) == 2


@pytest.mark.benchmark(group="what a predicate costs before a scan")
@pytest.mark.parametrize("form", ["list", "expression"])
def test_compile_where(benchmark: Any, form: str) -> None:
    schema = declare(SCHEMA, ["host", "ts"])
    where: Any = ONE_HOST if form == "list" else pc.field("host") == "host-00077"
    compiled = benchmark(lambda: compile_where(where, schema))
    assert len(compiled.conditions) == 1 and compiled.rest is None


@pytest.mark.benchmark(group="a scan of few rows, from call to table")
@pytest.mark.parametrize(("where", "rows"), WORKS, ids=["1% of ts", "one host"])
def test_small_scan(benchmark: Any, table: kc.Table, where: Any, rows: int) -> None:
    found = benchmark(lambda: table.scan(["host", "ts", "load"], where).to_table())
    assert found.num_rows == rows
