"""One tablet's part of a bulk ingest: built beside the tablet, before it is installed (protocol G2).

``build`` writes the net changes of a range of keys, resolved against a view at a cut, to files in the
staging folder, with no lock but the flush lane, which keeps the set of rowsets still; an ``IngestPart``
collects the ranges of a tablet.  ``recheck.py`` says whether what it was decided on still stands, and
``install.py`` puts it into the tablet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE
from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.cfile.files.delta_format import REDO
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.run.ordering import distinct
from kudu_core.common.run.pool import Pool
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import ColumnTooLarge, MemoryLimit
from kudu_core.rowset.disk.entries import DeltaEntries, write_deltas
from kudu_core.rowset.disk.writing import OrderedRows, rowset_meta, write_rows
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.tablet.store.apply import values_only
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
            self.staged.append((staged_path(tablet, self.staging, name), name))
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
            path = staged_path(tablet, self.staging, name)
            directory, _, staged = path.rpartition("/")
            ref = write_deltas(context.fs, context.stored(), directory, staged, REDO, entries)
            deleted = [rows for op, rows, _ in pieces if op == REDO_DELETE] or [np.empty(0, np.uint32)]
            renamed = replace(ref, file=replace(ref.file, name=name))
            return StagedDelta(renamed, path, np.sort(entries.rowids), np.concatenate(deleted))

        written = map(write, outputs) if pool is None else pool.map(write, outputs)
        for output, done in zip(outputs, written, strict=True):
            self.deltas[output[0]] = done


def staged_path(tablet: Tablet, staging: str, name: str) -> str:
    """Where a file of an ingest is written, which will have a name in the tablet."""
    placed = tablet.context.placed
    if placed is None:
        return f"{staging}/{tablet.id}-{name}"
    path = f"{tablet.directory}/{name}"
    placed.setdefault(staging, []).append(path)
    return path


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
        path = staged_path(tablet, staging, name)
        built.staged = path, name
        written = write_rows(context.fs, schema, context.options, net.inserts, 0, net.inserts.rows, path)
        built.rowset = rowset_meta(tablet.new_rowset_id(), name, written, times=None, record_ts=0, durable=0)
    if net.adopted is not None:
        name, built.staged = tablet.taken_in(net.adopted.path, "rows")
        built.rowset = net.adopted.as_rowset(tablet.new_rowset_id(), name)
    changes = [(REDO_UPDATE, *u) for u in net.updates]
    if net.deletes is not None:
        changes.append((REDO_DELETE, *net.deletes))
    for op, block, batch, homes in changes:
        values = values_only(schema, block)
        indices = distinct(homes.store).tolist()
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


__all__ = [
    "Adoptable",
    "Built",
    "IngestPart",
    "NetChanges",
    "StagedDelta",
    "build",
    "staged_path",
]
