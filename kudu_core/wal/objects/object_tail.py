"""Reading the log of a table in an object store, for its writer and for others (protocol B4, B9).

The log is read from the number at which TABLE says that it begins up to the first that is missing.  Whether
that is its end only another look at TABLE tells, which is the caller's: ``LogChanged`` says that the log has
moved on under the reader, or is not what TABLE says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kudu_core.errors import Corruption
from kudu_core.wal.find_records import Record
from kudu_core.wal.format import RECORD_KIND_EDIT, RECORD_KIND_INGEST, RECORD_KIND_WRITE, Segment
from kudu_core.wal.objects.log_object import (
    OBJECT_HEADER,
    LogEnd,
    LogPlace,
    ObjectHeader,
    log_name,
    records_of,
)
from kudu_core.wal.open_segments import LogChanged

if TYPE_CHECKING:
    from kudu_core.common.run.pool import Pool
    from kudu_core.objects.api import ObjectStore

MOST_AT_ONCE: Final = 32
"""GETs side by side."""
REQUEST_BYTES: Final = 256 << 10
"""As which an object counts beside its own bytes, where it is asked how long a replay would take: one GET of
32 side by side.  A log of many small objects is long before it is large."""
MAX_OBJECT_BYTES: Final = (4 << 30) + (16 << 20)
"""Of a log object: one record may have 4 GiB."""


@dataclass(frozen=True, slots=True)
class LogObject:
    """An object of the log that was read, or put."""

    n: int
    epoch: int
    end: LogEnd
    """What the next one must name."""
    size: int
    is_fence: bool

    def segment(self, root: str) -> Segment:
        """It as the segment of a log."""
        path = f"{root}/{log_name(self.n)}"
        end = self.end
        return Segment(path, self.epoch, self.n, self.size, self.size, end.ts, end.lsn, REQUEST_BYTES)


class ObjectTail:
    """The log as far as it has been read.  Not for several threads at once."""

    def __init__(
        self,
        store: ObjectStore,
        table_uuid: bytes,
        place: LogPlace,
        *,
        root: str,
        alters: Callable[[Record], bool],
        pool: Pool | None = None,
        known: Mapping[int, bytes] | None = None,
    ) -> None:
        """``place``: as TABLE says.  ``root``: the table's, for messages.  ``alters``: whether a record says
        what the table is.  ``pool``: for GETs side by side; of one thread, or without it, there are none.

        ``known``: objects, by number, that an earlier reading has found to be of the log.
        """
        self._store = store
        self._uuid = table_uuid
        self._root = root
        self._alters = alters
        self._pool = pool
        self.place = place
        self.next_number = place.first
        """The first that was missing, or comes next."""
        self.end = place.prev
        self.epoch = 0
        """The last one met."""
        self.objects: list[LogObject] = []
        self.alterations: list[Record] = []
        """The records that were read which say what the table is."""
        self.edit_records: list[Record] = []
        """Those that say edits of tablets; whoever has them takes them out."""
        self.taken_from = root, 0
        """(path, byte offset) of the record that ``records`` gave last."""
        self.read: dict[int, bytes] = {}
        """The objects that were read, by number; whoever has no use for them empties it."""
        self._known = known or {}
        self._waiting: list[tuple[str, int, Record]] = []
        """Records that were not handed out yet."""

    @property
    def through(self) -> int:
        """Replay needs no record of rows with a timestamp <= this."""
        return self.place.through

    @property
    def last_ts(self) -> int:
        return self.end.ts

    @property
    def last_lsn(self) -> int:
        return self.end.lsn

    @property
    def committed_ts(self) -> int:
        """What is there is committed (protocol B2)."""
        return self.end.ts

    @property
    def holds_writes(self) -> bool:
        """Whether there are any to hand out whose keys will be looked for."""
        return any(record.kind == RECORD_KIND_WRITE for _, _, record in self._waiting)

    def close(self) -> None:
        """Records handed out stay valid."""
        self._waiting = []

    # ---- reading ----

    def read_on(self) -> int:
        """Read up to the first number that is missing; how many records that were.

        ``LogChanged``: an object does not follow the one before it, or one is missing behind which there are
        others: TABLE has to be read again.
        """
        before, width = self.last_lsn, 2
        while (told := self._known.get(self.next_number)) is not None:
            self.take_in(self.next_number, told)
        while True:
            wave = range(self.next_number, self.next_number + width)
            found = list(self._fetched(wave))
            for n, data in zip(wave, found, strict=True):
                if data is None:
                    if any(later is not None for later in found[n - wave[0] + 1 :]):
                        data = self._fetch(n)
                        if data is None:
                            raise LogChanged(self._path(n))  # deleted: behind it a fence was kept
                        self.take_in(n, data)
                        break  # those behind it are asked for again, each once more
                    return self.last_lsn - before
                self.take_in(n, data)
            width = min(4 * width, MOST_AT_ONCE)

    def _fetched(self, numbers: range) -> Iterator[bytes | None]:
        if self._pool is None or len(numbers) == 1:
            return map(self._fetch, numbers)
        return self._pool.map(self._fetch, numbers, window=MOST_AT_ONCE)

    def _fetch(self, n: int) -> bytes | None:
        try:
            return self._store.read_bytes(log_name(n), MAX_OBJECT_BYTES)
        except FileNotFoundError:
            return None

    def take_in(self, n: int, data: bytes) -> None:
        """The object with the next number."""
        path = self._path(n)
        header = ObjectHeader.unpack(data, path, self._uuid, n)
        if header.prev != self.end:
            raise LogChanged(path)
        if header.epoch < self.epoch:
            raise Corruption(path, 32, f"epoch {header.epoch} follows {self.epoch}")
        end = self.end
        for offset, record in records_of(header, data, path):
            end = LogEnd(header.put_id, record.ts, record.lsn)
            if record.kind in (RECORD_KIND_EDIT, RECORD_KIND_INGEST):
                self.edit_records.append(record)
            if self._alters(record):
                self.alterations.append(record)
            if record.kind != RECORD_KIND_EDIT and record.ts > self.through:
                self._waiting.append((path, offset, record))
        self.end = LogEnd(header.put_id, end.ts, end.lsn)
        self.epoch = header.epoch
        self.next_number = n + 1
        self.read[n] = data
        fence = len(data) == OBJECT_HEADER.size
        self.objects.append(LogObject(n, header.epoch, self.end, len(data), fence))

    def _path(self, n: int) -> str:
        return f"{self._root}/{log_name(n)}"

    # ---- handing out ----

    def records(self) -> Iterator[Record]:
        """WRITE, INGEST and ALTER records with ts > ``through`` that were not yet handed out, in order."""
        waiting, self._waiting = self._waiting, []
        waiting.reverse()
        while waiting:
            path, offset, record = waiting.pop()
            self.taken_from = path, offset
            yield record

    def place_of(self, lsn: int) -> tuple[str, int]:
        """(path, byte offset) of a record; where it was handed out, of the object that has it."""
        for path, offset, record in self._waiting:
            if record.lsn == lsn:
                return path, offset
        known = next((one for one in self.objects if lsn <= one.end.lsn), None)
        return (self._root, 0) if known is None else (self._path(known.n), 0)


__all__ = ["LogObject", "ObjectTail"]
