"""What a manifest says of a rowset and its files: plain values, to and from JSON."""

from __future__ import annotations

import base64
from binascii import a2b_base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kudu_core.common.names import data_file, staged_file
from kudu_core.common.stored import BROKEN, integer, integer_or_none, key
from kudu_core.errors import Corruption


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file by its name in the tablet's directory, with what must be true of it."""

    name: str
    size: int
    footer_crc: int

    def to_json(self) -> list[Any]:
        return [self.name, self.size, self.footer_crc]

    @staticmethod
    def from_json(value: Any) -> FileRef:
        name, size, crc = value
        return FileRef(data_file(name), integer(size), integer(crc, 0, 1 << 32))

    @staticmethod
    def staged(value: Any) -> FileRef:
        """Of a job's folder, where attempts choose the names."""
        name, size, crc = value
        return FileRef(staged_file(name), integer(size), integer(crc, 0, 1 << 32))


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
            "updates": {str(k): v for k, v in self.updates.items()},
        }

    @staticmethod
    def from_json(value: Any) -> DeltaRef:
        first, last = value["ts"]
        return DeltaRef(
            file=FileRef.from_json(value["file"]),
            entries=integer(value["entries"], 0, 1 << 32),
            min_ts=integer(first),
            max_ts=integer(last),
            record_ts=integer_or_none(value["record_ts"]),
            liveness=integer(value["liveness"], 0, 1 << 32),
            updates={key(k): integer(v, 0, 1 << 32) for k, v in value["updates"].items()},
        )


@dataclass(frozen=True, slots=True)
class ColumnsRef:
    """A file that holds some columns of a rowset anew, in place of the base's (major delta compaction)."""

    file: FileRef
    column_ids: tuple[int, ...]

    def to_json(self) -> list[Any]:
        return [self.file.to_json(), list(self.column_ids)]

    @staticmethod
    def from_json(value: Any) -> ColumnsRef:
        file, ids = value
        return ColumnsRef(FileRef.from_json(file), tuple(integer(i, -(1 << 31)) for i in ids))


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
    columns: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Statistics by column id: stored bytes, null count, smallest and largest value."""

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
            "columns": dict(self.columns),
        }

    @staticmethod
    def from_json(value: Any) -> RowSetMeta:
        min_key, max_key = value["keys"]
        return RowSetMeta(
            id=integer(value["id"]),
            base=FileRef.from_json(value["base"]),
            rows=integer(value["rows"], 1, 1 << 32),
            min_key=a2b_base64(min_key, strict_mode=True),
            max_key=a2b_base64(max_key, strict_mode=True),
            insert_ts=integer_or_none(value["insert_ts"]),
            max_insert_ts=integer(value["max_insert_ts"]),
            durable=integer(value["D"]),
            redo=tuple(map(DeltaRef.from_json, value["redo"])),
            undo=tuple(map(DeltaRef.from_json, value["undo"])),
            replaced=tuple(map(ColumnsRef.from_json, value.get("replaced", ()))),
            columns={_column_id(k): _statistics(v) for k, v in value["columns"].items()},
        )

    @property
    def files(self) -> tuple[FileRef, ...]:
        columns = (c.file for c in self.replaced)
        return (self.base, *columns, *(d.file for d in self.redo), *(d.file for d in self.undo))

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def stale_bytes(self, column_ids: Collection[int], beside: Collection[int] = ()) -> int:
        """What columns take in these files that nobody reads any more, about: of each replaced column the
        older cells, taken to be as large as the newer ones, and all of those not among ``column_ids``.

        ``beside``: columns counted as if they were replaced too.
        """
        replaced = {i for columns in self.replaced for i in columns.column_ids}.union(beside)
        return sum(
            (i in replaced) * size + (i not in column_ids) * size
            for i, size in ((i, int(statistics["bytes"])) for i, statistics in self.columns.items())
        )


@lru_cache(4096)
def _column_id(text: str) -> int:
    """Each rowset's entry names the same few."""
    return key(text, -(1 << 31))


def _statistics(value: Any) -> dict[str, Any]:
    # A manifest of 1,000 rowsets has some 10,000 of these, read before anything else is: not by calls.
    if type(value) is not dict:
        raise ValueError(f"statistics of a column are an object, not {value!r:.60}")
    size, nulls = value["bytes"], value["null_count"]
    if not (type(size) is int and type(nulls) is int and 0 <= size < 1 << 48 and 0 <= nulls < 1 << 32):
        raise ValueError(f"statistics of a column: {size!r:.60} bytes, {nulls!r:.60} nulls")
    return value


def parse(path: str, offset: int, value: Any) -> RowSetMeta:
    """A manifest's rowset, or ``Corruption`` that names the manifest and the edit's offset."""
    try:
        return RowSetMeta.from_json(value)
    except BROKEN as exc:
        raise Corruption(path, offset, f"rowset entry: {exc!r:.200}") from exc
