"""Rows are laid into memory without an allocation that could fail, and counted as what they take."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.tablet.store.apply import Laying
from tests.support.inside import (
    engine_of,
    estimated_memory_of,
    log_of,
    poison_of,
)
from tests.support.tables import Make
from tests.tablet.store.test_reserving import SCHEMA, rows_of

pytestmark = pytest.mark.usefixtures("checked")

BREAKING: list[tuple[type, str]] = [
    (MemRowSet, "reserve"),
    (MemRowSet, "reserve_change_one"),
    (ChangeLog, "reserve"),
    (ChangeLog, "reserve_one"),
    (DiskRowSet, "reserve"),
    (DiskRowSet, "reserve_change_one"),
]


@pytest.mark.parametrize(("owner", "name"), BREAKING, ids=lambda v: getattr(v, "__name__", v))
def test_no_memory_before_the_record_is_nothing_at_all(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """Whatever makes room may fail: nothing is written, nothing is poisoned, the same write works later."""
    table = make(SCHEMA, ingest_threshold_rows=30)
    table.insert([{"k": k, "s": "d"} for k in range(20)])
    table.flush()
    table.insert([{"k": k, "s": "m"} for k in range(20, 29)])
    table.insert([{"k": 29, "s": "m"}])
    writes: list[Callable[[], Any]] = [
        lambda: table.insert([{"k": 30, "s": "n", "n": 1, "b": b""}]),
        lambda: table.insert([{"k": 31}, {"k": 32}]),
        lambda: table.update([{"k": 1, "s": "u"}]),
        lambda: table.update([{"k": 21, "s": "u"}]),
        lambda: table.update([{"k": 2, "s": "u"}, {"k": 22, "s": "u"}]),
        lambda: table.delete([{"k": 3}]),
        lambda: table.delete([{"k": 4}, {"k": 23}]),
        lambda: table.update({"k": list(range(5, 20)) + list(range(24, 30)), "s": ["z"] * 21}),
        lambda: table.update({"k": [k for k in range(33) if k not in (3, 4, 23)], "n": [5] * 30}),
    ]
    usual = getattr(owner, name)
    met = 0
    for write in writes:
        before, end = rows_of(table), log_of(table).last_lsn

        def fail(*_: Any, **__: Any) -> None:
            nonlocal met
            met += 1
            raise MemoryError

        monkeypatch.setattr(owner, name, fail)
        hits = met
        try:
            write()
        except kc.MemoryLimit as error:
            assert "nothing of it was applied" in str(error)
            assert met > hits
            assert (rows_of(table), log_of(table).last_lsn) == (before, end)
            assert poison_of(table) is None
            monkeypatch.setattr(owner, name, usual)
            write()
        else:
            assert met == hits, "it was asked, and failed, and the write went on"
        monkeypatch.setattr(owner, name, usual)
    assert met
    expected = rows_of(table)
    assert len(expected) == 30
    table.close()
    with kc.open_table(path, "r") as reader:
        assert rows_of(reader) == expected


def test_laying_allocates_nothing_that_grows_with_the_rows(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(SCHEMA, ingest_threshold_rows=1 << 20)
    peaks: list[int] = []
    usual = Laying.lay

    def traced(laying: Laying, ts: int) -> None:
        laying._allocated = None
        tracemalloc.start()
        usual(laying, ts)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    monkeypatch.setattr(Laying, "lay", traced)
    keys = np.arange(50_000)
    text = pa.array(["text"] * len(keys))
    table.insert(pa.table({"k": keys, "s": text}))
    table.update(pa.table({"k": keys, "s": text}))
    table.delete(pa.table({"k": keys[:30_000]}))
    table.insert(pa.table({"k": keys[:30_000], "s": text[:30_000]}))
    table.flush()
    table.update(pa.table({"k": keys, "s": text}))
    table.delete(pa.table({"k": keys}))
    assert len(peaks) == 6
    assert max(peaks) < 100_000, "bytes, of tens of thousands of rows: what numpy converts at a time"


def test_rows_that_are_small_are_counted_as_what_they_take(make: Make) -> None:
    """Key, index and times of a narrow row take many times its bytes."""
    columns = [kc.Column("k", pa.int8()), kc.Column("j", pa.int32()), kc.Column("f", pa.bool_())]
    table = make(columns, ("k", "j"))
    engine = engine_of(table)
    engine.memory.measure()
    before = estimated_memory_of(table)
    for first in range(0, 60_000, 6_000):
        keys = np.arange(first, first + 6_000, dtype=np.int32)
        table.insert(pa.table({"k": np.zeros(6_000, np.int8), "j": keys, "f": np.ones(6_000, bool)}))
    counted = estimated_memory_of(table) - before
    took = engine.memory.measure() - before
    assert 0.6 * took < counted < 2.5 * took
