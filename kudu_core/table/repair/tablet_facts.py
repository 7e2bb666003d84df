"""One tablet as far as it can be read: its rowsets and what the log says, a range of keys at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema
from kudu_core.rowset.disk.salvage import UNREADABLE, PieceFacts, RowImages, SalvagedRowSet, rows_at_once
from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.table.repair.facts import ABSENT, CHANGE, IMAGE, Facts, MissingFacts, Verdicts, judge
from kudu_core.table.repair.files import Files
from kudu_core.table.repair.log_changes import TabletChanges
from kudu_core.tablet.store.salvage import SalvagedManifest

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

RANGE_PIECES = 8
"""Pieces of all rowsets, about, whose rows are looked at together."""
RANGE_ROWS = 1 << 14
"""Rows of records for which a range is cut as for a piece."""

Hole = tuple[bytes | None, bytes | None]


@dataclass(slots=True, eq=False)
class _Store:
    """A rowset and where the rows of its pieces lie among all keys."""

    rowset: SalvagedRowSet
    time: int
    """The files hold every change up to it."""
    proven: bool
    """Whether it is known that the tablet has this rowset."""
    lower: list[bytes]
    """By piece: no key of it is smaller."""
    upper: list[bytes | None]
    """By piece: no key of it is larger, None: nobody knows."""
    _recent: tuple[int, PieceFacts | None] | None = None

    @staticmethod
    def of(rowset: SalvagedRowSet, time: int, *, proven: bool) -> _Store:
        first = rowset.first_keys()
        lower: list[bytes] = []
        for key in first:
            lower.append(key if key is not None else lower[-1] if lower else b"")
        upper: list[bytes | None] = [None] * len(first)
        following: bytes | None = rowset.meta.max_key
        for piece in range(len(first) - 1, -1, -1):
            upper[piece] = following
            if first[piece] is not None:
                following = first[piece]
        return _Store(rowset, max(time, 1), proven, lower, upper)

    def pieces(self, lower: bytes | None, upper: bytes | None) -> range:
        """Those that may hold keys in ``[lower, upper)``."""
        first = 0 if lower is None else max(0, bisect_right(self.lower, lower) - 1)
        while first and self.lower[first] == self.lower[first - 1]:
            first -= 1
        end = len(self.lower) if upper is None else bisect_left(self.lower, upper)
        while first < end and self._is_before(first, lower):
            first += 1
        return range(first, end)

    def _is_before(self, piece: int, key: bytes | None) -> bool:
        """Whether all keys of a piece are known to be smaller."""
        last = self.upper[piece]
        return key is not None and last is not None and last < key

    def facts(self, piece: int) -> PieceFacts | None:
        if self._recent is None or self._recent[0] != piece:
            self._recent = piece, self.rowset.facts(piece)
        return self._recent[1]

    def pass_by(self, key: bytes | None) -> None:
        """Nobody asks for smaller keys any more: what was read for them alone is let go."""
        if self._recent is not None and (key is None or self._is_before(self._recent[0], key)):
            self._recent = None

    def hole(self, piece: int) -> Hole:
        return self.lower[piece], self.upper[piece]


@dataclass(slots=True, eq=False)
class TabletFacts:
    """Everything that can be read of one tablet.  ``close`` it."""

    schema: Schema
    manifest: SalvagedManifest
    changes: TabletChanges
    missing: MissingFacts
    through: int
    """Files hold every change up to it."""
    begins_after: int
    """The log has every record after it, but for its gaps."""
    files: Files
    directory: str
    stores: list[_Store] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    _spares: list[_Store] | None = None
    """Rowsets that may be of any time: opened when something is missing."""

    @staticmethod
    def open(
        files: Files,
        directory: str,
        schema: Schema,
        manifest: SalvagedManifest,
        changes: TabletChanges,
        missing: MissingFacts,
        through: int,
        begins_after: int,
    ) -> TabletFacts:
        found = TabletFacts(schema, manifest, changes, missing, through, begins_after, files, directory)
        try:
            for meta, pending in found._rowsets():
                found._add(meta, pending)
        except BaseException:
            found.close()
            raise
        if manifest.missing:
            found.holes = [(None, None)]
        return found

    @property
    def is_complete(self) -> bool:
        """Whether it is known which rowsets there are."""
        return not self.manifest.missing

    def _rowsets(self) -> Iterator[tuple[RowSetMeta, tuple[DeltaRef, ...]]]:
        """Those of the manifest and of ingests that it does not hold yet, with their pending delta files."""
        state = self.manifest.state
        metas = dict(state.rowsets)
        pending: dict[int, list[DeltaRef]] = {}
        for one in self.changes.ingests:
            if one.ts <= state.ingests_durable and self.is_complete:
                continue
            for meta in one.rowsets:
                if meta.id not in metas and meta.id not in self.manifest.former:
                    metas[meta.id] = replace(meta, insert_ts=one.ts, max_insert_ts=one.ts, durable=one.ts)
            for rowset_id, ref in one.deltas.items():
                if one.ts > state.ingests_durable:
                    stamped = replace(ref, min_ts=one.ts, max_ts=one.ts, record_ts=one.ts)
                    pending.setdefault(rowset_id, []).append(stamped)
        for rowset_id, meta in metas.items():
            yield meta, tuple(pending.get(rowset_id, ()))

    def _add(self, meta: RowSetMeta, pending: tuple[DeltaRef, ...]) -> None:
        rowset = self._opened(meta, pending)
        time = max(meta.durable, self.through) if self.is_complete else meta.durable
        self.stores.append(_Store.of(rowset, time, proven=self.is_complete))
        if rowset.base is None:
            self.holes.append((meta.min_key, meta.max_key))

    def _opened(self, meta: RowSetMeta, pending: tuple[DeltaRef, ...] = ()) -> SalvagedRowSet:
        def place(ref: FileRef) -> str | None:
            return self.files.place(self.directory, ref)

        rowset = SalvagedRowSet.open(self.files.fs, self.schema, meta, place, pending)
        self.files.used.update(rowset.used)
        return rowset

    def close(self) -> None:
        for store in (*self.stores, *(self._spares or ())):
            store.rowset.close()

    # ---- ranges of keys ----

    def verdicts(self) -> Iterator[Verdicts]:
        """What becomes of all keys, in their order, some at a time."""
        if self.holes:
            self.spares()
        edges = self._edges()
        for lower, upper in zip((None, *edges), (*edges, None), strict=True):
            yield self._judged(lower, upper)
            for store in (*self.stores, *(self._spares or ())):
                store.pass_by(upper)

    def _edges(self) -> list[bytes]:
        """Keys at which the ranges are cut."""
        marks = [key for store in (*self.stores, *(self._spares or ())) for key in store.lower]
        for part in self.changes.facts:
            present = part.columns if part.kind == IMAGE else self.schema.by_id
            step = rows_at_once(self.schema, present, RANGE_ROWS)
            marks += [part.keys[row] for row in range(0, len(part), step)]
        marks.sort()
        return sorted(set(marks[RANGE_PIECES::RANGE_PIECES]))

    def _judged(self, lower: bytes | None, upper: bytes | None) -> Verdicts:
        parts: list[Facts] = []
        holes = list(self.holes)
        for store in self.stores:
            parts += self._of_store(store, lower, upper, holes)
        asked = _overlapping(holes, lower, upper)
        if asked:
            for store in self.spares():
                parts += self._of_store(store, lower, upper, [])
        for part in self.changes.facts:
            some = part.between(lower, upper)
            parts += self._inserts(some, asked) if part.kind == IMAGE else (some,)
        return judge(self.schema, parts, replace(self.missing, holes=tuple(asked)))

    def _inserts(self, facts: Facts, holes: list[Hole]) -> Iterator[Facts]:
        """Inserts of records: those that are in no file; where files are missing, the others too."""
        if not self.is_complete:
            yield replace(facts, stale=True, closed=self.changes.changes_files)
            return
        new = facts.times > np.uint64(self.manifest.state.inserts_durable)
        if new.all():
            yield facts
            return
        yield facts.take(np.flatnonzero(new))
        if holes:
            old = facts.take(np.flatnonzero(~new))
            yield replace(old, stale=True, closed=self.changes.changes_files)

    def _of_store(
        self, store: _Store, lower: bytes | None, upper: bytes | None, holes: list[Hole]
    ) -> Iterator[Facts]:
        for piece in store.pieces(lower, upper):
            found = store.facts(piece)
            if found is None:
                holes.append(store.hole(piece))
                continue
            newest, whole = found.newest, found.newest.whole
            if found.before is not None and self._tells_all_since(found.before_ts):
                # What is lost of the files the log still has.
                newest = newest.take(np.flatnonzero(whole))
                parts = list(_of_images(found.before, found.before_ts))
            elif found.before is not None:
                parts = list(_of_images(found.before, found.before_ts, stale=True, closed=True))
            else:
                parts = []
            if not whole.all():
                rows = np.flatnonzero(~whole)
                holes.append((found.newest.keys[int(rows[0])], found.newest.keys[int(rows[-1])]))
            closed = not store.proven and (self.changes.changes_files or not self.is_complete)
            stale = not store.proven
            parts += _of_images(newest, store.time, newest=True, stale=stale, closed=closed)
            for ts, changes in found.later:
                times = np.full(len(changes.keys), ts, np.uint64)
                parts += _of_changes(changes.op, changes.keys, times, changes.columns)
            for part in parts:
                yield part.sorted().between(lower, upper)

    def _tells_all_since(self, ts: int) -> bool:
        """Whether the log has every change after a time, but for what its gaps hide."""
        return self.is_complete and self.begins_after <= ts and not self.changes.changes_files

    def spares(self) -> list[_Store]:
        """Rowsets of which nobody knows that the tablet has them now: it had them once."""
        if self._spares is not None:
            return self._spares
        self._spares = []
        known = {store.rowset.meta.base for store in self.stores}
        metas = [meta for meta in self.manifest.former.values() if meta.base not in known]
        known.update(meta.base for meta in metas)
        for one in self.changes.ingests:
            for meta in one.rowsets:
                if meta.base not in known:
                    known.add(meta.base)
                    metas.append(replace(meta, insert_ts=one.ts, max_insert_ts=one.ts, durable=one.ts))
        contents = {(ref.size, ref.footer_crc) for ref in known}
        for path in self.files.of_tablet(self.directory):
            meta_ = _meta_of(self.files.fs, path, contents) if path.endswith(".rows") else None
            if meta_ is not None:
                metas.append(meta_)
        for meta in metas:
            rowset = self._opened(meta)
            if rowset.base is not None:
                self._spares.append(_Store.of(rowset, meta.durable, proven=False))
            else:
                rowset.close()
        return self._spares


def _meta_of(fs: FileSystem, path: str, known: set[tuple[int, int]]) -> RowSetMeta | None:
    """A file of rows that nothing names, as a rowset; None: it is none, or known."""
    try:
        with RowsFile(fs, path, None) as file:
            meta = file.meta
    except UNREADABLE:
        return None
    if not file.key_ids or not meta.rows or (meta.size, meta.footer_crc) in known:
        return None
    newest = meta.max_insert or 1
    name = path.rsplit("/", 1)[1]
    return RowSetMeta(
        id=0,
        base=FileRef.of(name, meta),
        rows=meta.rows,
        min_key=meta.min_key,
        max_key=meta.max_key,
        insert_ts=None,
        max_insert_ts=newest,
        durable=newest,
    )


def _of_images(
    images: RowImages, time: int, *, newest: bool = False, stale: bool = False, closed: bool = False
) -> Iterator[Facts]:
    if not len(images):
        return
    dead = images.died > 0
    if dead.any():
        rows = np.flatnonzero(dead)
        yield Facts(ABSENT, images.keys.take(rows), images.died[rows])
        if dead.all():
            return
        images = images.take(np.flatnonzero(~dead))
    times = np.full(len(images), max(time, 1), np.uint64)
    doubts = images.doubtful
    yield Facts(IMAGE, images.keys, times, images.columns, images.known, doubts, stale, closed, newest)


def _of_changes(
    op: int, keys: EncodedKeys, times: np.ndarray, columns: dict[int, tuple[np.ndarray, ColumnBuffers]]
) -> Iterator[Facts]:
    if op == REDO_DELETE:
        yield Facts(ABSENT, keys, times)
        return
    spread, known = {}, {}
    for column_id, (at, values) in columns.items():
        mask = np.zeros(len(keys), bool)
        mask[at] = True
        place = np.zeros(len(keys), np.int64)
        place[at] = np.arange(len(at))
        spread[column_id], known[column_id] = values.take(place), mask
    yield Facts(CHANGE, keys, times, spread, known)


def _overlapping(holes: list[Hole], lower: bytes | None, upper: bytes | None) -> list[Hole]:
    return [
        (low, high)
        for low, high in holes
        if (upper is None or low is None or low < upper) and (lower is None or high is None or high >= lower)
    ]


__all__ = ["RANGE_PIECES", "TabletFacts"]
