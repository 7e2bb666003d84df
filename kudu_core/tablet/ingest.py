"""One tablet's part of a bulk ingest: built beside the tablet, then installed (PROTOCOL G).

``build`` resolves net changes against a view at a cut and writes files into the staging folder,
with no lock but the flush lane, which keeps the set of rowsets still.  ``conflicts`` says under the
mutex whether a write since the cut touched one of the keys.  ``link`` gives the files their names
in the tablet, and ``install`` puts them into the view once the log record is durable; replay
installs from the record alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from kudu_core._ext import keys as keys_kernel
from kudu_core.cfile.delta_file import REDO
from kudu_core.common.keys import EncodedKeys
from kudu_core.common.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.stored import BROKEN, key
from kudu_core.errors import Corruption
from kudu_core.rowset.changelog import ChangeLog
from kudu_core.rowset.deltas import DELETE, UPDATE
from kudu_core.rowset.diskrowset import DiskRowSet
from kudu_core.rowset.memrowset import MemRowSet
from kudu_core.rowset.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.rowset.writing import OrderedRows, cuts, rowset_meta, write_rows
from kudu_core.tablet.apply import values_only
from kudu_core.tablet.deltas import DeltaEntries, freeze_and_write, write_deltas
from kudu_core.tablet.manifest import Edit
from kudu_core.tablet.tablet import Tablet
from kudu_core.tablet.view import Homes, KeyBatch, View

_Piece: TypeAlias = tuple[int, np.ndarray, dict[int, ColumnBuffers]]
"""Operation, rowids, values by column id."""


@dataclass(slots=True)
class NetChanges:
    """What a call comes to in one tablet: one change per key, and where the keys live."""

    inserts: RowBlock
    insert_keys: KeyBatch
    updates: list[tuple[RowBlock, KeyBatch, Homes]]
    """One for each set of columns; blocks have the key columns and those that are set."""
    deletes: tuple[RowBlock, KeyBatch, Homes] | None


@dataclass(slots=True)
class Part:
    """One tablet's files and changes, built and not yet installed."""

    tablet: Tablet
    view: View
    cut: int
    rowsets: list[RowSetMeta] = field(default_factory=list)
    """Without a time: theirs is the record's."""
    deltas: dict[int, tuple[DeltaRef, np.ndarray, np.ndarray]] = field(default_factory=dict)
    """By rowset: the file, the rowids it changes (sorted uint32), those it deletes."""
    by_key: list[tuple[int, RowBlock, KeyBatch]] = field(default_factory=list)
    """Changes of rows that live in a MemRowSet: operation, rows, keys."""
    insert_keys: KeyBatch | None = None
    staged: list[tuple[str, str]] = field(default_factory=list)
    """(path in staging, name in the tablet)."""
    undecided: bool = False
    """Some row of the call came to nothing because of what was there at the cut: any change of
    liveness since then may change that."""

    @property
    def output_bytes(self) -> int:
        deltas = sum(ref.file.size for ref, _, _ in self.deltas.values())
        return sum(r.size_bytes for r in self.rowsets) + deltas

    def to_json(self) -> dict[str, Any]:
        return {
            "rowsets": [r.to_json() for r in self.rowsets],
            "deltas": {str(i): ref.to_json() for i, (ref, _, _) in self.deltas.items()},
        }


def build(tablet: Tablet, view: View, cut: int, net: NetChanges, staging: str) -> Part:
    """Write one tablet's files into ``staging``.  Leaves the tablet as it was."""
    part = Part(tablet, view, cut)
    if net.inserts.rows:
        _build_rowsets(part, net, staging)
    gathered: dict[int, list[_Piece]] = {}
    changes = [(UPDATE, *u) for u in net.updates]
    if net.deletes is not None:
        changes.append((DELETE, *net.deletes))
    schema = tablet.context.schema()
    for op, block, batch, homes in changes:
        for index in np.unique(homes.store).tolist():
            mine = np.flatnonzero(homes.store == index)
            home = view.stores[index]
            if isinstance(home, MemRowSet):
                part.by_key.append((op, block.take(mine), batch.take(mine)))
            else:
                values = {i: c.take(mine) for i, c in values_only(schema, block).items()}
                gathered.setdefault(home.id, []).append((op, homes.row[mine].astype(np.uint32), values))
    outputs = []
    for rowset_id, pieces in gathered.items():
        name = tablet.new_file("delta")
        staged = f"{tablet.id}-{name}"
        part.staged.append((f"{staging}/{staged}", name))
        outputs.append((rowset_id, pieces, name, staged))

    def write(output: tuple[int, list[_Piece], str, str]) -> tuple[DeltaRef, np.ndarray, np.ndarray]:
        _, pieces, name, staged = output
        entries = _entries(pieces)
        ref = write_deltas(tablet.context.fs, schema, staging, staged, REDO, entries)
        deleted = np.concatenate([rows for op, rows, _ in pieces if op == DELETE] or [np.empty(0, np.uint32)])
        return replace(ref, file=replace(ref.file, name=name)), np.sort(entries.rowids), deleted

    written = tablet.context.pool.map(write, outputs)
    part.deltas = {output[0]: done for output, done in zip(outputs, written, strict=True)}
    return part


def _build_rowsets(part: Part, net: NetChanges, staging: str) -> None:
    tablet = part.tablet
    context = tablet.context
    schema = context.schema()
    batch = net.insert_keys
    ordered = OrderedRows(net.inserts.columns, batch.keys, batch.hashes, None, batch.order)
    outputs = []
    for lower, upper in cuts(ordered, context.options.rowset_target_bytes):
        name = tablet.new_file("rows")
        path = f"{staging}/{tablet.id}-{name}"
        part.staged.append((path, name))
        outputs.append((lower, upper, name, path))

    def write(output: tuple[int, int, str, str]) -> RowSetMeta:
        lower, upper, name, path = output
        written = write_rows(context.fs, schema, context.options, ordered, lower, upper, path)
        return rowset_meta(tablet.new_rowset_id(), name, written, times=None, record_ts=0, durable=0)

    part.rowsets += context.pool.map(write, outputs)
    part.insert_keys = batch


def _entries(pieces: list[_Piece]) -> DeltaEntries:
    """Changes of one rowset, gathered from several column sets."""
    columns: dict[int, list[tuple[np.ndarray, ColumnBuffers]]] = {}
    first = 0
    for _, rowids, values in pieces:
        at = np.arange(first, first + len(rowids), dtype=np.uint32)
        for column_id, column in values.items():
            columns.setdefault(column_id, []).append((at, column))
        first += len(rowids)
    return DeltaEntries(
        np.concatenate([rowids for _, rowids, _ in pieces]),
        None,
        np.concatenate([np.full(len(rowids), op, np.uint8) for op, rowids, _ in pieces]),
        {
            i: (np.concatenate([at for at, _ in parts]), ColumnBuffers.concat([c for _, c in parts]))
            for i, parts in columns.items()
        },
    )


def conflicts(part: Part) -> bool:
    """Under the mutex: whether a record after the cut changed one of the part's keys (G3)."""
    view = part.tablet.view
    for memory in (view.active, *view.frozen):
        first, last = memory.rows_at(part.cut), len(memory)
        if first < last:
            if part.undecided:
                return True
            keys = memory.keys(last)
            if _any_known(part, KeyBatch(keys.slice(first, last), memory.inserted_hashes(first, last))):
                return True
        changes = memory.changes
        lower, upper = changes.limit(part.cut), len(changes)
        if lower < upper:
            if part.undecided and (changes.changes(lower, upper)[2] >= DELETE).any():
                return True
            ordinals = np.unique(changes.changes(lower, upper)[1]).astype(np.int64)
            if _any_known(part, KeyBatch(memory.keys(last).take(ordinals))):
                return True
    for rowset in view.rowsets:
        mine = part.deltas.get(rowset.id)
        stores: list[ChangeLog] = list(rowset.memory_stores)
        for store in stores:
            lower, upper = store.limit(part.cut), len(store)
            if lower == upper:
                continue
            _, rowids, ops = store.changes(lower, upper)
            if mine is not None and np.isin(rowids, mine[1]).any():
                return True
            if part.undecided and (ops >= DELETE).any():
                return True
    return False


def _any_known(part: Part, batch: KeyBatch) -> bool:
    """Whether one of the keys is among those that the part inserts or changes by key."""
    keys, _ = batch.in_order
    mine = [b for b in (part.insert_keys, *(b for _, _, b in part.by_key)) if b is not None]
    for known in mine:
        ordered, _ = known.in_order
        lower = keys_kernel.lower_bound(ordered.data, ordered.offsets, keys.data, keys.offsets)
        upper = keys_kernel.lower_bound(ordered.data, ordered.offsets, keys.data, keys.offsets, upper=True)
        if (lower < upper).any():
            return True
    return False


def link(part: Part) -> None:
    """Give the staged files their names in the tablet, durably."""
    fs = part.tablet.context.fs
    for staged, name in part.staged:
        fs.link(staged, f"{part.tablet.directory}/{name}")
    part.tablet.sync_directory()


def flush_changed(part_deltas: Mapping[int, Any], tablet: Tablet, written: list[str]) -> dict[int, list[Any]]:
    """Under the mutex: close and write the DeltaMemStores of rowsets that get a delta file (G3)."""
    flushed: dict[int, list[Any]] = {}
    for rowset_id in part_deltas:
        rowset = tablet.view.rowset(rowset_id)
        assert rowset is not None
        flushed[rowset_id] = freeze_and_write(tablet, rowset, written)
    if written:
        tablet.sync_directory()
    return flushed


def install(
    tablet: Tablet,
    ts: int,
    rowsets: list[RowSetMeta],
    deltas: Mapping[int, DeltaRef],
    flushed: Mapping[int, list[tuple[ChangeLog, DeltaRef | None]]],
    deleted: Mapping[int, np.ndarray] | None = None,
) -> None:
    """Under the mutex, the record durable: new rowsets and delta files into the view, one edit (G5)."""
    context = tablet.context
    view = tablet.view
    metas: list[RowSetMeta] = []
    for meta in rowsets:
        metas.append(replace(meta, insert_ts=ts, max_insert_ts=ts, durable=ts))
        tablet.claim_rowset_id(meta.id)
    for rowset_id, ref in deltas.items():
        rowset = view.rowset(rowset_id)
        if rowset is None:
            raise Corruption(tablet.directory, 0, f"an ingest changes rowset {rowset_id}, which is not there")
        for log, written in flushed[rowset_id]:
            rowset = rowset.with_flushed(log, written, log.frozen_at or 0)
        stamped = replace(ref, min_ts=ts, max_ts=ts, record_ts=ts)
        if stamped.liveness:
            _note_deleted(rowset, stamped, None if deleted is None else deleted.get(rowset_id))
        rowset = rowset.with_ingested(stamped, ts)
        view = view.with_rowset(rowset)
        metas.append(rowset.meta)
    new = [DiskRowSet.make(context.fs, tablet.directory, m, context.cache) for m in metas[: len(rowsets)]]
    view = view.with_rowsets((*view.rowsets, *new))
    tablet.install(view, Edit(add=tuple(metas), ingests_durable=ts))


def _note_deleted(rowset: DiskRowSet, ref: DeltaRef, deleted: np.ndarray | None) -> None:
    """The rows that the file deletes are dead in the newest state from now on."""
    if deleted is None:  # replay: the file itself says which
        with_file = rowset.with_ingested(ref, rowset.meta.durable)
        view = with_file.redo[-1].at_newest()  # type: ignore[union-attr]
        changed = view.liveness(0, rowset.meta.rows)
        deleted = np.empty(0, np.uint32) if changed is None else changed[0][changed[1] == 0]
    rowset.note_ingested(deleted)


def parse_part(value: Any, path: str, offset: int) -> tuple[list[RowSetMeta], dict[int, DeltaRef]]:
    """A part as an INGEST record tells it."""
    try:
        rowsets = [RowSetMeta.from_json(r) for r in value["rowsets"]]
        deltas = {key(i): DeltaRef.from_json(d) for i, d in value["deltas"].items()}
    except BROKEN as exc:
        raise Corruption(path, offset, f"ingest record: {exc!r:.200}") from exc
    return rowsets, deltas


def named_files(value: Any) -> set[str]:
    """Names of the files of a part, for the sweep of orphans (PROTOCOL O7)."""
    names: set[str] = set()
    for rowset in value.get("rowsets", ()):
        names.add(FileRef.from_json(rowset["base"]).name)
    for ref in value.get("deltas", {}).values():
        names.add(FileRef.from_json(ref["file"]).name)
    return names


__all__ = [
    "EncodedKeys",
    "NetChanges",
    "Part",
    "build",
    "conflicts",
    "flush_changed",
    "install",
    "link",
    "named_files",
    "parse_part",
]
