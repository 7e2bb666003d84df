"""One tablet's part of a bulk ingest: built beside the tablet, then installed (protocol G2 to G5).

``build`` writes the net changes of a range of keys, resolved against a view at a cut, to files in the
staging folder, with no lock but the flush lane, which keeps the set of rowsets still; an ``IngestPart``
collects the ranges of a tablet.  ``recheck.py`` says whether what it was decided on still stands.  ``link``
gives the files their names in the tablet, and ``install`` puts them into the view once the log record is
durable; replay installs from the record alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE
from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.cfile.files.delta_format import REDO
from kudu_core.common.format.members import BROKEN, key
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.run.pool import Pool
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import ColumnTooLarge, Corruption, MemoryLimit, NotSupported
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.disk.entries import DeltaEntries, write_deltas
from kudu_core.rowset.disk.writing import OrderedRows, rowset_meta, write_rows
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.tablet.flush.deltas import freeze_and_write
from kudu_core.tablet.store.apply import values_only
from kudu_core.tablet.store.manifest import Edit
from kudu_core.tablet.store.manifest_format import MAX_LINE_BYTES
from kudu_core.tablet.store.tablet import Tablet
from kudu_core.tablet.view.view import Homes, KeyBatch, View

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

_Piece: TypeAlias = tuple[int, np.ndarray, dict[int, ColumnBuffers]]
"""Operation, rowids, values by column id."""


@dataclass(slots=True)
class NetChanges:
    """What rows of a call come to in one tablet: one change per key, and where the keys live."""

    inserts: OrderedRows | None
    updates: list[tuple[RowBlock, KeyBatch, Homes]]
    """One for each set of columns; blocks have the key columns and those that are set."""
    deletes: tuple[RowBlock, KeyBatch, Homes] | None
    adopted: Adoptable | None = None
    """In place of ``inserts``: a file that holds just these rows and becomes a rowset as it is."""


class Adoptable(Protocol):
    """A staged file with rows of one tablet as a DiskRowSet has them."""

    @property
    def path(self) -> str: ...

    def as_rowset(self, rowset_id: int, name: str) -> RowSetMeta: ...


@dataclass(slots=True)
class Built:
    """What the net changes of a range of keys were written to, or wait for."""

    rowset: RowSetMeta | None = None
    """Without a time: its is the record's."""
    staged: tuple[str, str] | None = None
    """Its file: (path in staging, name in the tablet)."""
    changes: dict[int, list[_Piece]] = field(default_factory=dict)
    """Of rows in rowsets, by rowset."""
    by_key: list[tuple[int, RowBlock, KeyBatch]] = field(default_factory=list)
    """Changes of rows that live in a MemRowSet: operation, rows, keys."""


@dataclass(slots=True)
class StagedDelta:
    """A delta file of an ingest, not yet installed."""

    ref: DeltaRef
    path: str
    """In staging."""
    rowids: np.ndarray | None = None
    """(n,) uint32, ascending: the rows that it changes.  None: the file knows."""
    deleted: np.ndarray | None = None
    """(n,) uint32: those that it deletes.  None: the file knows."""

    def changes(self, fs: FileSystem, rowids: np.ndarray) -> bool:
        """Whether it changes one of these rows."""
        if self.rowids is None:
            ref = self.ref.file
            with DeltaFile(fs, self.path, size=ref.size, footer_crc=ref.footer_crc) as file:
                self.rowids = file.entries()[0]
        return bool(np.isin(rowids, self.rowids).any())


@dataclass(slots=True)
class IngestPart:
    """One tablet's files and changes, built and not yet installed."""

    tablet: Tablet
    view: View
    cut: int
    staging: str
    rowsets: list[RowSetMeta] = field(default_factory=list)
    """Without a time: theirs is the record's."""
    deltas: dict[int, StagedDelta] = field(default_factory=dict)
    """By rowset."""
    by_key: list[tuple[int, RowBlock, KeyBatch]] = field(default_factory=list)
    """Changes of rows that live in a MemRowSet: operation, rows, keys."""
    staged: list[tuple[str, str]] = field(default_factory=list)
    """(path in staging, name in the tablet)."""
    counts: np.ndarray = field(default_factory=lambda: np.zeros(4, np.int64))
    """Inserted, updated, deleted, ignored."""
    undecided: bool = False
    """Some row of the call came to nothing because of what was there at the cut: any change of
    liveness since then may change that."""
    seen: frozenset[int] | None = None
    """Ids of the rowsets of the view at the cut; None: the flush lane is held since then."""
    waiting: dict[int, list[_Piece]] = field(default_factory=dict)
    """Changes of rowsets that are not in a file yet."""
    waiting_bytes: int = 0

    @property
    def empty(self) -> bool:
        return not (self.rowsets or self.deltas or self.by_key)

    @property
    def output_bytes(self) -> int:
        deltas = sum(delta.ref.file.size for delta in self.deltas.values())
        return sum(r.size_bytes for r in self.rowsets) + deltas

    def to_json(self) -> dict[str, Any]:
        return {
            "rowsets": [r.to_json() for r in self.rowsets],
            "deltas": {str(i): delta.ref.to_json() for i, delta in self.deltas.items()},
        }

    def add(self, built: Built) -> None:
        """Take in a range of keys; ranges come in the order of their keys."""
        if built.rowset is not None:
            self.rowsets.append(built.rowset)
        if built.staged is not None:
            self.staged.append(built.staged)
        self.by_key += built.by_key
        for rowset_id, pieces in built.changes.items():
            self.waiting.setdefault(rowset_id, []).extend(pieces)
            self.waiting_bytes += sum(_bytes_of(piece) for piece in pieces)

    def passed(self, key: bytes) -> list[int]:
        """Rowsets with changes waiting for a file that no key from ``key`` on can change."""
        return [r.id for r in self.view.rowsets if r.id in self.waiting and r.meta.max_key < key]

    def write_deltas(self, rowset_ids: Iterable[int], pool: Pool | None = None) -> None:
        """Put the waiting changes of these rowsets into files, in the pool if there is one."""
        tablet, outputs = self.tablet, []
        for rowset_id in rowset_ids:
            pieces = self.waiting.pop(rowset_id)
            self.waiting_bytes -= sum(_bytes_of(piece) for piece in pieces)
            name = tablet.new_file("delta")
            self.staged.append((f"{self.staging}/{tablet.id}-{name}", name))
            outputs.append((rowset_id, pieces, name))

        def write(output: tuple[int, list[_Piece], str]) -> StagedDelta:
            rowset_id, pieces, name = output
            try:
                entries = _entries(pieces)
            except ColumnTooLarge as error:  # an ingest has one delta file for a rowset
                raise MemoryLimit(
                    f"the call changes too much of rowset {rowset_id} at once ({error.args[0]}); nothing of "
                    "it was applied: write it in smaller pieces"
                ) from error
            context = tablet.context
            staged = f"{tablet.id}-{name}"
            ref = write_deltas(context.fs, context.stored(), self.staging, staged, REDO, entries)
            deleted = [rows for op, rows, _ in pieces if op == REDO_DELETE] or [np.empty(0, np.uint32)]
            renamed = replace(ref, file=replace(ref.file, name=name))
            path = f"{self.staging}/{staged}"
            return StagedDelta(renamed, path, np.sort(entries.rowids), np.concatenate(deleted))

        written = map(write, outputs) if pool is None else pool.map(write, outputs)
        for output, done in zip(outputs, written, strict=True):
            self.deltas[output[0]] = done


def _bytes_of(piece: _Piece) -> int:
    return int(piece[1].nbytes) + sum(column.nbytes for column in piece[2].values())


def build(tablet: Tablet, schema: Schema, view: View, net: NetChanges, staging: str) -> Built:
    """Write the inserts to a file in ``staging``, address the changes.  Leaves the tablet as it was.

    Any number of threads may build ranges of one tablet.
    """
    built = Built()
    context = tablet.context
    if net.inserts is not None:
        name = tablet.new_file("rows")
        path = f"{staging}/{tablet.id}-{name}"
        built.staged = path, name
        written = write_rows(context.fs, schema, context.options, net.inserts, 0, net.inserts.rows, path)
        built.rowset = rowset_meta(tablet.new_rowset_id(), name, written, times=None, record_ts=0, durable=0)
    if net.adopted is not None:
        name = tablet.new_file("rows")
        built.staged = net.adopted.path, name
        built.rowset = net.adopted.as_rowset(tablet.new_rowset_id(), name)
    changes = [(REDO_UPDATE, *u) for u in net.updates]
    if net.deletes is not None:
        changes.append((REDO_DELETE, *net.deletes))
    for op, block, batch, homes in changes:
        values = values_only(schema, block)
        indices = np.unique(homes.store).tolist()
        for index in indices:
            whole = len(indices) == 1
            mine = None if whole else np.flatnonzero(homes.store == index)
            home = view.stores[index]
            if isinstance(home, MemRowSet):
                built.by_key.append(
                    (op, block, batch) if mine is None else (op, block.take(mine), batch.take(mine))
                )
                continue
            rowids = homes.row if mine is None else homes.row[mine]
            taken = values if mine is None else {i: c.take(mine) for i, c in values.items()}
            built.changes.setdefault(home.id, []).append((op, rowids.astype(np.uint32), taken))
    return built


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


def check_entries(part: IngestPart) -> None:
    """Under the mutex, before the record: the manifest will take what the part puts into it.

    ``NotSupported``: a rowset would have more delta files than an entry can name; nothing has changed.
    """
    columns = len(part.tablet.context.schema().columns)
    for rowset_id, delta in part.deltas.items():
        rowset = part.tablet.view.rowset(rowset_id)
        if rowset is None:
            continue  # the recheck has its word on that
        # The file of the ingest, and that of what memory holds of the rowset.
        meta = replace(rowset.meta, redo=(*rowset.meta.redo, delta.ref))
        if meta.most_bytes + 1000 + 40 * columns >= MAX_LINE_BYTES:
            raise NotSupported(
                f"tablet {part.tablet.id}, rowset {rowset_id}: {len(meta.redo) + len(meta.undo)} files of "
                "changes are more than a manifest takes; nothing was written: compact the table first"
            )


def link(part: IngestPart) -> None:
    """Give the staged files their names in the tablet, durably."""
    fs = part.tablet.context.fs
    for staged, name in part.staged:
        fs.link(staged, f"{part.tablet.directory}/{name}")
    part.tablet.sync_directory()


def flush_changed(part_deltas: Mapping[int, Any], tablet: Tablet, written: list[str]) -> dict[int, list[Any]]:
    """Under the mutex: close and write the DeltaMemStores of rowsets that get a delta file (protocol G3)."""
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
    deleted: Mapping[int, np.ndarray | None] | None = None,
) -> None:
    """Under the mutex, the record durable: rowsets and delta files into the view, one edit (protocol G5)."""
    context = tablet.context
    view = tablet.view
    metas: list[RowSetMeta] = []
    changed: list[DiskRowSet] = []
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
        changed.append(rowset.with_ingested(stamped, ts))
        metas.append(changed[-1].meta)
    new = [DiskRowSet.make(context.fs, tablet.directory, m, context.cache) for m in metas[: len(rowsets)]]
    view = view.with_changed(changed) if changed else view
    view = view.with_rowsets((*view.rowsets, *new)) if new else view
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


def part_of(
    extra: Mapping[str, Any], tablet: Tablet, ts: int, where: str
) -> tuple[list[RowSetMeta], dict[int, DeltaRef]]:
    """A tablet's part of the INGEST record of ``ts``; ``extra``: what that says beside its rows."""
    try:
        value = {"rowsets": [], "deltas": {}, **extra.get("parts", {}).get(str(tablet.id), {})}
    except BROKEN as exc:
        raise Corruption(where, 0, f"ingest record: {exc!r:.200}") from exc
    rowsets, deltas = parse_part(value, where, 0)
    for rowset_id in deltas:
        if tablet.view.rowset(rowset_id) is None and ts > tablet.state.ingests_durable:
            raise Corruption(where, 0, f"an ingest changes rowset {rowset_id}, which is not there")
    return rowsets, deltas


def named_files(value: Any) -> set[str]:
    """Names of the files of a part, for the sweep of orphans (protocol O7)."""
    names: set[str] = set()
    for rowset in value.get("rowsets", ()):
        names.add(FileRef.from_json(rowset["base"]).name)
    for ref in value.get("deltas", {}).values():
        names.add(FileRef.from_json(ref["file"]).name)
    return names


__all__ = [
    "Adoptable",
    "Built",
    "IngestPart",
    "NetChanges",
    "StagedDelta",
    "build",
    "check_entries",
    "flush_changed",
    "install",
    "link",
    "named_files",
    "parse_part",
    "part_of",
]
