"""A table to be damaged, and what of it is found after the repair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.tables import Make

ROWS, PAGE = 40_000, 16_384
STRINGS = 4096
"""Rows of a page of the strings."""
INGEST_ROWS = 1_000
"""Calls of so many rows are in files alone: the log does not have them."""
SCHEMA = [kc.Column("k", "int64"), kc.Column("a", "int64"), kc.Column("s", "string")]
"""Of strings that have no dictionary, so that each page stands for itself."""

Row = tuple[int, str]


def rows_of(table: pa.Table) -> dict[int, Row]:
    columns = [table.column(name).to_pylist() for name in ("k", "a", "s")]
    return {k: (a, s) for k, a, s in zip(*columns, strict=True)}


@pytest.fixture
def table(make: Make) -> kc.Table:
    made = make(schema=SCHEMA, ingest_threshold_rows=INGEST_ROWS)
    keys = range(ROWS)
    made.insert({"k": list(keys), "a": [7 * k for k in keys], "s": [f"row {k}" for k in keys]})
    made.flush()
    return made


def file_of(path: Path, suffix: str) -> Path:
    (found,) = (path / "tablets" / "00000001").glob(f"*.{suffix}")
    return found


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 16
    file.write_bytes(data)


class Repaired:
    def __init__(self, path: Path) -> None:
        self.report = kc.repair(path, dry_run=False)
        target = Path(f"{path}.repaired")
        with kc.open_table(target, "rw") as made:
            made.verify()
            self.rows = rows_of(made.scan().to_table())
        self.aside: dict[str, dict[int, tuple[Any, ...]]] = {"lost": {}, "older": {}, "doubtful": {}}
        for name in sorted((target / "repair").glob("*.arrow")):
            for row in pa.ipc.open_stream(name.read_bytes()).read_all().to_pylist():
                assert row["_tablet"] == 1
                self.aside[row["_status"]][row["k"]] = (row["a"], row["s"])


def closed(table: kc.Table) -> dict[int, Row]:
    wanted = rows_of(table.scan().to_table())
    table.close()
    return wanted
