from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
MANUAL = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0, "ingest_threshold_rows": 20}


@pytest.fixture
def table(tmp_path: Path) -> Iterator[kc.Table]:
    made = kc.create_table(str(tmp_path / "t"), SCHEMA, "k", options=MANUAL)
    made.insert({"k": [1, 2, 3], "v": [10, 20, 30], "s": ["a", "b", "c"]})
    yield made
    made.close()


def _touch(table: kc.Table) -> None:
    """The same rows, each once more: as changes of what is in files."""
    columns = table.schema.names
    for row in table.scan().to_pylist():
        table.upsert([{name: row[name] for name in columns}])


def _memory(table: kc.Table) -> None:
    """As it is."""


def _flushed(table: kc.Table) -> None:
    table.flush()


def _changed(table: kc.Table) -> None:
    table.flush()
    _touch(table)


def _churned(table: kc.Table) -> None:
    table.flush()
    _touch(table)
    table.flush()
    _touch(table)


def _merged(table: kc.Table) -> None:
    _churned(table)
    table.flush()
    table.compact(full=True)


STATES = {f.__name__[1:]: f for f in (_memory, _flushed, _changed, _churned, _merged)}


@pytest.fixture(params=[*STATES])
def place(request: Any) -> Callable[[kc.Table], None]:
    """Puts rows where a table may have them."""
    return STATES[request.param]
