"""Replay of log records into tablets (protocol O5).

``Replay`` lays one record after the other into tablets; ``replay_log`` is the loop around it, and asks what
is to become of a record that cannot be replayed: an open for writing refuses the table, one for reading
ends before the record, a repair leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kudu_core.cfile.pages.container import FileMissing
from kudu_core.common.format.members import BROKEN
from kudu_core.common.format.names import job_id
from kudu_core.common.idempotence.writers import AppliedWrite, Txn, stored_counts
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Closed, Corruption, Fenced, MemoryLimit, Poisoned
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.tablet.ingest import part
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import Laying, Moved, key_batch, values_only
from kudu_core.tablet.store.tablet import Tablet
from kudu_core.tablet.view.view import locate_newest
from kudu_core.wal import RECORD_KIND_INGEST, RECORD_KIND_WRITE, LogChanged, LogTail, Record

_PASSING = (OSError, FileMissing, LogChanged, Closed, Fenced, MemoryLimit, Poisoned)
"""Not a record's fault: files that have moved on, the machine, another writer."""


@dataclass(frozen=True, slots=True)
class Unreplayed:
    """A record of the log that cannot be replayed, though its checksum is good."""

    path: str
    """Of the segment."""
    offset: int
    """In bytes, of the record's header there."""
    lsn: int
    timestamp: int
    reason: str

    def __str__(self) -> str:
        return (
            f"log record {self.lsn}, of timestamp {self.timestamp}, at byte {self.offset} of {self.path} "
            f"cannot be replayed: {self.reason}"
        )

    @staticmethod
    def of(tail: LogTail, record: Record, error: BaseException) -> Unreplayed:
        """``record`` was read by ``tail`` and has met ``error``."""
        path, offset = tail.place_of(record.lsn)
        said = error.reason if isinstance(error, Corruption) else f"{type(error).__name__}: {error}"
        return Unreplayed(path, offset, record.lsn, record.ts, f"{said:.500}")

    def as_corruption(self) -> Corruption:
        """For a table that is to be written, which needs every record."""
        return Corruption(
            self.path,
            self.offset,
            f"log record {self.lsn}, of timestamp {self.timestamp}, cannot be replayed: {self.reason}. "
            'Nothing was deleted. Opening with mode "r" shows the table as it was before this record; '
            "kudu_core.repair can put the record aside",
        )


def replay_log(
    replay: Replay,
    tail: LogTail,
    skip: Callable[[Unreplayed, Record], bool],
    *,
    wanted: Callable[[Record], bool] = lambda record: True,
    done: Callable[[Record], None] = lambda record: None,
    relieve: Callable[[], bool] = lambda: False,
) -> Unreplayed | None:
    """Lay the records of the log after its last CHECKPOINT into tablets, one after the other.

    Parameters
    ----------
    skip
        Asked about each record that cannot be replayed, with the record.  True: it is left out, and those
        after it are replayed.  False: the replay ends before it, and the answer is that record.
    wanted
        False ends the replay before a record.
    done
        Called after each record that was replayed.
    relieve
        Called when there is no memory for a record: whether it was worth trying again.

    None of a WRITE that cannot be replayed is in the tablets: it has room and a place for all its rows before
    the first is laid.  Of an INGEST, tablets that it could be installed in have it.

    Raises
    ------
    OSError, Corruption of a data file, MemoryLimit
        Not the record's fault; opening again does the same from the beginning.
    """
    for record in tail.records():
        if record.ts <= tail.through:
            continue
        if not wanted(record):
            return None
        while True:
            try:
                replay.apply(record)
            except _PASSING:
                raise
            except MemoryError as error:
                if replay.began or not relieve():
                    raise MemoryLimit(
                        f"the system gave no memory for the replay of log record {record.lsn}; open the "
                        "table for writing with a lower memory_limit_bytes: what is replayed is flushed then"
                    ) from error
                continue
            except Exception as error:
                if isinstance(error, Corruption) and replay.is_of_data(error):
                    raise
                found = Unreplayed.of(tail, record, error)
                if not skip(found, record):
                    return found
            else:
                done(record)
            break
    return None


def _check_new(
    tablet: Tablet, rowsets: Sequence[RowSetMeta], deltas: Mapping[int, DeltaRef], where: str
) -> None:
    """What an ingest brings is not there yet, neither rowset nor file: to take another one's place is to drop
    that."""
    ids = [meta.id for meta in rowsets]
    names = [file.name for meta in rowsets for file in meta.files]
    names += [ref.file.name for ref in deltas.values()]
    if len(set(ids)) < len(ids) or any(tablet.view.rowset(rowset_id) is not None for rowset_id in ids):
        raise Corruption(where, 0, f"an ingest brings rowsets {ids}, of which one is there already")
    if len(set(names)) < len(names) or not tablet.state.files.isdisjoint(names):
        raise Corruption(where, 0, f"an ingest brings files {names}, of which one is there already")


class Replay:
    """Lays records into tablets, in the order of the log."""

    def __init__(
        self,
        tablets: Mapping[int, Tablet],
        schema: Schema,
        *,
        writer: bool,
        applied_writes: Mapping[str, AppliedWrite],
        tokens_through: int,
    ) -> None:
        """``applied_writes``: TABLE's; those of the records up to ``tokens_through`` are there, or were
        dropped."""
        self._tablets = tablets
        self._schema = schema
        self._writer = writer
        self.began = False
        """Something of the record that is being replayed is in the tablets."""
        self.applied_writes = dict(applied_writes)
        """By app_id: those that TABLE has, and then those of the records after ``tokens_through``."""
        self._tokens_through = tokens_through
        self.applied_jobs: dict[str, AppliedWrite] = {}
        """By id of the distributed writes among the records."""
        self.files: dict[int, set[str]] = {}
        """By tablet: files that records name and that may not be in a manifest yet."""
        self.records = 0
        self.position = 0
        """Timestamp of the last record that was replayed whole: the cut of every tablet."""

    def is_of_data(self, error: Corruption) -> bool:
        """Whether an error is of a file of rows or changes, which a record only asked for a key."""
        return any(error.path.startswith(f"{tablet.directory}/") for tablet in self._tablets.values())

    def apply(self, record: Record) -> None:
        """Replay one WRITE or INGEST.  Whatever it raises, none of a WRITE is in the tablets."""
        self.began = False
        if record.kind not in (RECORD_KIND_WRITE, RECORD_KIND_INGEST):
            self.position = record.ts
            return
        where = f"log record {record.lsn}"
        payload = records.decode(memoryview(record.payload), where, 0)
        tokens, jobs = self._token(payload.extra, record, where)
        self._check(payload, where)
        if record.kind == RECORD_KIND_INGEST:
            self._ingest(payload, record, where)
        else:
            # All of it has room before any of it is laid: a record that cannot be replayed leaves nothing.
            parts = records.split(payload.sections, len(payload.tablets))
            layings = [
                self._reserved(tablet, record.ts, sections)
                for tablet_id, sections in zip(payload.tablets, parts, strict=True)
                if (tablet := self._tablets.get(tablet_id)) is not None
            ]
            self.began = True
            for laying in layings:
                laying.lay(record.ts)
        self.applied_writes |= tokens
        self.applied_jobs |= jobs
        self.records += 1
        self.position = record.ts

    def _token(
        self, extra: Mapping[str, Any], record: Record, where: str
    ) -> tuple[dict[str, AppliedWrite], dict[str, AppliedWrite]]:
        """What a record adds to ``applied_writes`` and ``applied_jobs``."""
        given, job = extra.get("txn"), extra.get("job")
        tokens: dict[str, AppliedWrite] = {}
        jobs: dict[str, AppliedWrite] = {}
        if given is None and job is None:
            return tokens, jobs
        try:
            counts = stored_counts(extra["counts"])
            if given is not None:
                txn = Txn.from_json(given)
                if record.ts > self._tokens_through:
                    tokens[txn.app_id] = txn.applied(self.applied_writes.get(txn.app_id), record.ts, counts)
            if job is not None:
                jobs[job_id(job)] = AppliedWrite(0, record.ts, counts)
        except BROKEN as exc:
            raise Corruption(where, 0, f"token: {exc!r:.200}") from exc
        return tokens, jobs

    def _check(self, payload: records.Payload, where: str) -> None:
        """Columns must be of the schema's types, and keys whole: kernels trust their widths."""
        by_id, keys = self._schema.by_id, self._schema.key_ids
        for section in payload.sections:
            columns = section.block.columns
            for column_id in keys:
                if column_id not in columns or columns[column_id].null_count:
                    raise Corruption(where, 0, f"rows without key column {column_id}")
            for column_id, column in columns.items():
                known = by_id.get(column_id)
                if known is not None and column.width != known.type.width:
                    raise Corruption(
                        where, 0, f"cells of {column.width} bytes in column {column_id}, {known.type}"
                    )

    def _reserved(self, tablet: Tablet, ts: int, sections: Sequence[tuple[int, RowBlock]]) -> Laying:
        """The net changes of a record in one tablet, with room made for them: a store that is full, also by
        the bounds of another build, is closed and another one takes what comes (protocol O5)."""
        while True:
            laying = Laying(tablet)
            try:
                for op, block in sections:
                    self._rows(laying, tablet, ts, op, block)
                laying.reserve()
            except Moved:
                continue
            return laying

    def _rows(self, laying: Laying, tablet: Tablet, ts: int, op: int, block: RowBlock) -> None:
        """Net changes of one operation in one tablet."""
        batch = key_batch(self._schema, block)
        if op == records.RECORD_INSERT:
            if ts <= tablet.state.inserts_durable:
                return
            homes = locate_newest(tablet.view, batch, durable_below=ts)
            in_memory = homes.store >= 0
            if in_memory.any() and any(
                isinstance(tablet.view.stores[i], MemRowSet)
                for i in np.unique(homes.store[in_memory]).tolist()
            ):
                raise Corruption(tablet.directory, 0, f"the record of {ts} inserts a key that is there")
            laying.insert(block, batch, homes.ghost)
            return
        homes = locate_newest(tablet.view, batch, durable_below=ts)
        found = np.flatnonzero(homes.live)
        if len(found) < block.rows:
            # Durable already, unless the record is newer than anything that files can hold (protocol N16).
            if ts > tablet.state.mark:
                raise Corruption(
                    tablet.directory,
                    0,
                    f"the record of {ts} changes a key that is nowhere (mark {tablet.state.mark})",
                )
            if not len(found):
                return
            block = block.take(found)
        known = {c.id for c in self._schema.columns}
        values = {i: c for i, c in values_only(self._schema, block).items() if i in known}
        laying.change(op, homes.store[found], homes.row[found], values)

    def _ingest(self, payload: records.Payload, record: Record, where: str) -> None:
        parts = records.split(payload.sections, len(payload.tablets))
        for tablet_id, sections in zip(payload.tablets, parts, strict=True):
            tablet = self._tablets.get(tablet_id)
            if tablet is None:
                continue
            rowsets, deltas = part.part_of(payload.extra, tablet, record.ts, where)
            names = {file.name for meta in rowsets for file in meta.files}
            self.files.setdefault(tablet_id, set()).update(names, (ref.file.name for ref in deltas.values()))
            if record.ts > tablet.state.ingests_durable:
                if not self._writer:
                    raise Corruption(
                        tablet.directory, 0, f"a reader met the ingest of {record.ts} before its manifest did"
                    )
                _check_new(tablet, rowsets, deltas, where)
                self.began = True
                written: list[str] = []
                flushed = part.flush_changed(deltas, tablet, written)
                part.install(tablet, record.ts, rowsets, deltas, flushed)
            laying = self._reserved(tablet, record.ts, sections)
            self.began = True
            laying.lay(record.ts)
