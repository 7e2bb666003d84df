"""What the runs of a distributed write come to in one tablet, in plain values that travel as JSON.

A task finds it (``table/jobs/resolve.py``); the commit takes it in where it still holds
(``table/ingest/accept.py``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kudu_core.common.format.members import BROKEN, flag, integer
from kudu_core.common.format.names import staged_file, staged_path
from kudu_core.errors import Corruption
from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta

MAX_BY_KEY_BYTES = 4 << 30
"""Of what one tablet's resolution leaves as a list of changes by key."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the runs of one tablet come to, in files of the job's folder.  Picklable."""

    tablet_id: int
    """0: of one that the commit will make (protocol G7)."""
    ordinal: int
    """Of the tablet's partition."""
    schema_version: int
    cut: int
    """P: the state that it rests on."""
    seen: tuple[int, ...]
    """Ids of the rowsets of that state."""
    runs: tuple[str, ...]
    """Names of the runs that are in it, which must be all that the tablet has."""
    rowsets: tuple[tuple[str, RowSetMeta], ...]
    """(file, entry): names and ids are given when it is taken in."""
    deltas: tuple[tuple[int, str, DeltaRef], ...]
    """(rowset, file, entry)."""
    by_key: tuple[str, int, int] | None
    """Changes of rows that only memory held: (file, bytes, CRC-32C)."""
    counts: tuple[int, int, int, int]
    undecided: bool
    """Some row came to nothing because of what was there."""

    @property
    def files(self) -> tuple[FileRef, ...]:
        """Container files that it names, by their places in the job's folder."""
        files = [(path, meta.base) for path, meta in self.rowsets]
        files += [(path, ref.file) for _, path, ref in self.deltas]
        return tuple(FileRef.of(path, file) for path, file in files)

    def to_bytes(self) -> bytes:
        return json.dumps(
            {
                "tablet": self.tablet_id,
                "ordinal": self.ordinal,
                "schema_version": self.schema_version,
                "cut": self.cut,
                "seen": list(self.seen),
                "runs": list(self.runs),
                "rowsets": [[path, meta.to_json()] for path, meta in self.rowsets],
                "deltas": [[i, path, ref.to_json()] for i, path, ref in self.deltas],
                "by_key": self.by_key,
                "counts": list(self.counts),
                "undecided": self.undecided,
            },
            separators=(",", ":"),
        ).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Resolution:
        try:
            value = json.loads(data)
            inserted, updated, deleted, ignored = map(integer, value["counts"])
            by_key = value["by_key"]
            return Resolution(
                tablet_id=integer(value["tablet"]),
                ordinal=integer(value["ordinal"]),
                schema_version=integer(value["schema_version"]),
                cut=integer(value["cut"]),
                seen=tuple(map(integer, value["seen"])),
                runs=tuple(map(staged_file, value["runs"])),
                rowsets=tuple((staged_path(p), RowSetMeta.from_json(meta)) for p, meta in value["rowsets"]),
                deltas=tuple(
                    (integer(i), staged_path(p), DeltaRef.from_json(ref)) for i, p, ref in value["deltas"]
                ),
                by_key=None if by_key is None else _by_key(*by_key),
                counts=(inserted, updated, deleted, ignored),
                undecided=flag(value["undecided"]),
            )
        except BROKEN as exc:
            raise Corruption("a task's answer", 0, f"{exc!r:.200}") from exc


def _by_key(path: Any, size: Any, crc: Any) -> tuple[str, int, int]:
    return staged_path(path), integer(size), integer(crc, 0, 1 << 32)


__all__ = ["MAX_BY_KEY_BYTES", "Resolution"]
