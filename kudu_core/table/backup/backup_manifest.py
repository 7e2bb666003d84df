"""A folder of backups: which there are, what each says of itself, and which ones one state needs.

``<folder>/<number>/BACKUP`` and the runs beside it; docs/format-table.md, "Backups", has the bytes and the
members.  A backup appears by one rename of its whole folder, so what has its name is complete.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.common.format import members
from kudu_core.common.format.envelope import HEADER, Envelope
from kudu_core.common.format.members import integer, integer_or_none
from kudu_core.common.format.names import BACKUP, backup_of_folder, staged_file
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.clock import micros_of, time_of, timestamp_of
from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Corruption, InvalidArgument, NotSupported, TableNotFound, shown
from kudu_core.fs.base import NoFolder, temporary_of
from kudu_core.options import Options
from kudu_core.table.backup.backup_file import BackupFile

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

ENVELOPE = Envelope(magic=b"KUDUBAK\x01", version=1, other="not the manifest of a backup")
MANIFEST = BACKUP
LOCK = "LOCK"
OPERATIONS = ("insert", "update", "delete")
MAX_BYTES = 256 << 20
"""Of a manifest."""
MAX_NUMBER = 99_999_999
"""Of a backup in its folder, whose name has eight digits."""
_POINTS_SHOWN = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupResult:
    """One backup of a table: all rows at a moment, or what changed since an earlier backup.

    >>> stock.backup(folder).inserted
    3
    """

    folder: str
    """Where it is, with the backups that it needs."""
    number: int
    """From 1, in the order in which they were made."""
    timestamp: int
    """The moment that it holds: ``restore(at=...)``, and ``since`` of the next one."""
    since: int | None
    """``timestamp`` of the backup that it continues; None: it is a full one."""
    inserted: int
    updated: int
    deleted: int
    """Rows in it; a full one has only inserted ones."""
    total: int
    """Rows that the table had at that moment."""
    bytes: int
    """Of its files."""


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """The contents of one BACKUP file."""

    uuid: bytes
    """The table's."""
    timestamp: int
    since: int | None
    schema: Schema
    partitions: PartitionSchema
    options: Options
    counts: tuple[int, int, int]
    """Inserted, updated, deleted."""
    total: int
    runs: tuple[BackupFile, ...]
    number: int = 0
    """By the folder's name."""

    def to_bytes(self) -> bytes:
        body = json.dumps(
            {
                "uuid": self.uuid.hex(),
                "timestamp": self.timestamp,
                "since": self.since,
                "schema": self.schema.to_json(),
                "partitions": self.partitions.to_json(),
                "options": self.options.to_json(),
                "counts": list(self.counts),
                "total": self.total,
                "runs": [[run.name, run.rows, run.size, run.crc] for run in self.runs],
            },
            separators=(",", ":"),
        ).encode()
        if HEADER.size + len(body) > MAX_BYTES:
            raise NotSupported(
                f"a backup of {len(self.runs):,} files: its manifest would have {HEADER.size + len(body):,} "
                f"bytes, and has at most {MAX_BYTES:,}; copy the table's folder instead"
            )
        return ENVELOPE.around(body)

    def arrow_schema(self) -> pa.Schema:
        """Of its runs: the operation, where it is no full one, then the table's columns."""
        keys = set(self.schema.key_ids)
        whole = self.since is None
        fields = [] if whole else [pa.field(OP_COLUMN, pa.string(), False)]
        for column in self.schema.columns:
            nullable = column.nullable or (not whole and column.id not in keys)
            fields.append(pa.field(column.name, column.type.arrow, nullable))
        return pa.schema(fields)

    def directory(self, folder: str) -> str:
        return f"{folder}/{self.number:08d}"

    def result(self, folder: str) -> BackupResult:
        inserted, updated, deleted = self.counts
        return BackupResult(
            folder=folder,
            number=self.number,
            timestamp=self.timestamp,
            since=self.since,
            inserted=inserted,
            updated=updated,
            deleted=deleted,
            total=self.total,
            bytes=sum(run.size for run in self.runs),
        )

    def __str__(self) -> str:
        return f"{self.timestamp} ({time_of(self.timestamp)})"


def read_manifests(fs: FileSystem, folder: str, *, in_store: bool = False) -> list[BackupManifest]:
    """All backups in a folder, in the order in which they were made; ``Corruption`` names a damaged one.

    ``in_store``: in an object store, where a number without a manifest is no backup yet.
    """
    numbers = [backup_of_folder(name) for name in fs.listdir(folder)]
    found: list[BackupManifest] = []
    for number in numbers:
        if number is None:
            continue
        try:
            found.append(read_manifest(fs, folder, number))
        except _Missing:
            if not in_store:
                raise
    return found


class _Missing(Corruption):
    """There is no manifest."""


def read_manifest(fs: FileSystem, folder: str, number: int) -> BackupManifest:
    """What one backup says of itself; ``Corruption`` when it is damaged."""
    path = f"{folder}/{number:08d}/{MANIFEST}"
    try:
        data = fs.read_bytes(path, MAX_BYTES)
    except (FileNotFoundError, NoFolder):
        raise _Missing(path, 0, "the backup's manifest is missing") from None
    return replace(_parsed(path, data), number=number)


def foreign_name(name: str) -> bool:
    """Whether nothing of a folder of backups is called so."""
    return name != LOCK and not name.startswith(".") and backup_of_folder(name) is None


def is_unfinished(name: str) -> bool:
    """Whether a folder is called as one of a backup that has not come to its end."""
    wanted = temporary_of(name)
    return wanted is not None and backup_of_folder(wanted) is not None


def needed(folder: str, manifests: list[BackupManifest], last: BackupManifest) -> list[BackupManifest]:
    """The full backup that ``last`` goes back to, and what continues it up to ``last``, in order."""
    chain = [last]
    while chain[-1].since is not None:
        wanted, uuid = chain[-1].since, last.uuid
        before = [m for m in manifests if m.timestamp == wanted and m.uuid == uuid and m is not chain[-1]]
        if not before or wanted >= chain[-1].timestamp:
            raise Corruption(
                folder, 0, f"backup {chain[-1].number} continues one of {wanted}, which is not there: a gap"
            )
        # Of a full one and one that continues another, both of this moment, the full one needs no others.
        chain.append(min(before, key=lambda m: m.since is not None))
    return chain[::-1]


def check_runs(fs: FileSystem, folder: str, manifest: BackupManifest) -> None:
    """``Corruption`` where a run is missing or of another size; reads none."""
    for run in manifest.runs:
        path = f"{manifest.directory(folder)}/{run.name}"
        try:
            size = fs.stat(path).size
        except FileNotFoundError:
            raise Corruption(path, 0, "the backup's file is missing") from None
        if size != run.size:
            reason = f"the backup's file has {size} bytes, its writer wrote {run.size}"
            raise Corruption(path, min(size, run.size), reason)


def chosen(folder: str, manifests: list[BackupManifest], at: Any) -> BackupManifest:
    """The backup that ``restore(at=...)`` means: the newest for None."""
    if not manifests:
        raise TableNotFound(f"there is no backup at {folder}; make one with Table.backup")
    if at is None:
        return manifests[-1]
    if isinstance(at, BackupResult):
        found = [m for m in manifests if m.number == at.number and m.timestamp == at.timestamp]
    elif isinstance(at, datetime):
        if at.tzinfo is None:
            raise InvalidArgument(f"{at!r} has no time zone; say which")
        found = [m for m in manifests if micros_of(m.timestamp) == (at - _EPOCH) // timedelta(microseconds=1)]
    elif (wanted := timestamp_of(at)) is not None:
        found = [m for m in manifests if m.timestamp == wanted]
    else:
        raise InvalidArgument(f"at is the timestamp of a backup, or what backup returned, not {shown(at)}")
    if not found:
        raise InvalidArgument(f"no backup in {folder} is of {shown(at)}; {points(manifests)}")
    return found[-1]


def points(manifests: list[BackupManifest]) -> str:
    """Which moments may be restored, for a message."""
    shown = ", ".join(str(m) for m in manifests[-_POINTS_SHOWN:])
    more = len(manifests) - _POINTS_SHOWN
    return f"there are {shown}" + (f" and {more} before" if more > 0 else "")


def _parsed(path: str, data: bytes) -> BackupManifest:
    body = ENVELOPE.body(path, data)
    try:
        value = members.parsed(body)
        schema = Schema.from_json(value["schema"])
        inserted, updated, deleted = map(integer, value["counts"])
        manifest = BackupManifest(
            uuid=bytes.fromhex(value["uuid"]),
            timestamp=integer(value["timestamp"]),
            since=integer_or_none(value["since"]),
            schema=schema,
            partitions=PartitionSchema.from_json(value["partitions"], schema),
            options=Options.from_json(value["options"]),
            counts=(inserted, updated, deleted),
            total=integer(value["total"]),
            runs=tuple(
                BackupFile(staged_file(name), integer(rows), integer(size), integer(crc))
                for name, rows, size, crc in value["runs"]
            ),
        )
        if sum(run.rows for run in manifest.runs) != sum(manifest.counts):
            raise ValueError("the runs hold other rows than the counts say")
    except (*members.BROKEN, InvalidArgument) as exc:
        raise Corruption(path, HEADER.size, f"broken contents: {exc!r:.200}") from exc
    return manifest


__all__ = ["BackupManifest", "BackupResult", "chosen", "needed", "read_manifest", "read_manifests"]
