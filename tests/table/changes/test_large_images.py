"""Images of changes are made some at a time, by their bytes: in order of time, by key, of whole states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile import DeltaFile
from kudu_core.rowset.history.history import RowSetHistory
from kudu_core.rowset.history.straight import StraightHistory
from kudu_core.table.changes import bounded
from tests.support.inside import wait_durable

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("s", pa.binary())])
ROWS, CELL_BYTES = 600, 20_000
BUDGET_BYTES = 1 << 20


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The most bytes of cells that one call has given."""
    most: dict[str, int] = {}

    def watch(owner: type, name: str, cells_of: Any) -> None:
        usual = getattr(owner, name)

        def counted(self: Any, *asked: Any, **named: Any) -> Any:
            found = usual(self, *asked, **named)
            most[name] = max(most.get(name, 0), sum(column.nbytes for column in cells_of(found)))
            return found

        monkeypatch.setattr(owner, name, counted)

    for name in ("after", "before", "at_start", "at_end"):
        watch(RowSetHistory, name, dict.values)
    watch(StraightHistory, "images", lambda found: [values for run in found for values in run.values()])
    watch(DeltaFile, "updates_of_entries", lambda found: [found[1]])
    monkeypatch.setattr(bounded, "_LEAST_BYTES", BUDGET_BYTES)
    monkeypatch.setattr(bounded, "_MOST_BYTES", BUDGET_BYTES)
    return most


@pytest.mark.parametrize("calls", [1, 40])
def test_changes_of_large_cells(tmp_path: Path, largest: dict[str, int], calls: int) -> None:
    """``calls``: at one time, which has no shorter one, or at many."""
    rng = np.random.default_rng(calls)
    options = {"maintenance": "manual", "durability": "none", "ingest_threshold_rows": 1 << 20}

    def cells(count: int) -> list[bytes]:
        return [rng.bytes(CELL_BYTES) for _ in range(count)]

    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        first = cells(ROWS)
        table.insert({"k": list(range(ROWS)), "n": [0] * ROWS, "s": first})
        table.flush()
        since, told = table.timestamp, {}
        for call in range(calls):
            keys = list(range(call, ROWS, calls))
            new = cells(len(keys))
            told |= dict(zip(keys, new, strict=True))
            table.update({"k": keys, "s": new})
        wait_durable(table)
        for _ in range(2):  # in memory, in a file
            for net in (False, True):
                largest.clear()
                found = table.changes(since, images="both", net=net).to_table()
                assert dict(zip(found["k"].to_pylist(), found["s"].to_pylist(), strict=True)) == told
                before = [row["s"] for row in found["_before"].to_pylist()]
                assert before == [first[k] for k in found["k"].to_pylist()]
                assert found["_timestamp"].to_pylist() == sorted(found["_timestamp"].to_pylist()) or net
                assert largest and max(largest.values()) <= 2 * BUDGET_BYTES, largest
            largest.clear()
            rows = table.changes(None, net=True).to_table()
            assert dict(zip(rows["k"].to_pylist(), rows["s"].to_pylist(), strict=True)) == told
            assert max(largest.values()) <= 2 * BUDGET_BYTES, largest
            table.flush()


def test_changes_of_keys_with_large_cells(tmp_path: Path, largest: dict[str, int]) -> None:
    """Rows that change several times, whichever of them an image's part begins with."""
    rng = np.random.default_rng(3)
    options = {"maintenance": "manual", "durability": "none"}
    keys = list(range(0, 200, 2))
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        table.insert({"k": list(range(200)), "n": [0] * 200, "s": [b""] * 200})
        table.flush()
        since, told = table.timestamp, []
        for number in range(1, 4):
            new = [rng.bytes(CELL_BYTES) for _ in range(200)]
            table.update({"k": list(range(200)), "n": [number] * 200, "s": new})
            told += [(k, number, new[k]) for k in keys]
        wait_durable(table)
        for _ in range(2):  # in memory, in a file
            found = table.changes(since, key=keys, images="both").to_table().to_pylist()
            assert [(row["k"], row["n"], row["s"]) for row in found] == told
            before = [(row["k"], row["_before"]["n"], row["_before"]["s"]) for row in found]
            assert before == [(k, 0, b"") for k in keys] + [(k, n, s) for k, n, s in told[: -len(keys)]]
            assert largest and max(largest.values()) <= 2 * BUDGET_BYTES, largest
            table.flush()
