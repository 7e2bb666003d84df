"""What TABLE says of a table in an object store and of no other: where its log begins, and its snapshots.

The members are those of docs/protocol-objects.md, "TABLE, version 2".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kudu_core.common.format.members import integer, text
from kudu_core.common.format.names import MAX_TABLET, snapshot_file

PUT_ID_BYTES = 16
MAX_SNAPSHOT_BYTES = 4 << 30
"""Of a snapshot of a tablet."""


class SnapshotRef(NamedTuple):
    """The object that has what the edits of a tablet added up to.  ``name`` is one in the tablet's folder."""

    name: str
    size: int
    crc: int
    """CRC-32C of the object."""
    number: int
    """Of its last edit."""

    @staticmethod
    def from_json(value: Any) -> SnapshotRef:
        name, size, crc, number = value
        return SnapshotRef(
            snapshot_file(name),
            integer(size, 1, MAX_SNAPSHOT_BYTES + 1),
            integer(crc, 0, 1 << 32),
            integer(number, 1),
        )


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Replaced, never changed."""

    put_id: bytes
    """Of this TABLE: new in each put, so that no two have the same bytes."""
    log_first: int = 1
    """The number of the object at which the log begins."""
    log_prev: tuple[bytes, int, int] = (bytes(PUT_ID_BYTES), 0, 0)
    """Put id, timestamp and lsn of the object before it."""
    through: int = 0
    """Replay needs no record of rows with a timestamp at or below it."""
    snapshots: Mapping[int, SnapshotRef] = field(default_factory=dict)
    """By tablet; one that is not there has no snapshot yet."""
    restore: str = ""
    """Of a table that is not whole yet, and nobody else's to open: of which backup it is being made."""

    def without(self, tablets: Collection[int]) -> StorePlace:
        """As it is when these are no longer the table's: their snapshots go with them."""
        kept = {tablet: ref for tablet, ref in self.snapshots.items() if tablet not in tablets}
        return replace(self, snapshots=kept)

    def to_json(self) -> dict[str, Any]:
        put_id, ts, lsn = self.log_prev
        return {
            "put_id": self.put_id.hex(),
            "log_first": self.log_first,
            "log_prev": [put_id.hex(), ts, lsn],
            "through": self.through,
            "snapshots": [[tablet, *ref] for tablet, ref in sorted(self.snapshots.items())],
            **({"restore": self.restore} if self.restore else {}),
        }

    @staticmethod
    def from_json(value: Any) -> StorePlace:
        """Raises what is in ``members.BROKEN``."""
        put_id, ts, lsn = value["log_prev"]
        snapshots = {}
        for tablet, *ref in value["snapshots"]:
            if tablet in snapshots:
                raise ValueError(f"tablet {tablet!r:.60} has two snapshots")
            snapshots[integer(tablet, 1, MAX_TABLET)] = SnapshotRef.from_json(ref)
        return StorePlace(
            put_id=id_of(value["put_id"]),
            log_first=integer(value["log_first"], 1),
            log_prev=(id_of(put_id), integer(ts), integer(lsn)),
            through=integer(value["through"]),
            snapshots=snapshots,
            restore=text(value.get("restore", "")),
        )


def id_of(value: Any) -> bytes:
    """A put id as JSON has it."""
    made = bytes.fromhex(text(value))
    if len(made) != PUT_ID_BYTES:
        raise ValueError(f"a put id has {PUT_ID_BYTES} bytes, not {len(made)}")
    return made


__all__ = ["MAX_SNAPSHOT_BYTES", "PUT_ID_BYTES", "SnapshotRef", "StorePlace", "id_of"]
