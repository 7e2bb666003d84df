"""``kudu_core.repair`` of rows that are older than columns with long defaults: it needs the room of what
there is, not of what it reads as."""

from __future__ import annotations

from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.table.repair import walk
from kudu_core.table.repair.write_beside import RepairedRange
from tests.support.tables import Make, make, path

__all__ = ["make", "path"]

KIB = 1 << 10
DEFAULT_BYTES = 64 * KIB
MOST_BYTES = 100 << 20
"""At one time, of a repair in which the defaults alone come to more than 500 MiB."""


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of columns made of a default, and of outputs, as they come."""
    seen: list[int] = []
    constant, output = ColumnBuffers.constant, walk._RepairWalk._output

    def noting(*given: object) -> ColumnBuffers:
        made = constant(*given)  # type: ignore[arg-type]
        seen.append(made.nbytes)
        return made

    def noting_output(*given: object) -> RepairedRange:
        made: RepairedRange = output(*given)  # type: ignore[arg-type]
        seen.append(made.kept.nbytes)
        return made

    monkeypatch.setattr(ColumnBuffers, "constant", staticmethod(noting))
    monkeypatch.setattr(walk._RepairWalk, "_output", noting_output)
    return seen


@pytest.mark.parametrize("where", ["file", "log"])
def test_rows_with_long_defaults(make: Make, path: Path, largest: list[int], where: str, long: bool) -> None:
    """In files, with changes of some of their cells, and in records of the log."""
    rows = 80_000 if long else 9_000
    table = make(schema=[kc.Column("k", "int64")], ingest_threshold_rows=100 if where == "file" else 1 << 20)
    table.insert({"k": list(range(rows))})
    if where == "file":
        table.flush()
    table.alter(add=[kc.Column("wide", "string", default="d" * DEFAULT_BYTES), kc.Column("n", "int8")])
    table.update({"k": [5, rows - 1], "wide": ["set"] * 2})
    table.update({"k": [6], "n": [1]})
    if where == "file":
        table.flush()
    table.delete({"k": [7]})
    table.close()
    largest.clear()
    report = kc.repair(path)
    assert (report.rows_kept, report.rows_doubtful, report.is_sound) == (rows - 1, 0, True), report.text()
    assert sum(largest) > rows * DEFAULT_BYTES, "the defaults were seen"
    assert max(largest) < MOST_BYTES


def test_they_are_written(make: Make, path: Path) -> None:
    """Rows and changes of them, in small pieces, come to the table that there was."""
    table = make(schema=[kc.Column("k", "int64"), kc.Column("a", "int64")], ingest_threshold_rows=100)
    table.insert({"k": list(range(400)), "a": list(range(400))})
    table.flush()
    table.alter(add=[kc.Column("wide", "string", default="d" * DEFAULT_BYTES)])
    table.insert({"k": list(range(400, 450)), "wide": ["own"] * 50})
    table.update({"k": list(range(0, 400, 3)), "wide": [None] * 134})
    table.flush()
    table.update({"k": [1, 2], "a": [-1, -2]})
    table.delete({"k": [4, 300]})
    wanted = table.scan(order="key").to_table()
    table.close()
    report = kc.repair(path, dry_run=False)
    assert report.is_sound and report.rows_kept == 448
    with kc.open_table(f"{path}.repaired") as made:
        assert made.scan(order="key").to_table().equals(wanted)


def test_what_was_read_is_let_go(make: Make, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rowsets that lie one behind the other, pieces of a few are held at a time."""
    from kudu_core.table.repair import tablet_facts as tablets

    table = make(schema=[kc.Column("k", "int64"), kc.Column("s", "string")], ingest_threshold_rows=10)
    for first in range(0, 800, 20):
        table.insert({"k": list(range(first, first + 20)), "s": ["x" * 100] * 20})
    table.close()
    held: list[int] = []
    judged = tablets.TabletFacts._judged

    def noting(facts: tablets.TabletFacts, lower: bytes | None, upper: bytes | None) -> object:
        made = judged(facts, lower, upper)
        held.append(sum(store._recent is not None for store in facts.stores))
        return made

    monkeypatch.setattr(tablets.TabletFacts, "_judged", noting)
    assert kc.repair(path).rows_kept == 800
    assert len(held) >= 4 and max(held) <= 2 * tablets.RANGE_PIECES, held
