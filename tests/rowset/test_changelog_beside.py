"""Changes in memory are read and measured while they are written."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_UPDATE
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from tests.support.fs.slow import LATE_S, Thread


def test_a_point_read_while_changes_get_their_numbers() -> None:
    """The map names a change whose chain does not yet, in a kernel that works without the GIL."""
    rows = 50_000
    rowids = np.arange(rows, dtype=np.uint32)
    log, first = ChangeLog(), ColumnBuffers(8, rows, np.arange(rows).view(np.uint8))
    log.append(1, Change(REDO_UPDATE, rowids, {2: first}))
    view, stop = log.at(1), threading.Event()

    def write() -> None:
        later = ColumnBuffers(8, rows, np.full(rows, 7).view(np.uint8))
        try:
            for ts in range(2, 40):
                log.append(ts, Change(REDO_UPDATE, rowids[::-1].copy(), {2: later}))
        finally:
            stop.set()

    writing = Thread(write)
    reads = 0
    while not stop.is_set() or not reads:
        for row in (0, 5, rows - 1):
            for read in (view.updates(2, row, row + 1), view.updates_of(2, np.array([row]))):
                assert read is not None
                assert read[0].tolist() == [row]
                assert read[1].values.view(np.int64).tolist() == [row]
        reads += 1
    writing.join(LATE_S)
    assert len(log) == 39 * rows


def test_memory_is_measured_while_a_column_gets_its_first_change() -> None:
    cell, stop = ColumnBuffers(8, 1, np.zeros(8, np.uint8)), threading.Event()
    logs = [ChangeLog()]

    def measure() -> None:
        while not stop.is_set():
            assert logs[0].nbytes >= 0

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        measuring = Thread(measure)
        end = time.monotonic() + 0.5
        while time.monotonic() < end and measuring.is_alive():
            logs[0] = log = ChangeLog()
            for number in range(60):
                log.append(number + 1, Change(REDO_UPDATE, np.array([5], np.uint32), {number: cell}))
    finally:
        stop.set()
        sys.setswitchinterval(before)
    measuring.join(LATE_S)
    assert measuring.answer == [None]
