"""Random changes of rows, and a change log that takes them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.index.rowid_map import RowidMap
from kudu_core._ext.row.change_log import ChangePoints
from kudu_core._ext.row.delta_file import DeltaPoints
from kudu_core._ext.row.shape import MISSING, TAGS, RowShape
from tests.support.oracles.row import view as oracle

IDS = (3, 5, 8)
SHAPE = RowShape(
    ["a", "b", "c"],
    IDS,
    [TAGS["signed"], TAGS["bytes"], TAGS["float"]],
    [lambda raw: raw] * 3,
    [-1, b"-", -1.0],
)
WIDTHS = (8, 0, 8)


def value(r: random.Random, i: int) -> Any:
    return [r.randint(-9, 9), bytes([r.randint(0, 255)] * r.randint(0, 5)), r.random()][i]


def cell(i: int, given: Any) -> bytes | None:
    if given is None:
        return None
    return bytes(given) if i == 1 else np.array(given, "<i8" if i == 0 else "<f8").tobytes()


def change_points() -> ChangePoints:
    return ChangePoints(AppendColumn(8), AppendColumn(4), AppendColumn(1), AppendColumn(4), RowidMap())


def append(log: ChangePoints, ts: int, op: int, row: int, values: dict[int, Any]) -> None:
    cells = [cell(i, values[id_]) if id_ in values else MISSING for i, id_ in enumerate(IDS)]
    while (new := log.reserve_one(IDS, cells)) >= 0:
        log.add(IDS[new], AppendColumn(4), AppendColumn(4), AppendColumn(WIDTHS[new]), {}, None)
    log.append_one(ts, op, row, IDS, cells)


def random_changes(r: random.Random, rows: int, count: int, first: int = 1) -> list[oracle.Change]:
    out: list[oracle.Change] = []
    live = [True] * rows
    ts = first
    for _ in range(count):
        ts += r.randint(1, 2)
        row = r.randrange(rows)
        op = r.choice([1, 1, 1, 2]) if live[row] else 3
        live[row] = op != 2
        picked = [] if op == 2 else IDS if op == 3 else r.sample(IDS, r.randint(1, 3))
        out.append((ts, row, op, {i: None if r.random() < 0.2 else value(r, IDS.index(i)) for i in picked}))
    return out


def by_position(said: tuple[bool | None, dict[int, Any]]) -> tuple[bool | None, dict[int, Any]]:
    """Values of a row that is dead mean nothing."""
    lives, values = said
    return lives, {} if lives is False else {IDS.index(i): v for i, v in values.items()}


def newest_values(
    log: ChangePoints | DeltaPoints, column: int | None, rows: int, *more: Any
) -> dict[int, Any]:
    """What ``newest`` says, by row."""
    which, what = log.newest(column, np.arange(rows), *more)  # type: ignore[misc]
    return dict(zip(which.tolist(), what.tolist() if isinstance(what, np.ndarray) else what, strict=False))
