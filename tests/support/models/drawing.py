"""Draws where the versions of a table's rows lie: stores, base rows, UNDO and REDO records.

For tables with a key column ``key`` and one value column ``val``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import kudu_core as kc
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet
from tests.support.inside import schema_of, tablets_of

OPS = {1: "SET val={}", 2: "DELETE", 3: "REINSERT val={}"}
UNDO_OPS = {1: "SET val={}", 2: "DELETE", 3: "INSERT val={}"}


def drawing(table: kc.Table, times: Sequence[int]) -> list[str]:
    """One line a thing; times by their number, from 1."""
    number = {time: i for i, time in enumerate(times, 1)}
    lines: list[str] = []
    for tablet in tablets_of(table):
        for memory in (tablet.view.active, *tablet.view.frozen):
            if len(memory):
                lines += _memory(table, memory, number)
        for rowset in tablet.view.rowsets:
            lines += _disk(table, rowset, number)
    return lines


def _cells(column: object) -> list[object]:
    return list(column)  # type: ignore[call-overload]


def _memory(table: kc.Table, memory: MemRowSet, number: dict[int, int]) -> list[str]:
    schema = schema_of(table)
    rows = len(memory)
    keys, values = (
        memory.read(column.id, 0, rows).to_arrow(column.type).to_pylist()  # type: ignore[union-attr]
        for column in (schema.by_name["key"], schema.by_name["val"])
    )
    inserted = memory.inserted(0, rows).tolist()
    lines = ["MemRowSet"]
    for row in range(rows):
        lines.append(f"  @{number[inserted[row]]} INSERT ({keys[row]!r}, {values[row]})")
        lines += _log(table, memory.changes, row, number)
    return lines


def _log(table: kc.Table, log: ChangeLog, row: int, number: dict[int, int]) -> list[str]:
    column = schema_of(table).by_name["val"]
    times, rowids, ops = log.changes(0, len(log))
    values = {}
    if column.id in log.column_ids:
        numbers, _, cells = log.column_changes(column.id, 0, len(log))
        values = dict(zip(numbers.tolist(), cells.to_arrow(column.type).to_pylist(), strict=True))
    return [
        f"  @{number[int(times[i])]} " + OPS[int(ops[i])].format(values.get(i))
        for i in np.flatnonzero(rowids == row).tolist()
    ]


def _disk(table: kc.Table, rowset: DiskRowSet, number: dict[int, int]) -> list[str]:
    schema = schema_of(table)
    rows = rowset.meta.rows
    file = rowset.base.open()
    keys, values = (
        file.read(schema.by_name[name].id, 0, rows).to_arrow(schema.by_name[name].type).to_pylist()
        for name in ("key", "val")
    )
    times = file.insert_times(0, rows)
    inserted = [rowset.meta.insert_ts] * rows if times is None else times.tolist()
    lines = ["DiskRowSet"]
    for row in range(rows):
        lines.append(f"  base ({keys[row]!r}, {values[row]}), inserted @{number[inserted[row]]}")
        for store in rowset.undo:
            lines += _file(table, store, row, number, undo=True)
        for redo in rowset.redo:
            if isinstance(redo, DeltaStore):
                lines += _file(table, redo, row, number, undo=False)
            else:
                lines += [f"  REDO in memory{line[1:]}" for line in _log(table, redo, row, number)]
    return lines


def _file(table: kc.Table, store: DeltaStore, row: int, number: dict[int, int], *, undo: bool) -> list[str]:
    column = schema_of(table).by_name["val"]
    file = store.open()
    rowids, times, ops = file.entries()
    assert times is not None
    values = {}
    if column.id in store.ref.updates:
        _, _, positions, cells = file.updates_with_entries(column.id)
        values = dict(zip(positions.tolist(), cells.to_arrow(column.type).to_pylist(), strict=True))
    word, names = ("UNDO before", UNDO_OPS) if undo else ("REDO", OPS)
    return [
        f"  {word} @{number[int(times[i])]}: " + names[int(ops[i])].format(values.get(i))
        for i in np.flatnonzero(rowids == row).tolist()
    ]
