"""``TABLE``: what is true of the table as a whole, one small file that is replaced whole.

A header and JSON; docs/format.md, "TABLE", has the bytes and the members.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kudu_core._ext.crc32c import crc32c
from kudu_core.common.partitions import PartitionSchema
from kudu_core.common.schema import Schema
from kudu_core.errors import Corruption, NotSupported
from kudu_core.options import Options

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

MAGIC = b"KUDUTBL\x01"
VERSION = 1
HEADER = struct.Struct("<8sHHIII")
assert HEADER.size == 24
MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Token:
    """The last write of one idempotent writer."""

    version: int
    ts: int
    counts: tuple[int, int, int, int]
    """Inserted, updated, deleted, ignored."""


@dataclass(frozen=True, slots=True)
class TabletEntry:
    """A tablet as TABLE lists it."""

    id: int
    partition: int
    """Its ordinal in the partition schema."""
    created_ts: int
    dropped_ts: int | None = None


@dataclass(frozen=True, slots=True)
class TableState:
    """The contents of TABLE.  Replaced, never changed."""

    uuid: bytes
    epoch: int
    options: Options
    schemas: tuple[Schema, ...]
    """Every version, oldest first."""
    partitions: PartitionSchema
    tablets: tuple[TabletEntry, ...]
    tokens: dict[str, Token] = field(default_factory=dict)
    applied_ts: int = 0
    """Last record whose schema, partition and token effects are in here."""
    clean_end: int = 0
    """Last lsn after a clean close, 0 while the table is open or was not closed."""

    @property
    def schema(self) -> Schema:
        return self.schemas[-1]

    def to_bytes(self) -> bytes:
        body = json.dumps(
            {
                "uuid": self.uuid.hex(),
                "epoch": self.epoch,
                "options": self.options.to_json(),
                "schemas": [s.to_json() for s in self.schemas],
                "partitions": self.partitions.to_json(),
                "tablets": [[t.id, t.partition, t.created_ts, t.dropped_ts] for t in self.tablets],
                "tokens": {
                    base64.b64encode(app.encode()).decode(): [t.version, t.ts, *t.counts]
                    for app, t in self.tokens.items()
                },
                "applied_ts": self.applied_ts,
                "clean_end": self.clean_end,
            },
            separators=(",", ":"),
        ).encode()
        return HEADER.pack(MAGIC, VERSION, 0, len(body), _crc(VERSION, 0, body), 0) + body


def read_state(fs: FileSystem, path: str) -> TableState:
    """Read and check TABLE; ``FileNotFoundError`` when there is none."""
    data = fs.read_bytes(path, MAX_BYTES)
    if len(data) < HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise Corruption(path, 0, "not a TABLE file")
    _, version, flags, length, crc, zero = HEADER.unpack_from(data)
    body = data[HEADER.size :]
    if len(body) != length or _crc(version, flags, body) != crc or zero:
        raise Corruption(path, 8, "the checksum or the length does not match")
    if version > VERSION or flags:
        raise NotSupported(
            f"{path} has format version {version} (flags {flags}); this library reads up to {VERSION}"
        )
    try:
        value = json.loads(body)
        schemas = tuple(map(Schema.from_json, value["schemas"]))
        return TableState(
            uuid=bytes.fromhex(value["uuid"]),
            epoch=int(value["epoch"]),
            options=Options.from_json(value["options"]),
            schemas=schemas,
            partitions=PartitionSchema.from_json(value["partitions"], schemas[-1]),
            tablets=tuple(
                TabletEntry(int(i), int(p), int(c), None if d is None else int(d))
                for i, p, c, d in value["tablets"]
            ),
            tokens={
                base64.b64decode(app).decode(): Token(int(v), int(ts), _counts(counts))
                for app, (v, ts, *counts) in value["tokens"].items()
            },
            applied_ts=int(value["applied_ts"]),
            clean_end=int(value["clean_end"]),
        )
    except (KeyError, TypeError, ValueError, IndexError) as exc:
        raise Corruption(path, HEADER.size, f"broken contents: {exc!r}") from exc


def _counts(counts: list[Any]) -> tuple[int, int, int, int]:
    inserted, updated, deleted, ignored = map(int, counts)
    return inserted, updated, deleted, ignored


def _crc(version: int, flags: int, body: bytes) -> int:
    """Over everything but the checksum itself."""
    head = HEADER.pack(MAGIC, version, flags, len(body), 0, 0)
    return crc32c(body, crc32c(head))


def tablet_directory(root: str, tablet_id: int) -> str:
    return f"{root}/tablets/{tablet_id:08d}"


__all__ = [
    "TableState",
    "TabletEntry",
    "Token",
    "read_state",
    "replace",
    "tablet_directory",
]
