"""Reading the log: for the writer's open (protocol O3) and for another process (protocol R1, R2).

One walk serves both.  It follows the segments record by record, ends at the first record that is
not sound, and then asks whether that end is legal: a power cut may take back what no fsync covered,
and nothing else.  A reader beside a living writer stops earlier, at what COMMITTED calls durable,
so it never meets a record that might yet be taken back.

Memory stays small: the first walk keeps only where each segment's records end; ``records`` walks
again and hands the payloads out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias

import numpy as np

from kudu_core.common.format.members import LIMIT
from kudu_core.errors import Corruption
from kudu_core.wal.format import (
    COMMITTED_NAME,
    COMMITTED_STRIDE,
    KIND_ALTER,
    KIND_CHECKPOINT,
    KINDS,
    NOTHING_COMMITTED,
    RECORD_HEADER,
    SEGMENT_HEADER,
    Checkpoint,
    Committed,
    Segment,
    SegmentHeader,
    padded,
    parse_segment_name,
    record_is_sound,
    segment_salt,
    unpack_checkpoint,
    unpack_committed,
    unpack_segment_header,
)

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, ReadFile

Mode: TypeAlias = Literal["rw", "r"]

CHUNK: Final = 1 << 20
SEARCH_CHUNK: Final = 8 << 20
MAX_RESTARTS: Final = 8


class LogChanged(Exception):
    """The log moved on under a reader (segments removed or recycled): open it again."""


@dataclass(frozen=True, slots=True)
class Record:
    """One log record.  ``payload`` is a read-only view that stays valid."""

    lsn: int
    ts: int
    kind: int
    schema_version: int
    payload: memoryview
    synced_lsn: int


Alters: TypeAlias = Callable[[Record], bool]
"""Whether a record says what the table is, and not only what its rows are."""


def _is_alter(record: Record) -> bool:
    return record.kind == KIND_ALTER


@dataclass(slots=True)
class _Source:
    """A segment being read.  ``header`` is None for one whose header is of another life.

    ``end``: where the sound records found so far end; ``last_*``: of the last of them, or before.
    ``taken``: where the records not yet handed out begin, after ``taken_lsn``.
    """

    path: str
    epoch: int
    seq: int
    file: ReadFile
    header: SegmentHeader | None
    raw_header: bytes
    prev_lsn: int
    prev_ts: int
    last_lsn: int
    last_ts: int
    taken_lsn: int
    end: int = SEGMENT_HEADER.size
    taken: int = SEGMENT_HEADER.size


@dataclass(frozen=True, slots=True)
class LastSegment:
    """What ``Log.resume`` needs of the last segment."""

    path: str
    seq: int
    prev_ts: int
    prev_lsn: int


class LogTail:
    """The log as far as it has been read.  Not for several threads at once.

    ``checkpoint`` is the last one that the *first* walk met.  Manifests that are read after that walk hold
    everything that it stands for; what later ones stand for they may lack, so it stays when a reader
    goes on.
    """

    def __init__(
        self, fs: FileSystem, directory: str, table_uuid: bytes, mode: Mode, alters: Alters
    ) -> None:
        """Use ``read_log`` or ``open_log``."""
        self._alters = alters
        self._fs = fs
        self._directory = directory
        self._uuid = table_uuid
        self._mode = mode
        self._sources: list[_Source] = []
        self._at = 0
        self._walked = False
        self._broken: tuple[_Source, int, str] | None = None
        self._latest_through = 0
        self._taken_lsn = 0
        self.checkpoint = Checkpoint()
        self.committed: Committed = NOTHING_COMMITTED
        self.taken_over = False
        """A writer has begun an epoch and not yet said how far the log is committed."""
        self.last_lsn = 0
        self.last_ts = 0
        self.committed_ts = 0
        self.alterations: list[Record] = []
        """The records that were read which say what the table is: that must be known before rows are
        replayed."""

    @property
    def through(self) -> int:
        """Replay needs no record with a timestamp <= this."""
        return self.checkpoint.through

    # Opening ----------------------------------------------------------------------------------

    def _open_segments(self) -> None:
        chain = _latest_chain(self._list_segments(0))
        for seq, epoch, name in chain:
            self._sources.append(self._open_segment(f"{self._directory}/{name}", epoch, seq))
        for source in self._sources[:-1]:
            if source.header is None:
                self._damaged(source, 0, "not the header of this log segment")
        if (
            self._sources
            and self._sources[-1].header is None
            and (self._mode == "r" or len(self._sources) == 1)
        ):
            # A reader finds it again when it is ready.
            last = self._sources.pop()
            last.file.close()
        if not self._sources:
            raise Corruption(self._directory, 0, "the log has no segment")
        self.last_lsn, self.last_ts = self._sources[0].prev_lsn, self._sources[0].prev_ts

    def _list_segments(self, from_seq: int) -> dict[int, tuple[int, str]]:
        """Sequence to (epoch, name): of two segments with one sequence the later epoch's is the log's."""
        names: dict[int, tuple[int, str]] = {}
        for name in self._fs.listdir(self._directory):
            parsed = parse_segment_name(name)
            if parsed is not None and parsed[1] >= from_seq:
                epoch, seq = parsed
                names[seq] = max(names.get(seq, (0, "")), (epoch, name))
        return names

    def _open_segment(self, path: str, epoch: int, seq: int) -> _Source:
        try:
            file = self._fs.open_read(path)
        except FileNotFoundError:
            if self._mode == "r":
                raise LogChanged(path) from None
            raise
        try:
            raw = file.pread(SEGMENT_HEADER.size, 0)
            header = unpack_segment_header(raw)
            if header is not None and (header.epoch, header.seq) != (epoch, seq):
                header = None
            if header is not None and header.table_uuid != self._uuid:
                raise Corruption(path, 0, "a log segment of another table")
        except BaseException:
            file.close()
            raise
        lsn, ts = (header.prev_lsn, header.prev_ts) if header is not None else (0, 0)
        return _Source(path, epoch, seq, file, header, raw, lsn, ts, lsn, ts, lsn)

    def _damaged(self, source: _Source, offset: int, reason: str) -> NoReturn:
        """Raise ``Corruption``, unless a reader was overtaken by the recycling of what it reads."""
        if self._mode == "r":
            self._check_headers()
            # Recycling takes the name away first; a segment that has a later one was whole under its name.
            if source.header is None and not self._fs.exists(source.path):
                raise LogChanged(source.path)
            # A takeover goes on in a copy.  A listing that was made meanwhile may have the segments after the
            # copy without it, since a directory is not read at one moment.
            epoch, _ = self._list_segments(source.seq).get(source.seq, (LIMIT, ""))
            if epoch > source.epoch:
                raise LogChanged(source.path)
        raise Corruption(source.path, offset, reason)

    # Walking ----------------------------------------------------------------------------------

    def _walk(self, limit: int | None) -> None:
        """Read on to the end of the segments that are open, or to the record ``limit``."""
        while True:
            source = self._sources[self._at]
            if source.header is not None:
                self._walk_segment(source, limit)
            if self._at + 1 == len(self._sources) or self.last_lsn == limit:
                return
            following = self._sources[self._at + 1]
            if following.header is None:
                following.prev_lsn = following.last_lsn = following.taken_lsn = self.last_lsn
                following.prev_ts = following.last_ts = self.last_ts
            elif (following.prev_lsn, following.prev_ts) != (self.last_lsn, self.last_ts):
                reason = (
                    f"the records after {self.last_lsn} are damaged: {following.prev_lsn} had been synced"
                )
                if self._walked:
                    self._damaged(source, source.end, reason)
                self._begin_at(following, (source, source.end, reason))
                continue
            self._at += 1

    def _begin_at(self, first: _Source, broken: tuple[_Source, int, str]) -> None:
        """What lies before ``first`` is no part of the log, or ``_check_beginning`` reports ``broken``.

        A segment that a takeover replaced can come back under its name when the fsync of the directory
        that covered its removal failed, and the log has since dropped the copy.
        """
        self._broken = broken
        at = self._sources.index(first)
        for source in self._sources[:at]:
            source.file.close()
        del self._sources[:at]
        self._at = 0
        self.alterations.clear()
        self.last_lsn, self.last_ts = first.prev_lsn, first.prev_ts

    def _walk_segment(self, source: _Source, limit: int | None) -> None:
        for offset, record in self._parse(source, source.end, self.last_lsn + 1):
            if record.ts <= self.last_ts:
                self._damaged(source, offset, f"timestamp {record.ts} after {self.last_ts}")
            if max(record.ts, record.lsn) >= LIMIT:
                self._damaged(source, offset, f"timestamp {record.ts}, lsn {record.lsn}: too large")
            if record.kind not in KINDS:
                self._damaged(source, offset, f"record of unknown kind {record.kind}")
            if record.kind == KIND_CHECKPOINT:
                checkpoint = unpack_checkpoint(record.payload)
                if checkpoint is None:
                    self._damaged(source, offset, "the sizes of a CHECKPOINT do not fit")
                self._latest_through = checkpoint.through
                if not self._walked:
                    self.checkpoint = checkpoint
            elif self._alters(record):
                self.alterations.append(record)
            self.last_lsn = source.last_lsn = record.lsn
            self.last_ts = source.last_ts = record.ts
            source.end = offset + padded(RECORD_HEADER.size + len(record.payload))
            if record.lsn == limit:
                return

    def _parse(
        self, source: _Source, start: int, lsn: int, end: int | None = None
    ) -> Iterator[tuple[int, Record]]:
        """The sound records from ``start``, the first of them ``lsn``, to ``end`` or an unsound one."""
        salt = segment_salt(self._uuid, source.epoch, source.seq)
        return sound_records(source.file, salt, start, lsn, end)

    # Is the end legal? ------------------------------------------------------------------------

    def _check_end(self, clean_end: int) -> None:
        """Protocol O3: only records that no fsync covered may be missing at the end."""
        last = self._sources[-1]
        if last.header is None:
            self._check_empty(last)
        elif self._mode == "r":
            # One that was on its way when the segments were opened; without a writer nobody makes it ready.
            for seq, (epoch, name) in self._list_segments(last.seq + 1).items():
                headless = self._open_segment(f"{self._directory}/{name}", epoch, seq)
                try:
                    if headless.header is None and epoch >= last.epoch:
                        self._check_empty(headless)
                finally:
                    headless.file.close()
        source = self._sources[-2] if last.header is None else last
        known = max(clean_end, self.committed.lsn)
        if self.last_lsn < known:
            self._damaged(
                source,
                source.end,
                f"record {self.last_lsn + 1} is damaged or missing; {known} had been synced",
            )
        if clean_end and self.last_lsn == clean_end:
            return
        later = self._search(source, source.end, self.last_lsn + 1, self.last_lsn + 1)
        if later is not None:
            self._damaged(
                source,
                source.end,
                f"record {self.last_lsn + 1} is damaged: that at byte {later} was written after its fsync",
            )

    def _check_empty(self, source: _Source) -> None:
        """Nothing of this life of a segment without a sound header is in it."""
        if self._search(source, SEGMENT_HEADER.size, self.last_lsn, 0) is not None:
            self._damaged(source, 0, "the header of a segment that holds records is damaged")

    def _search(self, source: _Source, start: int, above_lsn: int, synced_lsn: int) -> int | None:
        """See ``find_record``; earlier lives of the segment have smaller lsn, so hardly any candidate needs
        its CRC."""
        salt = segment_salt(self._uuid, source.epoch, source.seq)
        return find_record(source.file, salt, start, above_lsn, synced_lsn)

    def _check_beginning(self) -> None:
        """Nothing that replay needs lies before the first segment."""
        first = self._sources[0]
        if first.seq != 1 and first.prev_ts > self._latest_through:
            if self._broken is not None:
                self._damaged(*self._broken)
            self._damaged(
                first,
                0,
                f"the segments before are missing: they end at {first.prev_ts}, the last CHECKPOINT covers "
                f"{self._latest_through}",
            )

    @property
    def torn(self) -> bool:
        """Whether what lies behind the last record looks like the head of the next: a record that a power cut
        tore before any fsync covered it, or damage that nothing tells from that.

        What an earlier life of the segment left there has other numbers, but for one bit at most.
        """
        last = self._sources[-1]
        head = last.file.pread(RECORD_HEADER.size, last.end)
        if len(head) < RECORD_HEADER.size:
            return any(head)
        length, _, lsn, *_ = RECORD_HEADER.unpack(head)
        return bool(length) and (lsn ^ (self.last_lsn + 1)).bit_count() <= 1

    def check_mark(self, mark: int) -> None:
        """Protocol O3: ``mark``, the largest of all manifests, must be a timestamp that the log can prove."""
        if mark > max(self.last_ts, self.through):
            raise Corruption(
                self._sources[-1].path,
                self._sources[-1].end,
                f"the log ends at {self.last_ts}, but a manifest names {mark}",
            )

    # The two readings -------------------------------------------------------------------------

    def _read_for_writer(self, clean_end: int) -> None:
        self._open_segments()
        self._read_committed()
        self._walk(None)
        self._check_end(clean_end)
        self._check_beginning()
        self.committed_ts = self.last_ts
        self._walked = True

    def read_on(self, *, writer_alive: bool, clean_end: int = 0) -> int:
        """Read what has become durable since; returns the number of new records.

        ``writer_alive``: somebody held the lease when the caller looked.  Without a writer the log is
        read to its end.  ``committed_ts`` is then the log's bound of protocol R2: what this reader may see.

        Raises ``LogChanged`` if segments were removed or recycled meanwhile: open again.
        """
        before = self.last_lsn
        self._read_committed()
        limit = self.committed.lsn if writer_alive else None
        if self._walked:
            # First, since after a takeover a stale writer may still append to the segment that is open.
            self._open_newer_segments()
        if limit is None or limit > self.last_lsn:
            self._walk(limit)
            while (limit is None or limit > self.last_lsn) and self._open_newer_segments():
                self._walk(limit)
        self._check_headers()
        if limit is None:
            self._check_end(clean_end)
            self.committed_ts = self.last_ts
        else:
            if self.last_lsn < limit:
                self._damaged(
                    self._sources[self._at],
                    self._sources[self._at].end,
                    f"record {self.last_lsn + 1} is damaged or missing; {limit} had been synced",
                )
            self.committed_ts = max(self.committed_ts, self.committed.ts)
        if not self._walked:
            self._check_beginning()
        self._walked = True
        return self.last_lsn - before

    def _read_committed(self) -> None:
        with suppress(FileNotFoundError):
            data = self._fs.read_bytes(f"{self._directory}/{COMMITTED_NAME}", 2 * COMMITTED_STRIDE)
            committed = unpack_committed(data, self._uuid)
            # A slot of an older epoch may be a stale writer's, which the log no longer follows.
            self.taken_over = NOTHING_COMMITTED.epoch < committed.epoch < self.epoch
            self.committed = committed if committed.epoch >= self.epoch else NOTHING_COMMITTED

    def _open_newer_segments(self) -> bool:
        """Open the segments that came after the last one, or that replaced it at a takeover."""
        opened = False
        for seq, (epoch, name) in sorted(self._list_segments(self._sources[-1].seq).items()):
            last = self._sources[-1]
            if epoch < last.epoch or (seq, epoch) == (last.seq, last.epoch):
                continue
            if seq > last.seq + 1:
                raise LogChanged(name)
            source = self._open_segment(f"{self._directory}/{name}", epoch, seq)
            if source.header is None:
                source.file.close()  # on its way
                break
            if seq == last.seq:
                self._take_over(source)
            else:
                self._sources.append(source)
            opened = True
        return opened

    def _take_over(self, source: _Source) -> None:
        """A new writer copied the last segment: go on in the copy, after the last record that was read."""
        old = self._sources.pop()
        old.file.close()
        self._sources.append(source)
        if self._at + 1 < len(self._sources):
            return  # not reached yet
        for offset, record in self._parse(source, source.end, source.prev_lsn + 1):
            if record.lsn > self.last_lsn:
                break
            source.last_lsn, source.last_ts = record.lsn, record.ts
            source.end = offset + padded(RECORD_HEADER.size + len(record.payload))
        if (source.last_lsn, source.last_ts) != (self.last_lsn, self.last_ts):
            raise LogChanged(source.path)

    def _check_headers(self) -> None:
        """Protocol R1: a header that changed is a recycled segment's, and so may any byte read from it be."""
        for source in self._sources:
            if source.file.pread(SEGMENT_HEADER.size, 0) != source.raw_header:
                raise LogChanged(source.path)

    # Handing out ------------------------------------------------------------------------------

    def records(self) -> Iterator[Record]:
        """The records with ts > ``through`` that were read and not yet handed out, in log order.

        CHECKPOINT records are left out.  A reader may call it again after each ``read_on``; a
        writer after ``Log.resume``.
        """
        for source in list(self._sources):
            if source.last_lsn > self._taken_lsn and source.last_ts > self.through:
                yield from self._take(source)
            if (
                self._mode == "r"
                and self._sources.index(source) < self._at
                and source.last_lsn <= self._taken_lsn
            ):
                # What was handed out need not be kept from being recycled.
                self._sources.remove(source)
                self._at -= 1
                source.file.close()

    def place_of(self, lsn: int) -> tuple[str, int]:
        """(path of the segment, byte offset) of a record that was read and whose segment is still open."""
        for source in self._sources:
            if source.prev_lsn < lsn <= source.last_lsn:
                for offset, record in self._parse(
                    source, SEGMENT_HEADER.size, source.prev_lsn + 1, source.end
                ):
                    if record.lsn == lsn:
                        return source.path, offset
        return self._directory, 0

    def _take(self, source: _Source) -> Iterator[Record]:
        for offset, record in self._parse(source, source.taken, source.taken_lsn + 1, source.end):
            source.taken = offset + padded(RECORD_HEADER.size + len(record.payload))
            source.taken_lsn = record.lsn
            if record.lsn <= self._taken_lsn:
                continue
            self._taken_lsn = record.lsn
            if record.ts > self.through and record.kind != KIND_CHECKPOINT:
                yield record
        if source.taken_lsn != source.last_lsn:
            self._damaged(source, source.taken, f"record {source.taken_lsn + 1} changed after it was read")

    # For Log.resume ---------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The last epoch in the log."""
        return self._sources[-1].epoch

    def sealed_segments(self) -> list[Segment]:
        """All segments but the last."""
        return [
            Segment(s.path, s.epoch, s.seq, s.end, s.file.size(), s.last_ts, s.last_lsn)
            for s in self._sources[:-1]
        ]

    def last_segment(self) -> LastSegment:
        last = self._sources[-1]
        return LastSegment(last.path, last.seq, last.prev_ts, last.prev_lsn)

    def last_segment_records(self) -> Iterator[Record]:
        """Every record of the last segment, of whatever kind and age."""
        last = self._sources[-1]
        lsn = last.prev_lsn
        for _, record in self._parse(last, SEGMENT_HEADER.size, lsn + 1, last.end):
            lsn = record.lsn
            yield record
        if lsn != last.last_lsn:
            self._damaged(last, SEGMENT_HEADER.size, f"record {lsn + 1} changed after it was read")

    def close(self) -> None:
        """Close the segments' handles; records handed out stay valid."""
        for source in self._sources:
            with suppress(OSError):
                source.file.close()
        self._sources = []


def sound_records(
    file: ReadFile, salt: bytes, start: int, lsn: int, end: int | None = None
) -> Iterator[tuple[int, Record]]:
    """The sound records of a segment with their offsets, from ``start``, the first of them ``lsn``, to
    ``end`` or an unsound one."""
    size = file.size() if end is None else end
    need = CHUNK
    while start + RECORD_HEADER.size <= size:
        data = file.pread(min(need, size - start), start)
        view = memoryview(data)
        need = CHUNK
        at = 0
        while at + RECORD_HEADER.size <= len(data):
            length, _, found, ts, synced, version, kind = RECORD_HEADER.unpack_from(data, at)
            extent = padded(length)
            if length < RECORD_HEADER.size or found != lsn or start + at + extent > size:
                return
            if at + extent > len(data):
                need = max(CHUNK, extent)
                break
            if not record_is_sound(salt, view[at : at + extent]):
                return
            payload = view[at + RECORD_HEADER.size : at + length]
            yield start + at, Record(lsn, ts, kind, version, payload, synced)
            lsn += 1
            at += extent
        if not at and need == CHUNK:
            return  # a short read: the file ends here
        start += at


def find_record(
    file: ReadFile, salt: bytes, start: int, above_lsn: int, synced_lsn: int, below_lsn: int = LIMIT
) -> int | None:
    """Where the first sound record is, from ``start`` on, with ``above_lsn`` < lsn < ``below_lsn`` and
    synced_lsn >= ``synced_lsn``."""
    size = file.size()
    while start + RECORD_HEADER.size <= size:
        data = file.pread(min(SEARCH_CHUNK, size - start), start)
        words = np.frombuffer(data, "<u8", len(data) // 8)
        count = len(words) - RECORD_HEADER.size // 8 + 1
        if count <= 0:
            return None
        lsn, synced = words[1 : count + 1], words[3 : count + 3]
        length = words[:count] & 0xFFFFFFFF
        likely = (lsn > above_lsn) & (lsn < below_lsn) & (length >= RECORD_HEADER.size)
        likely &= (synced >= synced_lsn) & (synced < lsn)
        for index in np.flatnonzero(likely).tolist():
            at = start + 8 * index
            extent = padded(int(length[index]))
            if at + extent <= size and record_is_sound(salt, memoryview(file.pread(extent, at))):
                return at
        start += 8 * count
    return None


def _latest_chain(names: dict[int, tuple[int, str]]) -> list[tuple[int, int, str]]:
    """The longest run of consecutive sequences up to the last one, as (seq, epoch, name).

    A segment of a smaller epoch after a larger one is a stale writer's and no part of the log.  What
    lies before a gap had been dropped, or the check of the first segment's prev_ts says otherwise.
    """
    chain: list[tuple[int, int, str]] = []
    for seq, (epoch, name) in sorted(names.items()):
        if chain and epoch < chain[-1][1]:
            continue
        if chain and seq != chain[-1][0] + 1:
            chain = []
        chain.append((seq, epoch, name))
    return chain


def read_log(
    fs: FileSystem,
    directory: str,
    table_uuid: bytes,
    *,
    clean_end: int = 0,
    alters: Alters = _is_alter,
) -> LogTail:
    """Read and check the whole log, for the process that holds the lease (protocol O3).

    ``clean_end``: TABLE's last lsn after a clean close, else 0.  Nothing is changed: that is
    ``Log.resume``.  Raises ``Corruption`` when a record is missing that had been synced.
    """
    tail = LogTail(fs, directory, table_uuid, "rw", alters)
    try:
        tail._read_for_writer(clean_end)
    except BaseException:
        tail.close()
        raise
    return tail


def open_log(
    fs: FileSystem,
    directory: str,
    table_uuid: bytes,
    *,
    writer_alive: bool,
    clean_end: int = 0,
    alters: Alters = _is_alter,
) -> LogTail:
    """Open and read the log beside a writer in another process, or without one (protocol R1, R2).

    The handles stay open.  By protocol R1 this call is first, then TABLE and the manifests, then ``read_on``.
    Tries again by itself when segments change meanwhile; ``LogChanged`` if that does not end.
    """
    for attempt in range(MAX_RESTARTS):
        tail = LogTail(fs, directory, table_uuid, "r", alters)
        try:
            tail._open_segments()
            tail.read_on(writer_alive=writer_alive, clean_end=clean_end)
        except BaseException as error:
            tail.close()
            if isinstance(error, LogChanged) and attempt + 1 < MAX_RESTARTS:
                continue
            raise
        return tail
    raise AssertionError("unreachable")


__all__ = ["LogChanged", "LogTail", "Record", "open_log", "read_log"]
