"""Replay of log records into tablets (PROTOCOL O5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kudu_core.common.idempotence import Token, Txn, stored_counts
from kudu_core.common.rowblock import RowBlock
from kudu_core.common.schema import Schema
from kudu_core.common.stored import BROKEN, text
from kudu_core.errors import Corruption
from kudu_core.rowset.memrowset import MemRowSet
from kudu_core.tablet import ingest, records
from kudu_core.tablet.apply import Laying, Moved, key_batch, values_only
from kudu_core.tablet.tablet import Tablet
from kudu_core.tablet.view import locate_newest
from kudu_core.wal import KIND_INGEST, KIND_WRITE, Record


class Replay:
    """Lays records into tablets, in the order of the log."""

    def __init__(
        self,
        tablets: Mapping[int, Tablet],
        schema: Schema,
        *,
        writer: bool,
        tokens: Mapping[str, Token],
        tokens_through: int,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        """``tokens``: TABLE's; of the records up to ``tokens_through`` they are there, or were dropped."""
        self._tablets = tablets
        self._schema = schema
        self._writer = writer
        self._make_room = make_room
        self.tokens = dict(tokens)
        """By app_id: those that TABLE has, and then those of the records after ``tokens_through``."""
        self._tokens_through = tokens_through
        self.jobs: dict[str, Token] = {}
        """By id of the distributed writes among the records."""
        self.files: dict[int, set[str]] = {}
        """By tablet: files that records name and that may not be in a manifest yet."""
        self.records = 0
        self.position = 0
        """Timestamp of the last record that was replayed whole: the cut of every tablet."""

    def apply(self, record: Record) -> None:
        """Replay one WRITE or INGEST."""
        if record.kind not in (KIND_WRITE, KIND_INGEST):
            self.position = record.ts
            return
        where = f"log record {record.lsn}"
        payload = records.decode(memoryview(record.payload), where, 0)
        self._token(payload.extra, record, where)
        self._check(payload, where)
        if record.kind == KIND_INGEST:
            self._ingest(payload, record, where)
        else:
            # All of it has room before any of it is laid: a record that cannot be replayed leaves nothing.
            layings = [
                self._reserved(tablet, record.ts, records.split(payload.sections, position))
                for position, tablet_id in enumerate(payload.tablets)
                if (tablet := self._tablets.get(tablet_id)) is not None
            ]
            for laying in layings:
                laying.lay(record.ts)
        self.records += 1
        self.position = record.ts
        self._make_room()

    def _token(self, extra: Mapping[str, Any], record: Record, where: str) -> None:
        given, job = extra.get("txn"), extra.get("job")
        if given is None and job is None:
            return
        try:
            counts = stored_counts(extra["counts"])
            if given is not None:
                txn = Txn.from_json(given)
                if record.ts > self._tokens_through:
                    self.tokens[txn.app_id] = txn.applied(self.tokens.get(txn.app_id), record.ts, counts)
            if job is not None:
                self.jobs[text(job)] = Token(0, record.ts, counts)
        except BROKEN as exc:
            raise Corruption(where, 0, f"token: {exc!r:.200}") from exc

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
        the bounds of another build, is closed and another one takes what comes (PROTOCOL O5)."""
        while True:
            laying = Laying(tablet)
            for op, block in sections:
                self._rows(laying, tablet, ts, op, block)
            try:
                laying.reserve()
            except Moved:
                continue
            return laying

    def _rows(self, laying: Laying, tablet: Tablet, ts: int, op: int, block: RowBlock) -> None:
        """Net changes of one operation in one tablet."""
        batch = key_batch(self._schema, block)
        if op == records.INSERT:
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
            # Durable already, unless the record is newer than anything that files can hold (N16).
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
        for position, tablet_id in enumerate(payload.tablets):
            tablet = self._tablets.get(tablet_id)
            if tablet is None:
                continue
            try:
                value = {
                    "rowsets": [],
                    "deltas": {},
                    **payload.extra.get("parts", {}).get(str(tablet_id), {}),
                }
            except BROKEN as exc:
                raise Corruption(where, 0, f"ingest record: {exc!r:.200}") from exc
            rowsets, deltas = ingest.parse_part(value, where, 0)
            for rowset_id in deltas:
                if tablet.view.rowset(rowset_id) is None and record.ts > tablet.state.ingests_durable:
                    raise Corruption(where, 0, f"an ingest changes rowset {rowset_id}, which is not there")
            self.files.setdefault(tablet_id, set()).update(ingest.named_files(value))
            if record.ts > tablet.state.ingests_durable:
                if not self._writer:
                    raise Corruption(
                        tablet.directory, 0, f"a reader met the ingest of {record.ts} before its manifest did"
                    )
                written: list[str] = []
                flushed = ingest.flush_changed(deltas, tablet, written)
                ingest.install(tablet, record.ts, rowsets, deltas, flushed)
            self._reserved(tablet, record.ts, records.split(payload.sections, position)).lay(record.ts)
