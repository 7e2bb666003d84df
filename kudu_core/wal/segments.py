"""The files of a log that is open for writing: made, filled ahead, recycled, dropped, taken over.

Knows names and headers; when a record is durable, and what a failure means for the table, is
``wal.log``'s.  Everything here runs under the log's sync lock, or before the log is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from kudu_core.wal.appending import ActiveRoom
from kudu_core.wal.format import (
    PADDING,
    RECORD_HEADER,
    SEGMENT_HEADER,
    Buffer,
    Segment,
    SegmentHeader,
    padded,
    parse_segment_name,
    parse_spare_name,
    payload_crc,
    record_header,
    segment_name,
    spare_name,
)

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, WriteFile
    from kudu_core.wal.tail import LogTail

MAX_SPARES: Final = 2
COPY_BYTES: Final = 4 << 20
COPY_BUFFERS: Final = 900
_ZEROS: Final = bytes(64 << 10)


class SegmentClock(Protocol):
    """What this module asks of ``common.run.clock``."""

    def monotonic_s(self) -> float: ...


class ActiveSegment(ActiveRoom):
    """The segment that takes records.  Below ``filled`` the file's bytes have been written."""

    file: WriteFile
    following: ActiveSegment | None
    head_bytes = SEGMENT_HEADER.size

    def __init__(self, segment: Segment, file: WriteFile, salt: bytes, capacity: int) -> None:
        self.path, self.epoch, self.seq = segment.path, segment.epoch, segment.seq
        self.end, self.filled, self.capacity = segment.end, segment.size, capacity
        self.last_ts, self.last_lsn = segment.last_ts, segment.last_lsn
        self.file, self.salt, self.following = file, salt, None

    def fill_ahead(self, end: int, at_least: int, at_most: int) -> None:
        """Write zeros past ``end``.  They are never a valid record, and the next fsyncs find the
        file's size and blocks as they need them.

        Piece by piece: what is written by one call may become one large folio of the page cache, and then
        each record that is written into it costs the kernel a walk over all blocks of the folio.
        """
        step = min(max(self.end, at_least), at_most)
        target = min(max(end, self.filled + step), self.capacity)
        # A disk too full for zeros may still have room for the record.
        with suppress(OSError):
            while self.filled < target:
                piece_end = min((self.filled // len(_ZEROS) + 1) * len(_ZEROS), target)
                self.file.pwrite(_ZEROS[: piece_end - self.filled], self.filled)
                self.filled = piece_end

    def cut_back(self) -> None:
        """Undo a write that failed: no byte after the last record can read as one."""
        end = self.end
        if self.file.size() > self.filled:
            self.file.truncate(self.filled)
        if end < self.filled:
            self.file.pwrite(bytes(min(RECORD_HEADER.size, self.filled - end)), end)


class SegmentFiles:
    """The segments before the active one, and the obsolete ones that wait to be recycled.

    A spare is recycled no sooner than ``file_grace_s`` after it was dropped: a reader in another
    process may be in the middle of it.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        table_uuid: bytes,
        epoch: int,
        clock: SegmentClock,
        segment_bytes: int,
        file_grace_s: float,
        poison: Callable[[BaseException], None],
    ) -> None:
        """``poison`` is told an fsync that failed, and is compiled (protocol W8)."""
        self._fs = fs
        self._directory = directory
        self._uuid = table_uuid
        self._epoch = epoch
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._file_grace_s = file_grace_s
        self._poison = poison
        self._spares: list[tuple[float, Segment]] = []
        self._next_spare = 0
        self.sealed: list[Segment] = []

    def path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def make(self, seq: int, prev_ts: int, prev_lsn: int, size: int) -> ActiveSegment:
        """The file of a segment with room for ``size`` bytes of records, without a header yet: see ``begin``.

        It reads as none of the log's yet, so after a failure or an interrupt another attempt makes it anew.
        """
        path = self.path(segment_name(self._epoch, seq))
        end = SEGMENT_HEADER.size
        capacity = max(self._segment_bytes, end + size)
        file, filled = self._recycle(path, capacity)
        if file is None:
            # What an earlier attempt has left.
            self._fs.unlink(path, missing_ok=True)
            file = self._fs.create(path)
            try:
                # A disk without room for a header says so here, while nothing depends on it.
                file.pwrite(bytes(end), 0)
            except OSError:
                file.close()
                self._fs.unlink(path, missing_ok=True)
                raise
            filled = end
        salt = self._header(seq, prev_ts, prev_lsn).salt()
        segment = Segment(path, self._epoch, seq, end, filled, prev_ts, prev_lsn)
        return ActiveSegment(segment, file, salt, max(capacity, filled))

    def begin(self, made: ActiveSegment) -> None:
        """Give a segment that was made its header, durably under its name (protocol L2).

        After a failure or an interrupt it is to be called again, with the same: a reader of another process
        may have the file open by then.
        """
        header = self._header(made.seq, made.last_ts, made.last_lsn)
        made.file.pwrite(header.pack(), 0)
        self._sync(made.file)
        self._sync_directory()

    def _header(self, seq: int, prev_ts: int, prev_lsn: int) -> SegmentHeader:
        return SegmentHeader(self._uuid, self._epoch, seq, prev_ts, prev_lsn)

    def _recycle(self, path: str, capacity: int) -> tuple[WriteFile | None, int]:
        """An obsolete segment under a new name, if one has waited long enough and is large enough.

        Its old records are those of another life: their CRC covers another epoch and sequence.
        """
        if not self._spares:
            return None, 0
        ready_s, spare = self._spares[0]
        if spare.size < capacity or ready_s > self._clock.monotonic_s():
            return None, 0
        del self._spares[0]
        try:
            self._fs.rename(spare.path, path)
        except FileNotFoundError:  # removed by a ``drop_spares`` that was interrupted
            return None, 0
        # A power cut must not leave the new header under the name that the segment had in its old life.
        self._sync_directory()
        return self._fs.open_write(path), spare.size

    def drop_first(self) -> None:
        """Make the oldest sealed segment a spare, or remove it.

        It is listed until its name is gone, so that segments go in their order whatever interrupts this, and
        one whose name is gone already is no more than taken from the list.
        """
        segment = self.sealed[0]
        if segment.size >= self._segment_bytes and len(self._spares) < MAX_SPARES:
            number = self._next_spare
            path = self.path(spare_name(number))
            spare = (self._clock.monotonic_s() + self._file_grace_s, replace(segment, path=path))
            with suppress(FileNotFoundError):
                self._fs.rename(segment.path, path)
                # A spare whose number was not counted gives way to the next that is made.
                self._next_spare = number + 1
                self._spares.append(spare)
        else:
            self._fs.unlink(segment.path, missing_ok=True)
        del self.sealed[0]

    @property
    def spare_bytes(self) -> int:
        """Of the spares that have waited long enough."""
        now_s = self._clock.monotonic_s()
        return sum(spare.size for ready_s, spare in self._spares if ready_s <= now_s)

    def drop_spares(self) -> int:
        """Remove the spares that have waited long enough; their bytes."""
        now_s = self._clock.monotonic_s()
        freed = 0
        while self._spares and self._spares[0][0] <= now_s:
            spare = self._spares[0][1]
            self._fs.unlink(spare.path, missing_ok=True)
            del self._spares[0]
            freed += spare.size
        return freed

    def take_over(self, tail: LogTail, keep_segment: Callable[[str], None] | None = None) -> ActiveSegment:
        """Copy the records of the last segment to one of this epoch, then remove the old one (protocol O3).

        The copy gets its name when it is complete and synced: whoever finds both takes the copy.
        """
        last = tail.last_segment()
        path = self.path(segment_name(self._epoch, last.seq))
        temporary = path + ".tmp"
        self._fs.unlink(temporary, missing_ok=True)
        header = SegmentHeader(self._uuid, self._epoch, last.seq, last.prev_ts, last.prev_lsn)
        file = self._fs.create(temporary)
        try:
            end = self._copy_records(tail, header, file)
            self._sync(file)
            self._fs.rename(temporary, path)
            self._sync_directory()
        finally:
            file.close()
        if keep_segment is not None and tail.torn:
            keep_segment(last.path)
        else:
            self._fs.unlink(last.path)
        self.sealed = tail.sealed_segments()
        self._remove_leftovers(path)
        segment = Segment(path, self._epoch, last.seq, end, end, tail.last_ts, tail.last_lsn)
        capacity = max(self._segment_bytes, end)
        return ActiveSegment(segment, self._fs.open_write(path), header.salt(), capacity)

    def _copy_records(self, tail: LogTail, header: SegmentHeader, file: WriteFile) -> int:
        salt = header.salt()
        pending: list[Buffer] = [header.pack()]
        written = 0
        end = SEGMENT_HEADER.size
        for r in tail.last_segment_records():
            length = RECORD_HEADER.size + len(r.payload)
            padding = PADDING[padded(length) - length]
            crc = payload_crc((r.payload, padding))
            fields = (length, r.lsn, r.ts, r.synced_lsn, r.schema_version, r.kind)
            pending += (record_header(salt, crc, *fields), r.payload, padding)
            end += padded(length)
            if end - written >= COPY_BYTES or len(pending) >= COPY_BUFFERS:
                file.pwrite(pending, written)
                written = end
                pending = []
        if pending:
            file.pwrite(pending, written)
        return end

    def _remove_leftovers(self, active: str) -> None:
        """What lies in the directory and is no part of the log; spares begin their grace again."""
        known = {active} | {segment.path for segment in self.sealed}
        ready_s = self._clock.monotonic_s() + self._file_grace_s
        for name in sorted(self._fs.listdir(self._directory)):
            path = self.path(name)
            number = parse_spare_name(name)
            if number is not None:
                self._next_spare = max(self._next_spare, number + 1)
                size = self._fs.stat(path)[0]
                if size >= self._segment_bytes and len(self._spares) < MAX_SPARES:
                    self._spares.append((ready_s, Segment(path, 0, 0, 0, size, 0, 0)))
                    continue
            elif parse_segment_name(name.removesuffix(".tmp")) is None or path in known:
                continue  # not ours, or in use
            self._fs.unlink(path, missing_ok=True)

    def _sync(self, file: WriteFile) -> None:
        try:
            file.sync()
        except OSError as error:
            self._poison(error)
            raise

    def _sync_directory(self) -> None:
        try:
            self._fs.sync_dir(self._directory)
        except OSError as error:
            self._poison(error)
            raise


def holds_records(fs: FileSystem, directory: str) -> bool:
    """Whether the log in a folder may have more in it than one that was just made.  Reads no record."""
    names = [name for name in fs.listdir(directory) if parse_segment_name(name) is not None]
    return any(fs.stat(f"{directory}/{name}").size > SEGMENT_HEADER.size for name in names)
