"""A table of two ranges of days and some buckets, which tests cut and drop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.clock import ManualClock

SCHEMA = pa.schema([("day", pa.int64()), ("id", pa.int64()), ("v", pa.string())])
MANUAL = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0}
BUCKETS = 3
HOUR = 3600.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(tmp_path: Path, clock: ManualClock) -> Iterator[kc.Table]:
    made = kc.create_table(
        str(tmp_path / "t"),
        SCHEMA,
        ["day", "id"],
        partition_by=[kc.HashPartition("id", BUCKETS), kc.RangePartition("day", [(0, 10), (10, 20)])],
        options={**MANUAL, "history_retention_s": HOUR},
        _clock=clock,
    )
    made.insert(days(range(20)))
    yield made
    made.close()


def days(wanted: range, ids: range = range(4), v: str = "x") -> dict[str, list[Any]]:
    keys = [(day, id_) for day in wanted for id_ in ids]
    return {"day": [k[0] for k in keys], "id": [k[1] for k in keys], "v": [f"{v}{k}" for k in keys]}


def keys_of(scan: Any) -> set[tuple[int, int]]:
    found = scan.to_table()
    keys = list(zip(found["day"].to_pylist(), found["id"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)
    return set(keys)


def cells(wanted: range, ids: range = range(4)) -> set[tuple[int, int]]:
    return {(day, id_) for day in wanted for id_ in ids}


def reopened(table: kc.Table, clock: ManualClock, mode: str = "rw") -> kc.Table:
    table.close()
    return kc.open_table(table.path, mode, _clock=clock)
