"""The log of a copy of a table: records of another log, under a uuid of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from kudu_core.wal.find_records import Record
from kudu_core.wal.format import (
    PADDING,
    RECORD_HEADER,
    RECORD_KIND_CHECKPOINT,
    SEGMENT_HEADER,
    Buffer,
    Checkpoint,
    SegmentHeader,
    padded,
    payload_crc,
    record_header,
    segment_name,
)
from kudu_core.wal.segments import COPY_BUFFERS, COPY_BYTES

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


def write_copied_log(
    fs: FileSystem,
    directory: str,
    table_uuid: bytes,
    epoch: int,
    records: Iterable[Record],
    checkpoint: Checkpoint,
    committed_ts: int,
) -> int:
    """Make the first segment of a log, durably; the lsn of its last record.

    The records keep their times, all above the checkpoint's ``through``, and are numbered anew.
    ``committed_ts`` is how far the other log was: where its last record was none of those, a CHECKPOINT say,
    whose time a flush may have taken for its cut, the checkpoint is a record of that time.
    ``directory`` exists and is empty.
    """
    header = SegmentHeader(table_uuid, epoch, 1, checkpoint.through, 0)
    salt = header.salt()
    pending: list[Buffer] = [header.pack()]
    written, end, lsn = 0, SEGMENT_HEADER.size, 0
    with closing(fs.create(f"{directory}/{segment_name(epoch, 1)}")) as file:
        for record in _ended(records, checkpoint, committed_ts):
            lsn += 1
            length = RECORD_HEADER.size + len(record.payload)
            padding = PADDING[padded(length) - length]
            crc = payload_crc((record.payload, padding))
            # Nothing before it counts as synced: the whole is, before the log has a table.
            fields = length, lsn, record.ts, 0, record.schema_version, record.kind
            pending += (record_header(salt, crc, *fields), record.payload, padding)
            end += padded(length)
            if end - written >= COPY_BYTES or len(pending) >= COPY_BUFFERS:
                file.pwrite(pending, written)
                written, pending = end, []
        file.pwrite(pending, written)
        file.sync()
    fs.sync_dir(directory)
    return lsn


def _ended(records: Iterable[Record], checkpoint: Checkpoint, committed_ts: int) -> Iterator[Record]:
    last = checkpoint.through
    for record in records:
        last = record.ts
        yield record
    if last < committed_ts:
        yield Record(0, committed_ts, RECORD_KIND_CHECKPOINT, 0, memoryview(checkpoint.pack()), 0)


__all__ = ["write_copied_log"]
