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
from tests.support.inside import wait_durable
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
