"""One output of a merging compaction: the rows of a range of keys, with one history each, into files.

Rows without a past are the usual ones; they go by column from the inputs' files into the output's.  What
the inputs tell of the others is in ``merge_past``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE, UNDO_ALIVE, UNDO_DEAD, UNDO_UPDATE
from kudu_core.cfile.files.delta_format import REDO, UNDO
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.errors import ColumnTooLarge
from kudu_core.rowset.disk.entries import DeltaEntries, replaced_values, write_deltas
from kudu_core.rowset.disk.writing import OrderedRows, rowset_meta, write_rows
from kudu_core.rowset.history.joining import NEVER
from kudu_core.rowset.history.merging import MergedRows, SourceRows, TooMuch
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.tablet.compact.merge_past import Past, SharedKeys, past_of
from kudu_core.tablet.compact.merge_task import MergeOutput, MergeTask

_DENSE_FACTOR = 8
"""Whole ranges of rows are read instead of single cells when at least one row in so many is wanted."""


@dataclass(slots=True, eq=False)
class _Places:
    """Where rows, numbered source after source, went: rows of the output, int64, -1 for none."""

    home: np.ndarray
    """Those that are the last copy of their key, and left."""
    target: np.ndarray
    """Of the key, whichever copy tells its end."""


def build(task: MergeTask, lower: np.ndarray, upper: np.ndarray) -> list[MergeOutput]:
    """Write the rows ``[lower, upper)`` of each source, (sources,) int64, to one output, or several.

    Several where the cells of one column are too large for one file.
    """
    task.check()
    merged = MergedRows(task.schema, task.sources, lower, upper)
    try:
        return [_build(task, merged, lower)]
    except (TooMuch, ColumnTooLarge):
        if len(merged) < 2:
            raise
        middle = merged.keys[len(merged) // 2]
    files = [source.at.file for source in task.sources]
    between = np.array([file.lower_bound(middle) for file in files], np.int64).clip(lower, upper)
    del merged
    if (between == lower).all():
        raise ColumnTooLarge("copies of one key that a merge would join")
    return [*build(task, lower, between), *build(task, between, upper)]


def _build(task: MergeTask, merged: MergedRows, lower: np.ndarray) -> MergeOutput:
    rows = len(merged)
    pasts = [
        past_of(task, part, start)
        for part, start in zip(merged.source_rows, merged.starts.tolist(), strict=False)
    ]
    deleted = (
        np.concatenate([past.deleted[0] for past in pasts]),
        np.concatenate([past.deleted[1] for past in pasts]),
    )
    old = deleted[1] <= np.uint64(task.horizon)
    copies = None if merged.repeated is None else SharedKeys.found(task, merged, pasts, deleted)
    places = _place(merged, deleted[0][old], copies)
    for part, start in zip(merged.source_rows, merged.starts.tolist(), strict=False):
        home = places.home[start : start + len(part)]
        # -1 becomes DROPPED.
        task.homes[part.number][part.lower : part.upper] = home.astype(np.uint32)
    if not len(merged):
        return MergeOutput(lower, rows, None)

    undo = _undo_entries(task, merged, pasts, places, copies)
    redo = _deletions(deleted[0][~old], deleted[1][~old], places, copies)
    times = merged.insert_times(task.horizon)
    if copies is not None:
        left = copies.joined.last >= 0
        times[places.home[copies.numbers[copies.joined.last[left]]]] = copies.joined.inserted[left]
        ancient = times <= np.uint64(task.horizon)
        times[ancient] = times[ancient].max(initial=0)

    images: dict[int, ColumnBuffers] = {}
    meta = _write_base(task, merged, times, copies, images)
    undo_refs = _write_entries(task, UNDO, [undo, _images(copies, places, images)])
    redo_refs = _write_entries(task, REDO, [redo])
    return MergeOutput(lower, rows, replace(meta, undo=undo_refs, redo=redo_refs))


# ---- where rows go ----


def _place(merged: MergedRows, gone: np.ndarray, copies: SharedKeys | None) -> _Places:
    """Say which rows are left and where they go; ``gone``: those whose end nobody can see any more."""
    rows = len(merged)
    places = merged.places()
    left = np.ones(rows, bool)
    left[places[gone]] = False
    if copies is not None:
        last = copies.joined.last
        left[copies.at] = False
        left[copies.at[last[last >= 0]]] = True
    kept = np.flatnonzero(left)
    if len(kept) < rows:
        rank = np.full(rows, -1, np.int64)
        rank[kept] = np.arange(len(kept))
        places = rank[places]
        merged.keep(kept)
    if copies is None:
        return _Places(places, places)
    target = places.copy()
    last = copies.joined.last[copies.key]
    target[copies.numbers] = np.where(last >= 0, places[copies.numbers[last]], -1)
    return _Places(places, target)


# ---- what is told of it ----


def _undo_entries(
    task: MergeTask, merged: MergedRows, pasts: list[Past], places: _Places, copies: SharedKeys | None
) -> DeltaEntries | None:
    """UNDO of the output, but for images of earlier lifetimes that deletions ended."""
    parts: list[DeltaEntries] = []
    for number, (part, start, past) in enumerate(
        zip(merged.source_rows, merged.starts.tolist(), pasts, strict=False)
    ):
        before = []
        if past.undo is not None:
            undo = past.undo
            if copies is not None and number in copies.told:
                undo = undo.take(np.delete(np.arange(len(undo)), copies.told[number]))
            before.append(undo)
        if past.changes is not None:
            taken_back = _taken_back(part, past.changes, task)
            if taken_back is not None:
                before.append(taken_back)
        for entries in before:
            rows = places.target[entries.rowids.astype(np.int64) + (start - part.lower)]
            if (rows < 0).any():
                entries, rows = entries.take(np.flatnonzero(rows >= 0)), rows[rows >= 0]
            parts.append(entries.at_rows(rows))
    if copies is not None:
        keys, times = copies.joined.begun
        rows = places.home[copies.numbers[copies.joined.last[keys]]]
        parts.append(DeltaEntries(rows.astype(np.uint32), times, np.full(len(rows), UNDO_DEAD, np.uint8), {}))
    parts = [part for part in parts if len(part)]
    return DeltaEntries.concat(parts) if parts else None


def _taken_back(part: SourceRows, changes: DeltaEntries, task: MergeTask) -> DeltaEntries | None:
    """UNDO for the updates above the horizon: what each of them replaced."""

    def before(column_id: int, rows: np.ndarray) -> ColumnBuffers:
        pages = part.source.at.file.columns.get(column_id)
        if pages is None:
            column = task.schema.by_id[column_id]
            return ColumnBuffers.constant(column.type, column.read_default, len(rows))
        if not len(rows):
            return pages.read(0, 0)
        lower, upper = int(rows[0]), int(rows[-1]) + 1
        if len(rows) * _DENSE_FACTOR >= upper - lower:
            return pages.read(lower, upper).take(rows - lower)
        return pages.cells(rows)

    columns: dict[int, tuple[np.ndarray, ColumnBuffers]] = {}
    for column_id in changes.columns:
        found = replaced_values(changes, column_id, partial(before, column_id), task.horizon)
        if len(found[0]):
            columns[column_id] = found
    assert changes.timestamps is not None
    told = np.flatnonzero((changes.ops == REDO_UPDATE) & (changes.timestamps > np.uint64(task.horizon)))
    if not len(told):
        return None
    ops = np.full(len(changes), UNDO_UPDATE, np.uint8)
    return DeltaEntries(changes.rowids, changes.timestamps, ops, columns).take(told)


def _deletions(
    numbers: np.ndarray, times: np.ndarray, places: _Places, copies: SharedKeys | None
) -> DeltaEntries | None:
    """REDO of the output: the deletions that are the last that happened to their rows."""
    rows = places.home[numbers]
    if copies is not None:
        alone = copies.of[numbers] < 0
        ended = np.flatnonzero((copies.joined.last >= 0) & (copies.joined.deleted != NEVER))
        last = places.home[copies.numbers[copies.joined.last[ended]]]
        rows = np.concatenate([rows[alone], last])
        times = np.concatenate([times[alone], copies.joined.deleted[ended]])
    if not len(rows):
        return None
    return DeltaEntries(rows.astype(np.uint32), times, np.full(len(rows), REDO_DELETE, np.uint8), {})


def _images(
    copies: SharedKeys | None, places: _Places, images: dict[int, ColumnBuffers]
) -> DeltaEntries | None:
    """UNDO that brings back earlier lifetimes, each with the image that its copy had in the end."""
    if copies is None or not len(copies.joined.ended[0]):
        return None
    ended, times = copies.joined.ended
    rows = places.target[copies.numbers[ended]].astype(np.uint32)
    every = np.arange(len(rows), dtype=np.uint32)
    ops = np.full(len(rows), UNDO_ALIVE, np.uint8)
    return DeltaEntries(rows, times, ops, {i: (every, values) for i, values in images.items()})


# ---- files ----


def _write_base(
    task: MergeTask,
    merged: MergedRows,
    times: np.ndarray,
    copies: SharedKeys | None,
    images: dict[int, ColumnBuffers],
) -> RowSetMeta:
    """The ``.rows`` file.  While each column is at hand, ``images`` get what ended lifetimes need of it."""
    place, schema = task.place, task.schema
    key_columns = merged.key_columns()
    ended = np.empty(0, np.int64)
    if copies is not None:
        ended = copies.numbers[copies.joined.ended[0]]

    def column(column_id: int, lower: int, upper: int) -> ColumnBuffers:
        task.check()
        assert (lower, upper) == (0, len(merged))
        if column_id in key_columns:
            return key_columns.pop(column_id)
        parts = merged.parts(schema.by_id[column_id])
        if len(ended):
            images[column_id] = merged.cells(parts, ended)
        return merged.arranged(parts)

    ordered = OrderedRows(merged.keys, merged.keys.hashes(), column, merged.keys.nbytes, times)
    name = place.new_file("rows")
    path = f"{place.directory}/{name}"
    task.written.append(path)
    written = write_rows(place.fs, schema, place.options, ordered, 0, len(merged), path)
    # D is put in when it is known.
    return rowset_meta(place.new_rowset_id(), name, written, times=times, record_ts=None, durable=0)


def _write_entries(task: MergeTask, kind: str, parts: list[DeltaEntries | None]) -> tuple[DeltaRef, ...]:
    some = [part for part in parts if part is not None]
    if not some:
        return ()
    entries = DeltaEntries.concat(some).united(kind)
    place = task.place
    name = place.new_file("delta")
    task.written.append(f"{place.directory}/{name}")
    return (write_deltas(place.fs, task.schema, place.directory, name, kind, entries),)


__all__ = ["build"]
