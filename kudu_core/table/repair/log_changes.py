"""What the records of a log say of the keys of each tablet, as facts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from kudu_core.common.format.members import BROKEN
from kudu_core.common.rows.keys import EncodedKeys, encode_keys
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Corruption, KuduError
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.table.repair.facts import ABSENT, CHANGE, IMAGE, Facts
from kudu_core.tablet.ingest.install import parse_part
from kudu_core.tablet.replay.recast_records import decoded
from kudu_core.tablet.store import records
from kudu_core.wal import RECORD_KIND_INGEST, RECORD_KIND_WRITE, Record
from kudu_core.wal.salvage import SalvagedLog

PIECE_BYTES = 64 << 20
"""Of rows of records that become one sorted piece."""

_KINDS = {records.RECORD_INSERT: IMAGE, records.RECORD_UPDATE: CHANGE, records.RECORD_DELETE: ABSENT}


@dataclass(frozen=True, slots=True)
class Ingest:
    """What an INGEST record brings to one tablet."""

    ts: int
    rowsets: tuple[RowSetMeta, ...]
    deltas: Mapping[int, DeltaRef]
    """By rowset."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """A sound record whose payload is broken."""

    lsn: int
    ts: int
    reason: str


@dataclass(slots=True)
class TabletChanges:
    """What the log says of one tablet."""

    facts: list[Facts] = field(default_factory=list)
    """Each in the order of keys; IMAGEs are inserts, and lack the columns that came after them: their
    defaults may take far more room than what the log holds."""
    ingests: list[Ingest] = field(default_factory=list)
    """In the order of time."""
    rows: int = 0
    """Rows of records."""
    _open: dict[tuple[int, tuple[int, ...]], _Bucket] = field(default_factory=dict)

    def add(self, schema: Schema, ts: int, op: int, block: RowBlock) -> None:
        keys = encode_keys(schema, block)
        key_ids = set(schema.key_ids)
        values = {i: c for i, c in block.columns.items() if i not in key_ids and i in schema.by_id}
        bucket = self._open.setdefault((op, tuple(values)), _Bucket())
        bucket.add(keys, ts, RowBlock(values, block.rows))
        self.rows += block.rows
        if bucket.nbytes >= PIECE_BYTES:
            self.facts.append(bucket.facts(_KINDS[op]))
            del self._open[op, tuple(values)]

    def finish(self) -> None:
        """No record follows."""
        self.facts += [bucket.facts(_KINDS[op]) for (op, _), bucket in self._open.items()]
        self._open.clear()

    @property
    def changes_files(self) -> bool:
        """Whether an ingest changed rows of files: the log alone does not say how."""
        return any(one.deltas for one in self.ingests)


@dataclass(slots=True)
class _Bucket:
    keys: list[EncodedKeys] = field(default_factory=list)
    times: list[np.ndarray] = field(default_factory=list)
    blocks: list[RowBlock] = field(default_factory=list)
    nbytes: int = 0

    def add(self, keys: EncodedKeys, ts: int, block: RowBlock) -> None:
        self.keys.append(keys)
        self.times.append(np.full(block.rows, ts, np.uint64))
        self.blocks.append(block)
        self.nbytes += block.nbytes + keys.nbytes

    def facts(self, kind: int) -> Facts:
        block = RowBlock.concat(self.blocks)
        columns = block.columns
        return Facts(kind, EncodedKeys.concat(self.keys), np.concatenate(self.times), columns).sorted()


def changes_of(
    log: SalvagedLog, schema: Schema, tablets: Collection[int], told: Callable[[Unusable], None]
) -> dict[int, TabletChanges]:
    """The records of a log by tablet.  ``told`` of those that cannot be used."""
    found = {tablet: TabletChanges() for tablet in tablets}
    for record in log:
        if record.kind not in (RECORD_KIND_WRITE, RECORD_KIND_INGEST):
            continue
        try:
            for tablet, ts, op, block in _rows(record, schema, found):
                found[tablet].add(schema, ts, op, block)
            if record.kind == RECORD_KIND_INGEST:
                for tablet, brought in _ingests(record, found).items():
                    found[tablet].ingests.append(brought)
        except (KuduError, *BROKEN) as error:
            told(Unusable(record.lsn, record.ts, f"{error!s:.200}"))
    for changes in found.values():
        changes.finish()
    return found


def _rows(record: Record, schema: Schema, tablets: Collection[int]) -> list[tuple[int, int, int, RowBlock]]:
    """(tablet, time, operation, rows): all of a record's, or an error before any."""
    where = f"log record {record.lsn}"
    payload = decoded(record, schema, where)
    for section in payload.sections:
        columns = section.block.columns
        for column_id in schema.key_ids:
            if column_id not in columns or columns[column_id].null_count:
                raise Corruption(where, 0, f"rows without key column {column_id}")
        for column_id, column in columns.items():
            known = schema.by_id.get(column_id)
            if known is not None and column.width != known.type.width:
                raise Corruption(where, 0, f"column {column_id} with cells of {column.width} bytes")
    parts = records.split(payload.sections, len(payload.tablets))
    return [
        (tablet, record.ts, op, block)
        for tablet, sections in zip(payload.tablets, parts, strict=True)
        if tablet in tablets
        for op, block in sections
    ]


def _ingests(record: Record, tablets: Collection[int]) -> dict[int, Ingest]:
    where = f"log record {record.lsn}"
    payload = records.decode(memoryview(record.payload), where, 0)
    found = {}
    for tablet in payload.tablets:
        value = {"rowsets": [], "deltas": {}, **payload.extra.get("parts", {}).get(str(tablet), {})}
        rowsets, deltas = parse_part(value, where, 0)
        if tablet in tablets:
            found[tablet] = Ingest(record.ts, tuple(rowsets), deltas)
    return found


__all__ = ["Ingest", "TabletChanges", "Unusable", "changes_of"]
