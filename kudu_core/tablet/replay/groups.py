"""Records that a replay lays into tablets as if they were one.

Most of what a record costs a replay is paid for each tablet that it touches, however few rows it has
there.  Records that follow one another and are of the same kind are looked up together and laid together,
each row at the time of its own record.  A key may come again where each time but the first is an UPDATE:
that goes where the key lives already, or where the group has inserted it.  What comes out is what one record
after the other gives; whatever is not so plain is left to that (``bootstrap``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import Laying, Moved, key_batch, values_only
from kudu_core.tablet.store.tablet import Tablet
from kudu_core.tablet.view.view import KeyBatch, locate_newest

FIRST_RECORDS, MOST_RECORDS = 16, 1024
"""Of a group: what is tried first, and at most."""

GROUP_BYTES = 4 << 20
"""Of the payloads of a group: beyond it a record's rows cost more than its look-ups."""

SINGLE_RECORDS = 64
"""So many records go one by one after a group that came to nothing; twice as many after the next such one."""


class GroupSize:
    """How many records are tried together: more where that goes well, none for a while where it does not."""

    def __init__(self) -> None:
        self._size = FIRST_RECORDS
        self._single = 0
        self._penalty = SINGLE_RECORDS

    def next_size(self) -> int:
        """Records to be tried together; 1: the next goes alone."""
        if self._single:
            self._single -= 1
            return 1
        return self._size

    def tried(self, size: int, laid: int) -> None:
        """Of ``size`` records, ``laid`` were laid together."""
        if laid == size:
            self._size = min(MOST_RECORDS, 2 * self._size) if size == self._size else self._size
            self._penalty = SINGLE_RECORDS
        elif laid > 1:
            self._size = max(2, min(self._size, 2 * laid))
        else:
            self._size = FIRST_RECORDS
            self._single = self._penalty
            self._penalty = min(2 * self._penalty, 64 * SINGLE_RECORDS)


class GroupRecord(NamedTuple):
    """One WRITE of a group."""

    ts: int
    payload: records.Payload


@dataclass(slots=True)
class GroupRows:
    """The rows of one kind of a group, those of a tablet in the order of the records."""

    op: int
    block: RowBlock
    tablets: np.ndarray
    """(n,) int64: their ids."""
    records: np.ndarray
    """(n,) int64: the numbers of their records in the group."""
    keys: EncodedKeys
    hashes: np.ndarray

    def take(self, rows: np.ndarray) -> GroupRows:
        """Those rows, (n,) int64, in that order."""
        return GroupRows(
            self.op,
            self.block.take(rows),
            self.tablets[rows],
            self.records[rows],
            self.keys.take(rows),
            self.hashes[rows],
        )

    def sorted_by_tablet(self) -> GroupRows:
        if (self.tablets[1:] >= self.tablets[:-1]).all():
            return self
        return self.take(np.argsort(self.tablets, kind="stable"))

    def by_tablet(self) -> Iterator[tuple[int, int, int]]:
        """(tablet, first row, row after its last), of sorted ones."""
        begins = np.flatnonzero(np.diff(self.tablets, prepend=-1)).tolist()
        for begin, end in pairwise([*begins, len(self.tablets)]):
            yield int(self.tablets[begin]), begin, end


def same_kinds(found: Sequence[GroupRecord]) -> int:
    """How many of the first records have no more kinds of rows than one of inserts and one of changes."""
    kinds: dict[bool, tuple[int, frozenset[int]]] = {}
    for number, record in enumerate(found):
        of_record = {}
        for section in record.payload.sections:
            is_insert = section.op == records.RECORD_INSERT
            kind = section.op, frozenset(section.block.columns)
            if is_insert in of_record or kinds.get(is_insert, kind) != kind:
                return number
            of_record[is_insert] = kind
        kinds |= of_record
    return len(found)


def gathered(schema: Schema, found: Sequence[GroupRecord]) -> tuple[int, list[GroupRows]]:
    """(how many of the first records may go together; their rows).

    ``found``: of the same kinds.
    """
    parts: dict[int, list[tuple[RowBlock, np.ndarray, int]]] = {}
    for number, record in enumerate(found):
        ids = np.array(record.payload.tablets, np.int64)
        for section in record.payload.sections:
            parts.setdefault(section.op, []).append((section.block, ids[section.tablets], number))
    every = []
    for op, of_op in parts.items():
        blocks, tablets, numbers = zip(*of_op, strict=True)
        block = RowBlock.concat(blocks)
        batch = key_batch(schema, block)
        of_rows = np.repeat(np.array(numbers), [part.rows for part in blocks])
        every.append(GroupRows(op, block, np.concatenate(tablets), of_rows, batch.keys, batch.hashes))
    count = _plain(every, len(found))
    if count < len(found):
        every = [rows.take(np.flatnonzero(rows.records < count)) for rows in every]
    return count, every


def _plain(every: Sequence[GroupRows], count: int) -> int:
    """How many of the first records have no key again, as far as hashes tell, but in an UPDATE of a later
    record."""
    hashes = np.concatenate([rows.hashes for rows in every])
    order = np.argsort(hashes)
    same = np.zeros(len(order) + 1, bool)
    same[1:-1] = hashes[order[1:]] == hashes[order[:-1]]
    again = order[same[1:] | same[:-1]]
    if not len(again):
        return count
    numbers = np.concatenate([rows.records for rows in every])[again]
    updates = np.concatenate([np.full(len(rows.records), rows.op == records.RECORD_UPDATE) for rows in every])
    order = np.lexsort((numbers, hashes[again]))
    hashes, numbers, updates = hashes[again[order]], numbers[order], updates[again[order]]
    wrong = (hashes[1:] == hashes[:-1]) & ~(updates[1:] & (numbers[1:] > numbers[:-1]))
    return int(numbers[1:][wrong].min(initial=count))


def group_layings(
    schema: Schema, tablets: Mapping[int, Tablet], found: Sequence[GroupRecord], every: Sequence[GroupRows]
) -> list[tuple[Laying, int]] | None:
    """What lays rows that were ``gathered`` into tablets, with room made for them, and the last of their
    times; None: their records are to go one by one."""
    times = np.array([record.ts for record in found], np.uint64)
    parts: dict[int, list[tuple[GroupRows, np.ndarray, int, int]]] = {}
    for rows in sorted(every, key=lambda rows: rows.op != records.RECORD_INSERT):
        rows = rows.sorted_by_tablet()
        of_rows = times[rows.records]
        for tablet_id, lower, upper in rows.by_tablet():
            if tablet_id in tablets:
                parts.setdefault(tablet_id, []).append((rows, of_rows, lower, upper))
    layings = []
    for tablet_id, of_tablet in parts.items():
        # Files may hold what is not newer than their mark; here nothing is asked but what lives where.
        tablet = tablets[tablet_id]
        if any(int(of_rows[lower]) <= tablet.state.mark for _, of_rows, lower, _ in of_tablet):
            return None
        laying = _reserved(schema, tablet, of_tablet)
        if laying is None:
            return None
        layings.append((laying, max(int(of_rows[upper - 1]) for _, of_rows, _, upper in of_tablet)))
    return layings


def _reserved(
    schema: Schema, tablet: Tablet, parts: Sequence[tuple[GroupRows, np.ndarray, int, int]]
) -> Laying | None:
    """The laying of rows of one tablet: each part is rows, the times of all of them, and which are meant."""
    while True:
        laying = Laying(tablet)
        try:
            for rows, times, lower, upper in parts:
                if not _added(schema, laying, tablet, rows, times, lower, upper):
                    return None
            laying.reserve()
        except Moved:
            continue
        except StoreFull:
            return None  # one of them may be what is too much
        return laying


def _added(
    schema: Schema,
    laying: Laying,
    tablet: Tablet,
    rows: GroupRows,
    times: np.ndarray,
    lower: int,
    upper: int,
) -> bool:
    """Give rows of one kind to a laying, inserts first; False where their keys live elsewhere than plain
    records say."""
    batch = KeyBatch(rows.keys.slice(lower, upper), rows.hashes[lower:upper])
    homes = locate_newest(tablet.view, batch)
    block, times = rows.block.slice(lower, upper), times[lower:upper]
    if rows.op == records.RECORD_INSERT:
        if (homes.store >= 0).any() or (homes.ghost >= 0).any():
            return False
        laying.insert_group(block, batch, times)
        return True
    new = np.flatnonzero(~homes.live)
    if len(new):
        at = laying.inserted(batch.take(new))
        if at is None:
            return False
        homes.store[new], homes.row[new] = 0, at
    known = schema.by_id
    values = {i: c for i, c in values_only(schema, block).items() if i in known}
    laying.change(rows.op, homes.store, homes.row, values, times)
    return True


__all__ = ["GROUP_BYTES", "GroupRecord", "GroupSize", "gathered", "group_layings", "same_kinds"]
