"""What is deleted, and of which no history is kept, is in no file any more after ``compact`` and ``gc``."""

from __future__ import annotations

from pathlib import Path

import pytest

import kudu_core as kc
from tests.support.tables import Make

SCHEMA = [kc.Column("k", "int64"), kc.Column("s", "string", encoding="plain", compression="none")]
SECRET = "of-ann-and-nobody-else"


def holders(path: str) -> list[str]:
    files = [file for file in Path(path).rglob("*") if file.is_file()]
    return [str(file.relative_to(path)) for file in files if SECRET.encode() in file.read_bytes()]


@pytest.mark.parametrize("way", ["deleted", "updated", "deleted from memory", "truncated"])
@pytest.mark.parametrize("tablets", [1, 3])
def test_no_file_has_it(make: Make, way: str, tablets: int) -> None:
    by = [kc.HashPartition("k", tablets)] if tablets > 1 else []
    with make(SCHEMA, ["k"], partition_by=by, history_retention_s=0.0, file_grace_s=0.0) as table:
        table.insert({"k": list(range(50)), "s": [SECRET, *["x"] * 49]})
        if way != "deleted from memory":
            table.flush()
            table.insert({"k": list(range(50, 99)), "s": ["y"] * 49})
            table.flush()
        if way == "updated":
            table.update({"k": [0], "s": ["z"]})
        elif way == "truncated":
            table.truncate()
        else:
            table.delete([0])
        assert holders(table.path)
        table.flush()
        table.compact(full=True)
        table.gc()
        assert not holders(table.path)
        before = table.scan(order="key").to_pylist()
        path = table.path
    assert not holders(path)
    with kc.open_table(path) as again:
        again.verify()
        assert again.scan(order="key").to_pylist() == before
