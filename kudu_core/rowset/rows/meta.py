"""What a manifest says of a rowset and its files: plain values, to and from JSON."""

from __future__ import annotations

import base64
from binascii import a2b_base64
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kudu_core.cfile.columns.specs import MAX_ROWS
from kudu_core.cfile.columns.statistics import (
    MAX_BLOCK_BYTES,
    FileStatistics,
    StatisticsBlock,
    StatisticsRef,
    spans_of,
)
from kudu_core.cfile.columns.statistics import to_json as statistics_json
from kudu_core.cfile.pages.container import HEADER, SECTION_FRAME
from kudu_core.common.format.members import BROKEN, integer, integer_or_none
from kudu_core.common.format.names import data_file, staged_file
from kudu_core.errors import Corruption

if TYPE_CHECKING:
    from kudu_core.cfile.files.delta_format import DeltaMeta
    from kudu_core.cfile.files.rows_format import RowsMeta
    from kudu_core.cfile.pages.container import FileMeta


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file by its name in the tablet's directory, with what must be true of it."""

    name: str
    size: int
    footer_crc: int
    tail: int = 0
    """Bytes from the copies of its sections to its end, 0 where there are none: see ``FileMeta``."""

    @staticmethod
    def of(name: str, written: FileMeta | RowsMeta | DeltaMeta | FileRef) -> FileRef:
        return FileRef(name, written.size, written.footer_crc, written.tail)

    def to_json(self) -> list[Any]:
        return [self.name, self.size, self.footer_crc, *([self.tail] if self.tail else [])]

    @staticmethod
    def from_json(value: Any) -> FileRef:
        return FileRef(data_file(value[0]), *_sizes_from_json(value))

    @staticmethod
    def staged(value: Any) -> FileRef:
        """Of a job's folder, where attempts choose the names."""
        return FileRef(staged_file(value[0]), *_sizes_from_json(value))


def _sizes_from_json(value: Any) -> tuple[int, int, int]:
    _, size, crc, *rest = value
    (tail,) = rest or (0,)
    return integer(size), integer(crc, 0, 1 << 32), integer(tail, 0, size + 1)


COLUMN_IDS = 1 << 31
"""Column ids lie below."""
COUNTS = MAX_ROWS + 1
"""Numbers of rows and of entries lie below."""
MAX_COLUMNS = 1 << 20
"""Of one file: what a list of spans may come to."""
_PLAIN_IDS = 64
"""Spans that come to no more are a dict: looked up on the way of every scan."""


_MOST_DELTA_BYTES, _MOST_SPAN_BYTES, _MOST_COLUMNS_BYTES = 400, 40, 4000
"""As JSON: a delta file without its columns, a span of columns, statistics and what is beside."""


class NumbersByColumn(Mapping[int, int]):
    """Numbers by column id, equal for neighbours: a change of a thousand columns is one span."""

    __slots__ = ("_firsts", "_spans")

    def __init__(self, spans: Sequence[tuple[int, int, int]]) -> None:
        """``spans``: (first, last, number), ascending."""
        self._spans = spans
        self._firsts = [span[0] for span in spans]

    def __getitem__(self, column_id: int) -> int:
        place = bisect_right(self._firsts, column_id) - 1
        if place < 0 or column_id > self._spans[place][1]:
            raise KeyError(column_id)
        return self._spans[place][2]

    def __iter__(self) -> Iterator[int]:
        return (i for first, last, _ in self._spans for i in range(first, last + 1))

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last, _ in self._spans)


def _spans_json(numbers: Mapping[int, int]) -> list[list[int]]:
    spans: list[list[int]] = []
    for column_id, number in sorted(numbers.items()):
        if spans and spans[-1][1] == column_id - 1 and spans[-1][2] == number:
            spans[-1][1] = column_id
        else:
            spans.append([column_id, column_id, number])
    return spans


def _spans_from_json(value: Any) -> Mapping[int, int]:
    spans, ids, least = [], 0, 0
    for first, last, number in value:
        integer(first, least, COLUMN_IDS), integer(last, first, COLUMN_IDS)
        integer(number, 0, COUNTS)
        least = last + 1
        ids += least - first
        spans.append((first, last, number))
    if ids > MAX_COLUMNS:
        raise ValueError(f"a file of {ids} columns")
    found = NumbersByColumn(spans)
    return dict(found) if ids <= _PLAIN_IDS else found


@dataclass(frozen=True, slots=True)
class DeltaRef:
    """A DeltaFile and the statistics by which a reader skips it without opening it."""

    file: FileRef
    entries: int
    min_ts: int
    max_ts: int
    record_ts: int | None
    """The one timestamp of all entries when the file stores none: its ingest record's."""
    liveness: int
    """Entries that remove or revive a row."""
    updates: Mapping[int, int]
    """Updates by column id."""

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file.to_json(),
            "entries": self.entries,
            "ts": [self.min_ts, self.max_ts],
            "record_ts": self.record_ts,
            "liveness": self.liveness,
            "updates": _spans_json(self.updates),
        }

    @staticmethod
    def from_json(value: Any) -> DeltaRef:
        first, last = value["ts"]
        return DeltaRef(
            file=FileRef.from_json(value["file"]),
            entries=integer(value["entries"], 0, COUNTS),
            min_ts=integer(first),
            max_ts=integer(last),
            record_ts=integer_or_none(value["record_ts"]),
            liveness=integer(value["liveness"], 0, COUNTS),
            updates=_spans_from_json(value["updates"]),
        )


@dataclass(frozen=True, slots=True)
class ColumnsRef:
    """A file that holds some columns of a rowset anew, in place of the base's (major delta compaction)."""

    file: FileRef
    column_ids: tuple[int, ...]
    """Those that are read from it; it may hold others that stand anew elsewhere."""
    statistics: FileStatistics | None = None

    def to_json(self) -> list[Any]:
        ids = [list(span) for span in spans_of(self.column_ids)]
        return [self.file.to_json(), ids, statistics_json(self.statistics)]

    @staticmethod
    def from_json(value: Any) -> ColumnsRef:
        file, ids, statistics = value
        column_ids = tuple(i for first, last in _id_spans(ids) for i in range(first, last + 1))
        return ColumnsRef(FileRef.from_json(file), column_ids, statistics_from_json(statistics))


def statistics_from_json(value: Any) -> FileStatistics | None:
    """What ``cfile.columns.statistics.to_json`` made; ``ValueError`` or ``TypeError`` for anything else."""
    if value is None:
        return None
    if isinstance(value, str):
        return StatisticsBlock(a2b_base64(value, strict_mode=True))
    offset, length, crc, ids = value
    return StatisticsRef(
        integer(offset, HEADER.size),
        integer(length, SECTION_FRAME.size, MAX_BLOCK_BYTES),
        integer(crc, 0, 1 << 32),
        _id_spans(ids),
    )


def _id_spans(value: Any) -> tuple[tuple[int, int], ...]:
    """Spans of column ids: (first, last), ascending, and not too many."""
    spans = [(first, last) for first, last in value]
    ids, least = 0, 0
    for first, last in spans:
        integer(first, least, COLUMN_IDS), integer(last, first, COLUMN_IDS)
        least = last + 1
        ids += least - first
    if ids > MAX_COLUMNS:
        raise ValueError(f"a file of {ids} columns")
    return tuple(spans)


@dataclass(frozen=True, slots=True)
class RowSetMeta:
    """A DiskRowSet as its tablet's manifest describes it."""

    id: int
    base: FileRef
    rows: int
    min_key: bytes
    max_key: bytes
    """Encoded keys of the first and the last row."""
    insert_ts: int | None
    """The one insert time of all rows, or None when the file has a column of them."""
    max_insert_ts: int
    durable: int
    """D: the files hold every change of these rows at or below it, and none above."""
    redo: tuple[DeltaRef, ...] = ()
    """Oldest first."""
    undo: tuple[DeltaRef, ...] = ()
    """Newest first."""
    replaced: tuple[ColumnsRef, ...] = ()
    """Files whose columns stand in place of the base's; no column is in two of them."""
    statistics: FileStatistics | None = None
    """Of the base's columns, as they were written."""

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "base": self.base.to_json(),
            "rows": self.rows,
            "keys": [base64.b64encode(k).decode() for k in (self.min_key, self.max_key)],
            "insert_ts": self.insert_ts,
            "max_insert_ts": self.max_insert_ts,
            "D": self.durable,
            "redo": [d.to_json() for d in self.redo],
            "undo": [d.to_json() for d in self.undo],
            "replaced": [c.to_json() for c in self.replaced],
            "statistics": statistics_json(self.statistics),
        }

    @staticmethod
    def from_json(value: Any) -> RowSetMeta:
        min_key, max_key = value["keys"]
        return RowSetMeta(
            id=integer(value["id"]),
            base=FileRef.from_json(value["base"]),
            rows=integer(value["rows"], 1, COUNTS),
            min_key=a2b_base64(min_key, strict_mode=True),
            max_key=a2b_base64(max_key, strict_mode=True),
            insert_ts=integer_or_none(value["insert_ts"]),
            max_insert_ts=integer(value["max_insert_ts"]),
            durable=integer(value["D"]),
            redo=tuple(map(DeltaRef.from_json, value["redo"])),
            undo=tuple(map(DeltaRef.from_json, value["undo"])),
            replaced=tuple(map(ColumnsRef.from_json, value.get("replaced", ()))),
            statistics=statistics_from_json(value["statistics"]),
        )

    @property
    def files(self) -> tuple[FileRef, ...]:
        columns = (c.file for c in self.replaced)
        return (self.base, *columns, *(d.file for d in self.redo), *(d.file for d in self.undo))

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def column_ids(self) -> frozenset[int]:
        """The columns of which statistics tell."""
        found = frozenset(() if self.statistics is None else self.statistics.column_ids)
        return found.union(*(c.column_ids for c in self.replaced if c.statistics is not None))

    @property
    def most_bytes(self) -> int:
        """More than its line in a manifest can take."""
        deltas = sum(_MOST_DELTA_BYTES + _MOST_SPAN_BYTES * len(d.updates) for d in (*self.redo, *self.undo))
        columns = sum(_MOST_COLUMNS_BYTES + _MOST_SPAN_BYTES * len(c.column_ids) for c in self.replaced)
        keys = 2 * (len(self.min_key) + len(self.max_key))
        return _MOST_COLUMNS_BYTES + _MOST_SPAN_BYTES * len(self.column_ids) + keys + deltas + columns

    def without_statistics(self) -> RowSetMeta:
        replaced = tuple(replace(columns, statistics=None) for columns in self.replaced)
        return replace(self, statistics=None, replaced=replaced)

    def column_bytes(self, column_id: int) -> int:
        """What the newest cells of a column take, about: of a file whose statistics are in it, an equal
        share for each column."""
        for columns in self.replaced:
            if column_id in columns.column_ids:
                return _bytes_of(columns.file, columns.statistics, column_id)
        return _bytes_of(self.base, self.statistics, column_id)

    def stale_bytes(self, column_ids: Collection[int], beside: Collection[int] = ()) -> int:
        """What columns take in these files that nobody reads any more, about: of each replaced column the
        older cells, taken to be as large as the newer ones, and all of those not among ``column_ids``.

        ``beside``: columns counted as if they were replaced too.
        """
        known = self.column_ids
        newest = {i: columns for columns in reversed(self.replaced) for i in columns.column_ids}
        replaced = known.intersection(newest.keys() | beside)
        dropped = known.difference(column_ids)
        found = 0
        for column_id in (*replaced, *dropped):
            file = newest.get(column_id)
            if file is None:
                found += _bytes_of(self.base, self.statistics, column_id)
            else:
                found += _bytes_of(file.file, file.statistics, column_id)
        return found


def _bytes_of(file: FileRef, statistics: FileStatistics | None, column_id: int) -> int:
    if isinstance(statistics, StatisticsBlock):
        return statistics.stored_bytes(column_id)
    if statistics is None or not statistics.has(column_id):
        return 0
    return file.size // len(statistics.column_ids)


def parse(path: str, offset: int, value: Any) -> RowSetMeta:
    """A manifest's rowset, or ``Corruption`` that names the manifest and the edit's offset."""
    try:
        return RowSetMeta.from_json(value)
    except BROKEN as exc:
        raise Corruption(path, offset, f"rowset entry: {exc!r:.200}") from exc
