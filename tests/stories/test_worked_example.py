"""The worked histories of Kudu's tablet design: one row through every store.

For each history, wherever flushes and delta compactions fall between its steps, each timestamp shows the
state that the design draws, and what changed between any two is the difference.  Where the versions lie
after some of these is drawn and compared; ours differs in one thing: the first insert is an insert time
of the base row, not an UNDO record.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from tests.support.inside import engine_of
from tests.support.models.drawing import drawing

SCHEMA = pa.schema([("key", pa.string()), ("val", pa.uint32())])
OPTIONS = {"maintenance": "manual", "durability": "none", "file_grace_s": 0}
Step = tuple[str, int | None]


@dataclass(frozen=True)
class Worked:
    """Steps, and the row's value after each of them; None where there is no row."""

    steps: tuple[Step, ...]
    states: tuple[int | None, ...]


HISTORIES = {
    # docs/design-docs/tablet.md, "MVCC Mutations in MemRowSet"
    "tablet.md": Worked((("insert", 1), ("update", 2), ("delete", None), ("insert", 3)), (1, 2, None, 3)),
    # A life in one rowset, another in a later one.
    "two lives": Worked(
        (("insert", 1), ("update", 2), ("update", 3), ("delete", None), ("insert", 7), ("update", 8)),
        (1, 2, 3, None, 7, 8),
    ),
    "dead at the end": Worked(
        (("insert", 1), ("delete", None), ("insert", 2), ("delete", None)), (1, None, 2, None)
    ),
    "same values": Worked((("insert", 1), ("update", 1), ("delete", None), ("insert", 1)), (1, 1, None, 1)),
}

BETWEEN = ("", "flush", "minor", "major", "merge")
"""What may happen after a step; a compaction flushes first."""


def play(table: kc.Table, steps: Sequence[Step], between: Sequence[str]) -> list[int]:
    """The timestamps of the steps."""
    times = []
    for (op, value), then in zip(steps, between, strict=True):
        if op == "delete":
            result = table.delete({"key": ["row"]})
        else:
            result = getattr(table, op)([{"key": "row", "val": value}])
        times.append(result.timestamp)
        if then:
            table.flush()
        engine = engine_of(table)
        assert engine.compactions is not None
        if then == "merge":
            assert engine.compactions.merge(engine.tablets[0], [r.id for r in engine.tablets[0].view.rowsets])
        if then in ("minor", "major"):
            for rowset in engine.tablets[0].view.rowsets:
                engine.compactions.compact(engine.tablets[0], rowset.id, MINOR if then == "minor" else MAJOR)
    return times


def check(table: kc.Table, worked: Worked, times: list[int]) -> None:
    points = [times[0] - 1, *times]
    states = (None, *worked.states)
    for at, value in zip(points, states, strict=True):
        wanted = [] if value is None else [{"key": "row", "val": value}]
        for order in ("any", "key"):
            assert table.scan(at=at, order=order).to_table().to_pylist() == wanted
        assert table.get("row", at=at) == (wanted[0] if wanted else None)
        assert table.count(at=at) == len(wanted)
        assert table.scan(where=[("val", "=", 2)], at=at).count() == (value == 2)
    for (a, since), (b, until) in itertools.combinations(enumerate(points), 2):
        steps = list(zip(range(a + 1, b + 1), worked.steps[a:b], strict=True))
        changes = table.changes(since, until).to_pylist()
        assert [(c["_op"], c["val"], c["_timestamp"]) for c in changes] == [
            (op, value, points[n]) for n, (op, value) in steps
        ]
        before, after = states[a], states[b]
        net = [(c["_op"], c["val"]) for c in table.changes(since, until, net=True).to_pylist()]
        if before is None and after is None:
            assert net == []
        elif after is None:
            assert net == [("delete", None)]
        elif before is None:
            assert net == [("insert", after)]
        elif before != after:
            assert net == [("update", after)]


@pytest.mark.parametrize("name", HISTORIES)
def test_every_timestamp_shows_what_the_design_draws(
    name: str, tmp_path: Path, long: bool, seed: int
) -> None:
    import random

    worked = HISTORIES[name]
    placements = list(itertools.product(BETWEEN, repeat=len(worked.steps)))
    if not long:
        placements = random.Random(seed).sample(placements, min(12, len(placements)))
    for number, between in enumerate(placements):
        with kc.create_table(tmp_path / f"t{number}", SCHEMA, "key", options=OPTIONS) as table:
            times = play(table, worked.steps, between)
            print(between, *drawing(table, times), sep="\n")  # with a failure
            check(table, worked, times)
        with kc.open_table(tmp_path / f"t{number}") as table:
            check(table, worked, times)


# What lies where, after what.
LAYOUTS: dict[tuple[str, tuple[str, ...]], list[str]] = {
    ("tablet.md", ("", "", "", "")): [
        "MemRowSet",
        "  @1 INSERT ('row', 1)",
        "  @2 SET val=2",
        "  @3 DELETE",
        "  @4 REINSERT val=3",
    ],
    ("tablet.md", ("", "", "", "flush")): [
        "DiskRowSet",
        "  base ('row', 3), inserted @1",
        "  UNDO before @4: DELETE",
        "  UNDO before @3: INSERT val=2",
        "  UNDO before @2: SET val=1",
    ],
    ("tablet.md", ("flush", "flush", "flush", "flush")): [
        "DiskRowSet",
        "  base ('row', 1), inserted @1",
        "  REDO @2: SET val=2",
        "  REDO @3: DELETE",
        "DiskRowSet",
        "  base ('row', 3), inserted @4",
    ],
    ("tablet.md", ("flush", "", "flush", "")): [
        "MemRowSet",
        "  @4 INSERT ('row', 3)",
        "DiskRowSet",
        "  base ('row', 1), inserted @1",
        "  REDO @2: SET val=2",
        "  REDO @3: DELETE",
    ],
    ("tablet.md", ("flush", "major", "", "")): [
        "MemRowSet",
        "  @4 INSERT ('row', 3)",
        "DiskRowSet",
        "  base ('row', 2), inserted @1",
        "  UNDO before @2: SET val=1",
        "  REDO in memory @3 DELETE",
    ],
    ("two lives", ("", "flush", "", "flush", "", "flush")): [
        "DiskRowSet",
        "  base ('row', 2), inserted @1",
        "  UNDO before @2: SET val=1",
        "  REDO @3: SET val=3",
        "  REDO @4: DELETE",
        "DiskRowSet",
        "  base ('row', 8), inserted @5",
        "  UNDO before @6: SET val=7",
    ],
    ("two lives", ("", "flush", "", "flush", "", "merge")): [
        "DiskRowSet",
        "  base ('row', 8), inserted @1",
        "  UNDO before @6: SET val=7",
        "  UNDO before @5: DELETE",
        "  UNDO before @4: INSERT val=3",
        "  UNDO before @3: SET val=2",
        "  UNDO before @2: SET val=1",
    ],
    ("dead at the end", ("flush", "", "flush", "merge")): [
        "DiskRowSet",
        "  base ('row', 2), inserted @1",
        "  UNDO before @3: DELETE",
        "  UNDO before @2: INSERT val=1",
        "  REDO @4: DELETE",
    ],
}


@pytest.mark.parametrize(("name", "between"), LAYOUTS)
def test_versions_lie_where_the_design_puts_them(name: str, between: tuple[str, ...], tmp_path: Path) -> None:
    worked = HISTORIES[name]
    with kc.create_table(tmp_path / "t", SCHEMA, "key", options=OPTIONS) as table:
        times = play(table, worked.steps, between)
        assert drawing(table, times) == LAYOUTS[name, between]
        check(table, worked, times)


def test_changes_of_one_batch_are_one_net_change(tmp_path: Path) -> None:
    """UPDATE, DELETE, INSERT, UPDATE of one row under one timestamp (protocol W3)."""
    for flushed in (False, True):
        with kc.create_table(tmp_path / f"t{flushed}", SCHEMA, "key", options=OPTIONS) as table:
            first = table.insert([{"key": "row", "val": 0}]).timestamp
            if flushed:
                table.flush()
            with table.batch() as batch:
                batch.update([{"key": "row", "val": 1}])
                batch.delete({"key": ["row"]})
                batch.insert([{"key": "row", "val": 5}])
                batch.update([{"key": "row", "val": 6}])
            assert batch.result is not None
            second = batch.result.timestamp
            lines = drawing(table, [first, second])
            assert lines[-1].endswith("@2 SET val=6") and len(lines) == 3
            check(table, Worked((("insert", 0), ("update", 6)), (0, 6)), [first, second])
