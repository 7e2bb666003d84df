"""Tables that earlier versions wrote, kept for ever: opened as they are, and nothing of them is rewritten."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import kudu_core as kc
from kudu_core.cfile import RowsFile
from kudu_core.fs.posix import PosixFileSystem

HERE = Path(__file__).parent
KEPT = sorted(path.parent.name for path in HERE.glob("v*/kept.json"))
MAX_BYTES = 450_000
TYPES = {
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "bool"),
    *("string", "binary", "date32", "timestamp[us]", "timestamp[us,UTC]", "decimal128"),
}


class Kept(NamedTuple):
    path: Path
    """Of a copy."""
    contents: ModuleType
    times: list[int]
    """The time of the table after each step."""

    @property
    def table(self) -> Path:
        return self.path / "table"


@pytest.fixture(params=KEPT)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    shutil.copytree(HERE / request.param, tmp_path / "kept")
    contents = importlib.import_module(f"tests.compat.{request.param}.contents")
    facts = json.loads((HERE / request.param / "kept.json").read_text())
    return Kept(tmp_path / "kept", contents, facts["times"])


def by_key(kept: Kept, rows: Iterable[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {tuple(row[name] for name in kept.contents.KEY): row for row in rows}


def files(path: Path) -> dict[str, str]:
    """Digest of every file, by its name."""
    return {
        found.relative_to(path).as_posix(): hashlib.sha256(found.read_bytes()).hexdigest()
        for found in path.rglob("*")
        if found.is_file()
    }


def test_there_is_one() -> None:
    assert KEPT, "no table is kept: see tests/compat/README.md"
    for name in KEPT:
        size = sum(len(path.read_bytes()) for path in (HERE / name).rglob("*") if path.is_file())
        assert size < MAX_BYTES, f"{name} has {size:,} bytes"


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_every_row_of_every_time_is_read(kept: Kept, mode: str) -> None:
    states = kept.contents.states()
    assert len(states) == len(kept.times) == len(kept.contents.STEPS)
    with kc.open_table(kept.table, mode) as table:
        assert by_key(kept, table.scan().to_pylist()) == states[-1]
        for at, state in zip(kept.times, states, strict=True):
            rows = table.scan(at=at).to_pylist()
            assert by_key(kept, rows) == state
            assert len(rows) == len(state) == table.count(at=at)
        for key, row in states[-1].items():
            assert table.get(key) == row


def test_every_change_is_told(kept: Kept) -> None:
    """Laid over the state of the step before, the changes of a step give the state after it."""
    states = kept.contents.states()
    with kc.open_table(kept.table) as table:
        for first, last, before, after in zip(kept.times, kept.times[1:], states, states[1:], strict=False):
            rows = dict(before)
            for change in table.changes(first, last).to_pylist():
                operation, time = change.pop("_op"), change.pop("_timestamp")
                assert first < time <= last
                [key] = by_key(kept, [change])
                assert (key in rows) == (operation != "insert")
                if operation == "delete":
                    del rows[key]
                else:
                    rows[key] = change
            assert rows == after


def page_sizes(table: Path) -> Iterable[tuple[int, int]]:
    """Of each column of rows: the power of two of a page's rows, and how many pages there are."""
    for path in table.rglob("*.rows"):
        with RowsFile(PosixFileSystem(), str(path)) as file:
            yield from [(column.page_bits, column.page_count) for column in file.columns.values()]


def test_it_is_sound_and_has_what_it_was_made_for(kept: Kept) -> None:
    with kc.open_table(kept.table) as table:
        checked = table.verify()
        assert not checked.unnamed and not checked.foreign and not checked.lost_files
        layout = table.layout()
        for part in ("undo ", "redo ", "insert time column"):
            assert part in layout, f"{part} is not in:\n{layout}"
        assert any(0 < page_bits < 10 and pages > 1 for page_bits, pages in page_sizes(kept.table))
        for part in (r"memrowset: [1-9]\d* rows", r"dms  [1-9]\d* changes"):
            assert re.search(part, layout), f"nothing is left to be flushed:\n{layout}"
        declared = {name.split("(")[0] for _, name, *_ in kept.contents.COLUMNS}
        assert declared == TYPES


def test_reading_leaves_every_byte_as_it_was(kept: Kept) -> None:
    before = files(kept.path)
    with kc.open_table(kept.table) as table:
        table.scan().to_table()
        table.verify()
    assert files(kept.path) == before


def test_opening_for_writing_rewrites_no_data_file(kept: Kept) -> None:
    before = files(kept.table)
    data = {name for name in before if name.endswith((".rows", ".delta"))}
    with kc.open_table(kept.table, "rw") as table:
        assert len(data) > 8
        assert table.scan().to_table().num_rows == len(kept.contents.states()[-1])
    after = files(kept.table)
    assert {name: after.get(name) for name in data} == {name: before[name] for name in data}


def test_it_can_be_written_on(kept: Kept) -> None:
    rows = kept.contents.states()[-1]
    key, row = next(iter(rows.items()))
    changed = {**row, "i64": 1}
    with kc.open_table(kept.table, "rw") as table:
        app, version, named = [given for _, step, given in kept.contents.STEPS if step == "upsert_as"][-1]
        assert table.upsert(named, txn=(app, version)).deduplicated
        with pytest.raises(kc.TokenMismatch):
            table.upsert(named[1:], txn=(app, version))
        table.update([changed])
        table.flush()
        table.compact(full=True)
        assert by_key(kept, table.scan().to_pylist()) == {**rows, key: changed}
        assert by_key(kept, table.scan(at=kept.times[-1]).to_pylist()) == rows
    with kc.open_table(kept.table) as table:
        table.verify()
        assert by_key(kept, table.scan().to_pylist()) == {**rows, key: changed}


def test_its_backups_are_restored(kept: Kept, tmp_path: Path) -> None:
    states, steps = kept.contents.states(), kept.contents.STEPS
    backups = [n for n, (_, operation, _) in enumerate(steps) if operation == "backup"]
    assert len(backups) == 2
    for n in backups:
        with kc.restore(kept.path / "backups", tmp_path / f"restored{n}", at=kept.times[n]) as table:
            rows = [kept.contents.today(row) for row in table.scan().to_pylist()]
            known = by_key(kept, rows)
            assert known.keys() == states[n].keys()
            for key, row in known.items():
                assert row.items() <= states[n][key].items()
