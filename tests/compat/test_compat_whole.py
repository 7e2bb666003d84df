"""Tables that have what TABLE says of a table as a whole, kept as ``test_compat.py`` keeps others."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.format.envelope import HEADER
from tests.compat.whole1.make import states

HERE = Path(__file__).parent / "whole1"
TIMES: list[int] = json.loads((HERE / "kept.json").read_text())["times"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE / "table", tmp_path / "table"))


def rows_of(table: kc.Table, at: int | None = None) -> dict[int, dict[str, Any]]:
    return {row["k"]: row for row in table.scan(at=at).to_pylist()}


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_rows_of_every_time(path: Path, mode: str) -> None:
    assert HEADER.unpack_from((path / "TABLE").read_bytes())[2] == 1 | 2 | 4 | 8 | 16
    with kc.open_table(path, mode) as table:
        assert rows_of(table) == states()[-1]
        for at, state in zip(TIMES, states(), strict=True):
            assert rows_of(table, at) == state and table.count(at=at) == len(state)
        assert table.tags() == {"first": TIMES[0]}
        assert table.ttl is not None and table.ttl[0] == "at"
        assert len(table.partitions.partitions) == 2 and list(table.indexes) == ["by_n"]
        found = table.scan(["k"], where=pc.field("n") == 70_000)
        assert found.to_pylist() == [{"k": 1}]
        table.verify()


def test_changes_lead_from_each_time_to_the_next(path: Path) -> None:
    """What has expired is not there at any time, and is told as it was written."""
    with kc.open_table(path) as table:
        for first, last, before, after in zip(TIMES, TIMES[1:], states(), states()[1:], strict=False):
            rows = dict(before)
            for change in table.changes(first, last).to_table().to_pylist():
                key = change["k"]
                if change.pop("_op") == "delete":
                    rows.pop(key, None)
                else:
                    rows[key] = {name: change[name] for name in ("k", "n", "at")}
            assert rows == after


def test_reading_leaves_every_byte_as_it_was(path: Path) -> None:
    def digests() -> dict[str, str]:
        found = (file for file in path.rglob("*") if file.is_file())
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}

    before = digests()
    with kc.open_table(path) as table:
        table.scan().to_table()
        table.verify()
    assert digests() == before
