"""Changes of rows in delta files: the last word on each column wins; no file is opened for nothing."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.pages import blocks
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.delta_file import ChangeFile, DecodedColumn, DeltaPoints
from kudu_core._ext.row.shape import TAGS, RowShape
from tests.kernels.row.changing import (
    IDS,
    SHAPE,
    WIDTHS,
    by_position,
    cell,
    newest_values,
    random_changes,
)
from tests.support.oracles.row import view as oracle


class Held:
    """A cache that keeps everything, or nothing."""

    def __init__(self, keeps: bool = True) -> None:
        self.keeps = keeps
        self.next = 0

    def numbers(self, values: list[int], dtype: str) -> DecodedColumn:
        raw = np.array(values, dtype).view(np.uint8)
        self.next += 1
        place = self.next if self.keeps else None
        return DecodedColumn(lambda: (raw, place), np.dtype(dtype).itemsize, len(values))

    def column(self, i: int, values: list[Any]) -> PointColumn:
        valid = np.array([v is not None for v in values])
        bits = None if valid.all() else np.packbits(valid, bitorder="little")
        cells = [cell(i, v) or b"" for v in values]
        if WIDTHS[i]:
            raw = np.frombuffer(b"".join(c or bytes(8) for c in cells), np.uint8)
            page = blocks.encode_fixed(raw, 8, 1 if i == 0 else 2, bits)
        else:
            ends = np.cumsum([0, *map(len, cells)]).astype(np.int32)
            page = blocks.encode_binary(ends, np.frombuffer(b"".join(cells), np.uint8), bits, False)
        self.next += 1
        place = self.next if self.keeps else None
        return PointColumn(lambda _: (page, place), 1, WIDTHS[i])


def delta_points(changes: list[oracle.Change], held: Held, *, timed: bool = True) -> DeltaPoints:
    """As a file has them: by row, and within it in the order given."""
    entries = sorted(range(len(changes)), key=lambda i: changes[i][1])
    columns = []
    for i, id_ in enumerate(IDS):
        mine = [n for n, e in enumerate(entries) if id_ in changes[e][3]]
        if mine:
            values = [changes[entries[n]][3][id_] for n in mine]
            columns.append((id_, held.numbers(mine, "<u4"), held.column(i, values)))
    return DeltaPoints(
        held.numbers([changes[e][1] for e in entries], "<u4"),
        held.numbers([changes[e][2] for e in entries], "u1"),
        held.numbers([changes[e][0] for e in entries], "<u8") if timed else None,
        columns,
    )


@pytest.mark.parametrize("undo", [False, True])
def test_changes_in_files(undo: bool, seed: int, long: bool) -> None:
    for round_ in range(200 if long else 20):
        r = random.Random(f"{seed} {round_}")
        changes = random_changes(r, r.choice([1, 5, 40]), r.choice([1, 30, 300]))
        low, high = changes[0][0], changes[-1][0]
        if undo:
            changes.reverse()
        points = delta_points(changes, Held())
        opened: list[int] = []

        def open_(points: DeltaPoints = points, opened: list[int] = opened) -> DeltaPoints:
            opened.append(1)
            return points

        file = ChangeFile(open_, undo, low, high)
        # Not even opened where its times say that the snapshot takes nothing.
        assert file.row(0, high if undo else low - 1, SHAPE) == (None, {}) and not opened
        meaning = oracle.row_before if undo else oracle.row_after
        rows = np.arange(41)
        touched = points.touched(rows)
        for row in range(41):
            assert touched[row] == any(c[1] == row for c in changes)
            for at in (0, low, r.choice(changes)[0], high, 2**64 - 1):
                lives, values = file.row(row, at, SHAPE)
                expected = by_position(meaning(changes, row, at))
                assert (lives, {} if lives is False else values) == expected, (round_, row, at)
        assert opened == [1]
        at = r.choice(changes)[0]
        for snapshot in (None, at):
            seen = [c for c in changes if snapshot is None or (c[0] > at if undo else c[0] <= at)]
            lives = {c[1]: int(c[2] == 3) for c in seen if c[2] >= 2}
            assert newest_values(points, None, 41, snapshot, undo) == lives
            for i, column in enumerate(IDS):
                found = points.newest(column, rows, snapshot, undo)
                if found is None:
                    assert not any(column in c[3] for c in changes)
                    continue
                which, (cells, ends, validity) = found
                values = {c[1]: c[3][column] for c in seen if column in c[3]}
                assert which.tolist() == sorted(values)
                for k, row in enumerate(which.tolist()):
                    if validity is not None and not validity[k >> 3] >> (k & 7) & 1:
                        assert values[row] is None
                        continue
                    raw = cells[ends[k] : ends[k + 1]] if ends is not None else cells[8 * k : 8 * k + 8]
                    assert raw.tobytes() == cell(i, values[row])


def test_a_file_whose_statistics_rule_it_out_is_not_opened(seed: int) -> None:
    """With them it says what it says without them, and is asked only where it may say something."""
    r = random.Random(seed)
    for _ in range(60):
        changes = random_changes(r, 20, r.choice([1, 8]))
        columns = tuple({i for c in changes for i in c[3]})
        liveness = any(c[2] >= 2 for c in changes)
        some = [i for i in range(len(IDS)) if r.random() < 0.4]
        shape = RowShape(
            [SHAPE.names[i] for i in some],
            [IDS[i] for i in some],
            [(TAGS["signed"], TAGS["bytes"], TAGS["float"])[i] for i in some],
            [lambda raw: raw] * len(some),
            [None] * len(some),
        )
        opened: list[int] = []

        def open_(changes: list[oracle.Change] = changes, opened: list[int] = opened) -> DeltaPoints:
            opened.append(1)
            return delta_points(changes, Held())

        low, high = changes[0][0], changes[-1][0]
        points = delta_points(changes, Held())
        plain = ChangeFile(lambda points=points: points, False, low, high)  # type: ignore[misc]
        file = ChangeFile(open_, False, low, high, columns, liveness)
        for row in range(21):
            assert file.row(row, high, shape) == plain.row(row, high, shape)
        assert bool(opened) == (liveness or any(IDS[i] in columns for i in some))


def test_what_the_cache_does_not_keep_is_read_elsewhere() -> None:
    changes: list[oracle.Change] = [(5, 1, 1, {3: 7})]
    file = ChangeFile(lambda: delta_points(changes, Held(keeps=False)), False, 5, 5)
    with pytest.raises(NeedsGeneralPath):
        file.row(1, 9, SHAPE)


def test_held_columns_leave_when_they_are_not_used() -> None:
    points = delta_points([(5, 1, 1, {3: 7})], Held())
    file = ChangeFile(lambda: points, False, 5, 5)
    assert file.row(1, 9, SHAPE) == (None, {0: 7})
    held = points.pages
    assert held == 4  # rowids, operations, entries, values; the times were not needed
    assert [points.forget(place) for place in range(10)].count(False) == held
    assert points.pages == held
    assert all(points.forget(place) for place in range(10)) and points.pages == 0
    assert file.row(1, 9, SHAPE) == (None, {0: 7}) and points.pages == held
    points.close()
    assert points.pages == 0
    with pytest.raises(NeedsGeneralPath):
        points.touched(np.zeros(1, np.int64))


def test_operations_that_do_not_exist_are_not_guessed_at() -> None:
    for op in (0, 4, 255):
        points = delta_points([(5, 1, op, {3: 7})], Held())
        file = ChangeFile(lambda points=points: points, False, 5, 5)  # type: ignore[misc]
        with pytest.raises(NeedsGeneralPath):
            file.row(1, 9, SHAPE)


def test_columns_that_do_not_fit_are_refused() -> None:
    held = Held()
    four, one, eight = held.numbers([1], "<u4"), held.numbers([1], "u1"), held.numbers([1], "<u8")
    for arguments in [(one, one, eight), (four, four, eight), (four, one, four)]:
        with pytest.raises(ValueError):
            DeltaPoints(*arguments, [])
    with pytest.raises(ValueError):
        DeltaPoints(four, held.numbers([1, 2], "u1"), None, [])
    with pytest.raises(ValueError):
        DeltaPoints(four, one, None, [(3, held.numbers(list(range(16_385)), "<u4"), held.column(0, [1]))])
    short = DecodedColumn(lambda: (np.zeros(3, np.uint8), 1), 4, 1)
    with pytest.raises(ValueError):
        DeltaPoints(short, one, None, []).touched(np.zeros(1, np.int64))
