"""Making room in a change log that an interrupt ends anywhere: what is laid afterwards, everybody finds.

A change is found in two ways, by scans in the logs of columns and by look-ups of rows in compiled chains.  A
log that only one of the two knew hid changes from the other, or lost them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.row.shape import MISSING
from kudu_core.cfile.files.delta_codes import REDO_UPDATE
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from tests.support.interrupts import interrupted, places_of

COLUMN, ROW, OTHER = 3, 5, 6
IDS = (COLUMN,)


def change(row: int, value: int) -> Change:
    values = ColumnBuffers(8, 1, np.array([value], np.int64).view(np.uint8))
    return Change(REDO_UPDATE, np.array([row], np.uint32), {COLUMN: values})


def cells(value: int) -> list[Any]:
    return [np.int64(value).tobytes()]


def reserve_many(log: ChangeLog) -> None:
    log.reserve([change(ROW, 0)])


def reserve_one(log: ChangeLog) -> None:
    log.reserve_one(IDS, (8,), cells(0))


def reserve_few(log: ChangeLog) -> None:
    log.reserve_few(IDS, (8,), [cells(0)])


def lay_many(log: ChangeLog, ts: int, row: int, value: int) -> None:
    log.reserve([change(row, value)])
    log.append(ts, change(row, value))


def lay_one(log: ChangeLog, ts: int, row: int, value: int) -> None:
    log.reserve_one(IDS, (8,), cells(value))
    log.append_one(ts, REDO_UPDATE, row, IDS, cells(value))


def lay_few(log: ChangeLog, ts: int, row: int, value: int) -> None:
    log.reserve_few(IDS, (8,), [cells(value)])
    log.append_few(ts, REDO_UPDATE, [row], IDS, [cells(value)])


LAY = {"many": lay_many, "one": lay_one, "few": lay_few}


def shown(changed: tuple[np.ndarray, ColumnBuffers] | None) -> dict[int, int]:
    if changed is None:
        return {}
    return dict(zip(changed[0].tolist(), changed[1].values.view(np.int64).tolist(), strict=True))


def by_scan(log: ChangeLog, at: int) -> dict[int, int]:
    return shown(log.at(at).updates(COLUMN, 0, 10))


def by_row(log: ChangeLog, at: int) -> dict[int, int]:
    return shown(log.at(at).updates_of(COLUMN, np.array([ROW, OTHER])))


@pytest.mark.parametrize("first", LAY)
@pytest.mark.parametrize("second", LAY)
@pytest.mark.parametrize("reserve", [reserve_many, reserve_one, reserve_few])
def test_everybody_finds_what_is_laid_after_an_interrupt(
    reserve: Callable[[ChangeLog], None], first: str, second: str
) -> None:
    places, _ = places_of(lambda: reserve(ChangeLog()))
    assert places > 5
    for at in range(1, places + 1):
        log = ChangeLog()
        _, interruption = interrupted(lambda log=log: reserve(log), at)
        assert by_row(log, 1) == by_scan(log, 1) == {}, interruption.where
        LAY[first](log, 2, ROW, 20)
        LAY[second](log, 3, OTHER, 30)
        expected = {ROW: 20, OTHER: 30}
        assert by_scan(log, 3) == by_row(log, 3) == expected, interruption.where


def test_a_column_has_one_log() -> None:
    log = ChangeLog()
    reserve_one(log)
    kept = log.column_log(COLUMN)
    assert kept is not None
    with pytest.raises(ValueError, match="column 3 has a log"):
        log.points.add(COLUMN, kept.numbers.kernel, kept.rowids.kernel, kept.values.kernel, {}, None)
    assert log.reserve_one(IDS, (8,), [MISSING]) is None
    assert log.column_log(COLUMN) is kept
