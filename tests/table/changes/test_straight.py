"""Changes told straight, as their stores have them, are those of the general way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.rowset.history.history import RowSetHistory
from kudu_core.rowset.history.straight import StraightHistory
from kudu_core.table.changes import changes as module
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from tests.support.clock import ManualClock
from tests.support.inside import compaction_lane_of, tablets_of, wait_durable
from tests.support.models.history import SCHEMA, History, random_batch

ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"images": "both"},
    {"columns": ["b"]},
    {"columns": [], "images": "both"},
    {"where": [("a", ">", 0)]},
    {"net": True},
    {"net": True, "images": "both"},
)


def told(table: kc.Table, since: int, until: int, asked: dict[str, Any]) -> list[str]:
    """The changes, those of one time in any order."""
    rows = table.changes(since, until, **asked).to_pylist()
    assert asked.get("net") or rows == sorted(rows, key=lambda row: row["_timestamp"])
    return sorted(map(repr, rows))


class Ways:
    """Whether the straight way may be gone, and which of its forms were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.straight = True
        self.gone: dict[tuple[bool, ...], int] = {}
        """By whether UNDO tells, in each window of one history."""
        usual = RowSetHistory.straight

        def asked(history: RowSetHistory) -> list[StraightHistory] | None:
            found = usual(history)
            if found is not None:
                kinds = tuple(part.undo for part in found)
                self.gone[kinds] = self.gone.get(kinds, 0) + 1
            return found if self.straight else None

        monkeypatch.setattr(RowSetHistory, "straight", asked)


def compact_one(table: kc.Table, rng: random.Random, kind: str) -> None:
    """The changes of one rowset."""
    [tablet] = tablets_of(table)
    if tablet.view.rowsets:
        compaction_lane_of(table).compact(tablet, rng.choice(tablet.view.rowsets).id, kind)


def test_what_was_folded_later_is_not_told_sooner(tmp_path: Path) -> None:
    """An update that a merge has put into the base, and that comes after the window; and REDO whose file
    speaks of its columns, of another row and later too."""
    clock = ManualClock()
    options = {"maintenance": "manual", "ingest_threshold_rows": 1}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options, _clock=clock) as table:
        names = table.schema.names
        for call in (
            lambda: table.insert([dict.fromkeys(names) | {"k": k, "a": k} for k in (1, 2, 3)]),
            lambda: table.delete([{"k": 2}]),
            lambda: table.update([{"k": 3, "a": 30}]),
            lambda: compaction_lane_of(table).merge(
                tablets_of(table)[0], [rowset.id for rowset in tablets_of(table)[0].view.rowsets]
            ),
            lambda: table.update([{"k": 1, "a": 10}]),
            lambda: compact_one(table, random.Random(0), MINOR),
        ):
            clock.advance(us=1)
            call()
        times = sorted({row["_timestamp"] for row in table.changes(0).to_pylist()})
        until = times[2] - 1
        found = {row["k"]: row["a"] for row in table.changes(0, until).to_pylist() if row["_op"] == "insert"}
        assert found == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("whole", [0.0, 0.5, 1.0])
def test_both_ways_agree(
    tmp_path: Path, seed: int, long: bool, whole: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = Ways(monkeypatch)
    monkeypatch.setattr(module, "STRETCH_EVENTS", 64)
    for run in range(40 if long else 2):
        rng = random.Random(f"{seed}-{run}-{whole}")
        history = History()
        options = {"maintenance": "manual", "ingest_threshold_rows": rng.choice((30, 10**6))}
        with kc.create_table(tmp_path / f"t{run}", SCHEMA, "k", options=options) as table:
            for _ in range(30):
                rows = rng.choice((1, 4, 50))
                batch = random_batch(rng, history.model, range(70), rows, whole=rng.random() < whole)
                history.write(table, batch)
                draw = rng.random()
                if draw < 0.3:
                    table.flush()
                elif draw < 0.45:
                    table.compact(full=draw < 0.33)
                elif draw < 0.6:
                    compact_one(table, rng, MINOR if draw < 0.55 else MAJOR)
            wait_durable(table)
            times = [0, *history.writes]
            for _ in range(12):
                since, until = sorted(rng.choice(times) for _ in range(2))
                for asked in ASKED:
                    ways.straight = True
                    fast = told(table, since, until, asked)
                    ways.straight = False
                    assert fast == told(table, since, until, asked), (since, until, asked)
    for kinds in ((False,), (True,), (True, False)):
        assert kinds in ways.gone, ways.gone
