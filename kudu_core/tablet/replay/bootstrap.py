"""Replay of log records into tablets (protocol O5).

``Replay`` lays one record after the other into tablets, or several as one (``groups``); ``replay_log`` is the
loop around it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kudu_core.common.format.members import BROKEN
from kudu_core.common.format.names import job_files, job_id, root_of
from kudu_core.common.idempotence.writers import GIVEN_UP, AppliedWrite, Txn, stored_counts
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.run.ordering import distinct
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Closed, Corruption, Fenced, KuduError, MemoryLimit, Poisoned, StoreError
from kudu_core.fs.missing import FileMissing
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.tablet.ingest import install
from kudu_core.tablet.replay.groups import GroupRecord, gathered, group_layings, same_kinds
from kudu_core.tablet.replay.recast_records import decoded
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import Laying, Moved, key_batch, values_only
from kudu_core.tablet.store.tablet import Tablet
from kudu_core.tablet.view.view import locate_newest
from kudu_core.wal import RECORD_KIND_INGEST, RECORD_KIND_WRITE, LogChanged, Record

PASSING = (OSError, StoreError, FileMissing, LogChanged, Closed, Fenced, MemoryLimit, Poisoned)
"""Not a record's fault: files that have moved on, the machine, the store, another writer."""


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
    """Lays records into tablets, in the order of the log: one (``apply``), or the first of some as one
    (``apply_group``)."""

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
        self._mark = 0
        self.position = 0
        """Timestamp of the last record that was replayed whole: the cut of every tablet."""

    def is_of_data(self, error: Corruption) -> bool:
        """Whether an error is of a file of rows or changes, which a record only asked for a key."""
        folders = {tablet.directory for tablet in self._tablets.values()}
        folders |= {job_files(root_of(folder)) for folder in folders}
        return any(error.path.startswith(f"{folder}/") for folder in folders)

    def apply(self, record: Record) -> None:
        """Replay one WRITE or INGEST.  Whatever it raises, none of a WRITE is in the tablets."""
        self.began = False
        if record.kind not in (RECORD_KIND_WRITE, RECORD_KIND_INGEST):
            self.position = record.ts
            return
        where = f"log record {record.lsn}"
        payload = decoded(record, self._schema, where)
        tokens, jobs = self._token(payload.extra, record, where, self.applied_writes)
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

    def may_be_in_files(self, record: Record) -> bool:
        """Whether a tablet's files may hold what a record says, so that no group begins with it."""
        if record.ts > self._mark:  # marks only grow
            self._mark = max((tablet.state.mark for tablet in self._tablets.values()), default=0)
        return record.ts <= self._mark

    def apply_group(self, waiting: Sequence[Record]) -> int:
        """Replay the first of some WRITEs as one; how many they were, 0: the first is for ``apply``.

        What it raises is no record's fault, and is raised before any row is in a tablet or after all are.
        """
        self.began = False
        tokens: dict[str, AppliedWrite] = {}
        jobs: dict[str, AppliedWrite] = {}
        try:
            found = self._group(waiting)
            del found[same_kinds(found) :]
            if len(found) < 2:
                return 0
            count, every = gathered(self._schema, found)
            if count < 2:
                return 0
            for (_, payload), record in zip(found[:count], waiting, strict=False):
                known = ChainMap(tokens, self.applied_writes)
                more = self._token(payload.extra, record, f"log record {record.lsn}", known)
                tokens |= more[0]
                jobs |= more[1]
            layings = group_layings(self._schema, self._tablets, found[:count], every)
        except PASSING:
            raise
        except Exception:  # noqa: BLE001  ``apply`` meets it again, and knows of which record it is
            return 0
        if layings is None:
            return 0
        self.began = True
        for laying, last_ts in layings:
            laying.lay(last_ts)
        self.applied_writes |= tokens
        self.applied_jobs |= jobs
        self.records += count
        self.position = found[count - 1].ts
        return count

    def _group(self, waiting: Sequence[Record]) -> list[GroupRecord]:
        """Their payloads, up to one that is broken."""
        found: list[GroupRecord] = []
        for record in waiting:
            where = f"log record {record.lsn}"
            try:
                payload = decoded(record, self._schema, where)
                self._check(payload, where)
            except KuduError:
                break
            found.append(GroupRecord(record.ts, payload))
        return found

    def _token(
        self, extra: Mapping[str, Any], record: Record, where: str, known: Mapping[str, AppliedWrite]
    ) -> tuple[dict[str, AppliedWrite], dict[str, AppliedWrite]]:
        """What a record adds to ``applied_writes``, which are ``known``, and to ``applied_jobs``."""
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
                    tokens[txn.app_id] = txn.applied(known.get(txn.app_id), record.ts, counts)
            if job is not None:
                jobs[job_id(job)] = AppliedWrite(GIVEN_UP if "given_up" in extra else 0, record.ts, counts)
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
                for i in distinct(homes.store[in_memory]).tolist()
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
            rowsets, deltas = install.part_of(payload.extra, tablet, record.ts, where)
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
                flushed = install.flush_changed(deltas, tablet, written)
                install.install(tablet, record.ts, rowsets, deltas, flushed)
            laying = self._reserved(tablet, record.ts, sections)
            self.began = True
            laying.lay(record.ts)
