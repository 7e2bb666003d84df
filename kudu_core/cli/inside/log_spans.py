"""A segment of the log, and COMMITTED."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kudu_core.cli.inside.file_pieces import FilePiece
from kudu_core.common.run.clock import time_of
from kudu_core.errors import Corruption
from kudu_core.tablet.store import records
from kudu_core.tablet.store.manifest_format import BytesSource
from kudu_core.wal.find_records import sound_records
from kudu_core.wal.format import (
    COMMITTED_SLOT,
    COMMITTED_STRIDE,
    RECORD_HEADER,
    RECORD_KIND_ALTER,
    RECORD_KIND_CHECKPOINT,
    RECORD_KIND_EDIT,
    RECORD_KIND_INGEST,
    RECORD_KIND_WRITE,
    SEGMENT_HEADER,
    padded,
    unpack_checkpoint,
    unpack_segment_header,
)

KINDS = {
    RECORD_KIND_WRITE: "WRITE", RECORD_KIND_INGEST: "INGEST", RECORD_KIND_ALTER: "ALTER",
    RECORD_KIND_CHECKPOINT: "CHECKPOINT", RECORD_KIND_EDIT: "EDIT",
}  # fmt: skip
OPERATIONS = {1: "UPDATE", 2: "DELETE", 3: "INSERT"}


def segment_spans(data: bytes) -> Iterator[FilePiece]:
    """The header and each record up to the first that is not sound; what lies behind may be an earlier life
    of the file."""
    header = unpack_segment_header(data)
    if header is None:
        yield FilePiece(0, min(SEGMENT_HEADER.size, len(data)), "segment header", sound=False)
        return
    yield FilePiece(
        0, SEGMENT_HEADER.size, "segment header",
        {"table_uuid": header.table_uuid.hex(), "epoch": header.epoch, "seq": header.seq,
         "prev_ts": header.prev_ts, "prev_lsn": header.prev_lsn}, True,
    )  # fmt: skip
    file: Any = BytesSource(data)
    found = sound_records(file, header.salt(), SEGMENT_HEADER.size, header.prev_lsn + 1)
    for offset, record in found:
        fields: dict[str, Any] = {
            "kind": KINDS.get(record.kind, record.kind), "lsn": record.lsn, "ts": record.ts,
            "time": time_of(record.ts), "synced_lsn": record.synced_lsn,
            "schema_version": record.schema_version,
        }  # fmt: skip
        fields |= _told(record.kind, record.payload)
        yield FilePiece(offset, padded(RECORD_HEADER.size + len(record.payload)), "record", fields, True)


def _told(kind: int, payload: memoryview) -> dict[str, Any]:
    """What a record's payload says, in short."""
    if kind == RECORD_KIND_CHECKPOINT:
        checkpoint = unpack_checkpoint(payload)
        return {} if checkpoint is None else {"through": checkpoint.through, "edits": dict(checkpoint.edits)}
    if kind == RECORD_KIND_ALTER:
        return {"change": bytes(payload).decode("utf-8", "replace")}
    if kind not in (RECORD_KIND_WRITE, RECORD_KIND_INGEST):
        return {}
    try:
        decoded = records.decode(payload, "the record", 0)
    except Corruption as damage:
        return {"payload": damage.reason}
    sections = [
        {"op": OPERATIONS.get(section.op, section.op), "rows": len(section.tablets)}
        for section in decoded.sections
    ]
    return {"tablets": list(decoded.tablets), "sections": sections, "extra": decoded.extra}


def committed_spans(data: bytes) -> Iterator[FilePiece]:
    """The two slots; their checksums need the table's uuid."""
    for offset in (0, COMMITTED_STRIDE):
        if len(data) >= offset + COMMITTED_SLOT.size and any(data[offset : offset + COMMITTED_SLOT.size]):
            counter, ts, lsn, epoch, _ = COMMITTED_SLOT.unpack_from(data, offset)
            fields = {"counter": counter, "ts": ts, "time": time_of(ts), "lsn": lsn, "epoch": epoch}
            yield FilePiece(offset, COMMITTED_SLOT.size, "slot", fields)
