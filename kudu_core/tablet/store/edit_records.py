"""Edits of tablets as records of the log, for tables in object stores (protocol B7).

An EDIT record is one edit of one tablet.  An INGEST record says the edits of all its tablets, by which it is
installed; as their times are its own, which nobody knows before it is appended, they are written with
``OWN_TS`` in the place of these.  docs/protocol-objects.md, "Records", has the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kudu_core.common.format.members import BROKEN, LIMIT, integer, key, parsed
from kudu_core.common.format.names import MAX_TABLET
from kudu_core.errors import Corruption
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.tablet.store import manifest_format as form
from kudu_core.tablet.store import records
from kudu_core.tablet.store.edits import Edit, EditSum, TabletState, taken_apart
from kudu_core.wal import RECORD_KIND_EDIT, Record

OWN_TS = LIMIT - 1
"""In an edit of an INGEST record: the time of the record.  No record gets it as its own."""
HEAD = struct.Struct("<QQ")
"""Tablet, number of the edit."""
assert HEAD.size == 16


class RecordedEdit(NamedTuple):
    """An edit of a tablet, as a record says it."""

    tablet_id: int
    number: int
    edit: Edit


def edit_payload(tablet_id: int, number: int, edit: Edit) -> bytes:
    """The payload of an EDIT record; ``NotSupported``: an entry is larger than a reader takes."""
    text = b"\n".join(form.lines_of(edit.lines()))
    return HEAD.pack(tablet_id, number) + text + b"\n" * (-len(text) % form.ALIGNMENT)


def edit_member(number: int, edit: Edit) -> list[Any]:
    """The edit of one tablet in the JSON of an INGEST record; errors as of ``edit_payload``."""
    lines = list(edit.lines())
    form.lines_of(lines)
    return [number, lines]


def edits_of(record: Record) -> Iterator[RecordedEdit]:
    """What an EDIT or an INGEST record says of tablets; ``Corruption`` names the record."""
    where = f"log record {record.lsn}"
    try:
        if record.kind == RECORD_KIND_EDIT:
            yield _of_payload(bytes(record.payload), where)
            return
        told = records.decode_extra(record.payload, where, 0).get("edits", {})
        for tablet, (number, lines) in told.items():
            edit = stamped(_edit(lines, where), record.ts)
            yield RecordedEdit(key(tablet, 1, MAX_TABLET), integer(number, 1), edit)
    except (*BROKEN, struct.error) as exc:
        raise Corruption(where, 0, f"edit: {exc!r:.200}") from exc


def _of_payload(payload: bytes, where: str) -> RecordedEdit:
    tablet_id, number = HEAD.unpack_from(payload)
    lines = [parsed(line) for line in payload[HEAD.size :].split(b"\n") if line]
    return RecordedEdit(integer(tablet_id, 1, MAX_TABLET), integer(number, 1), _edit(lines, where))


def _edit(lines: Sequence[Mapping[str, Any]], where: str) -> Edit:
    checkpoint, edit, retired = taken_apart(lines, where, 0)
    if checkpoint or retired or not lines:
        raise ValueError("a record has one edit, and no sum of edits")
    return edit


def stamped(edit: Edit, ts: int) -> Edit:
    """An edit with a time in the place of ``OWN_TS``."""
    return replace(
        edit,
        add=tuple(_stamped_meta(meta, ts) for meta in edit.add),
        ingests_durable=_stamp(edit.ingests_durable, ts),
        mark=_stamp(edit.mark, ts),
    )


def _stamp(known: int, ts: int) -> int:
    return ts if known == OWN_TS else known


def _stamped_meta(meta: RowSetMeta, ts: int) -> RowSetMeta:
    return replace(
        meta,
        insert_ts=None if meta.insert_ts is None else _stamp(meta.insert_ts, ts),
        max_insert_ts=_stamp(meta.max_insert_ts, ts),
        durable=_stamp(meta.durable, ts),
        redo=tuple(_stamped_delta(ref, ts) for ref in meta.redo),
    )


def _stamped_delta(ref: DeltaRef, ts: int) -> DeltaRef:
    if ref.record_ts != OWN_TS:
        return ref
    return replace(ref, min_ts=ts, max_ts=ts, record_ts=ts)


class LoggedEdits:
    """What the edits of a log add up to, by tablet, on top of snapshots."""

    def __init__(self, snapshots: Mapping[int, TabletState], listed: Collection[int] | None = None) -> None:
        """``listed``: the tablets that there are.  Those of others were purged, and their snapshots with
        them, so their edits are left out.  None: all are."""
        self._listed = listed
        self._before = dict(snapshots)
        self._sums: dict[int, EditSum] = {}
        self._numbers = {tablet_id: state.number for tablet_id, state in snapshots.items()}

    def add(self, record: Record) -> None:
        """The edits of a record; ``Corruption`` where they do not follow those before (protocol B7)."""
        for tablet_id, number, edit in edits_of(record):
            if self._listed is not None and tablet_id not in self._listed:
                continue
            known = self._numbers.get(tablet_id, 0)
            if number <= known:
                continue  # the snapshot has it
            where = f"log record {record.lsn}"
            if number != known + 1:
                raise Corruption(where, 0, f"edit {number} of tablet {tablet_id} follows edit {known}")
            sum_ = self._sums.get(tablet_id)
            if sum_ is None:
                sum_ = self._sums[tablet_id] = EditSum(self._before.get(tablet_id, TabletState()))
            try:
                sum_.add(edit)
            except KeyError as exc:
                reason = f"edit {number} of tablet {tablet_id} removes rowset {exc}, which is not there"
                raise Corruption(where, 0, reason) from exc
            self._numbers[tablet_id] = number

    def state_of(self, tablet_id: int, epoch: int) -> TabletState:
        """The state of a tablet, as of an opener of that epoch."""
        sum_ = self._sums.get(tablet_id)
        if sum_ is None:
            return replace(self._before.get(tablet_id, TabletState()), epoch=epoch)
        return sum_.state(self._numbers[tablet_id], epoch)


__all__ = ["OWN_TS", "LoggedEdits", "RecordedEdit", "edit_member", "edit_payload", "edits_of", "stamped"]
