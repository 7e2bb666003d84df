"""Selected rows of several rowsets, put together in key order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from kudu_core._ext.keys.merge_plan import merge
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers, in_pieces
from kudu_core.rowset.disk.diskrowset import DiskRowsAt
from kudu_core.rowset.rows.rows_at import RowsAt
from kudu_core.rowset.scan.first_rows import FirstRows
from kudu_core.rowset.scan.scan import FIRST_ROWS, ScanSpec, Selected, scan_rowset
from kudu_core.rowset.scan.scan_counts import ScanCounts

_BLOCK_ROWS = 1 << 14
"""Rows that are decoded at first, of all rowsets together, behind those that were looked for one by one: who
has taken so many will take more."""


def scan_in_order(
    sources: list[RowsAt], spec: ScanSpec, counts: ScanCounts, *, limit: int | None, whole: bool
) -> Iterator[Selected]:
    """All rows that are asked for of some rowsets, in the order of keys.  No key is live in two of them.

    ``limit``: the caller wants no more rows; ``whole``: it wants all there are.  Unless it does, blocks are
    small at first, and grow.
    """
    if not whole:
        first = FirstRows(sources, spec, counts)
        yield from first.blocks(limit)
        if first.after is None:
            return
        wanted = _BLOCK_ROWS
        if limit is not None and spec.filter is None:
            wanted = min(wanted, limit - counts.rows_selected)
        rows = max(FIRST_ROWS, wanted // max(1, counts.rowsets_begun))
        spec = replace(spec, lower=first.after, implied=(False, spec.implied[1]), first_rows=rows)
    yield from merge_ordered(
        [OrderedBlocks(_first_key_of(at, spec), partial(scan_rowset, at, spec, counts)) for at in sources]
    )


def _first_key_of(source: RowsAt, spec: ScanSpec) -> bytes:
    """A key that no row of the rowset which is asked for is below."""
    first = source.rowset.meta.min_key if isinstance(source, DiskRowsAt) else b""
    return first if spec.lower is None else max(first, spec.lower)


@dataclass(slots=True)
class OrderedBlocks:
    """Blocks of one rowset in key order, not begun before its first key is near."""

    first_key: bytes
    """No key of them is below it."""
    begin: Callable[[], Iterator[Selected]]


class _Cursor:
    """Blocks of one rowset: the current one, and how far that is used up."""

    __slots__ = ("at", "block", "blocks", "last_key")

    def __init__(self, ordered: OrderedBlocks) -> None:
        self.blocks = ordered.begin()
        self.block: Selected
        self.at = 0
        self.last_key = b""

    def fill(self) -> bool:
        """Go to the next block that has rows; False after the last one."""
        for block in self.blocks:
            if block.rows:
                assert block.keys is not None
                self.block, self.at, self.last_key = block, 0, block.keys[block.rows - 1]
                return True
        return False

    @property
    def key(self) -> bytes:
        """Of the first row that is left in the block."""
        assert self.block.keys is not None
        return self.block.keys[self.at]

    def take_through(self, bound: EncodedKeys, bound_key: bytes) -> Selected:
        """Rows up to and with the bound, which the current one is not above."""
        block = self.block
        assert block.keys is not None
        if self.last_key <= bound_key:
            stop = block.rows
        else:
            stop = int(block.keys.lower_bound(bound, upper=True)[0])
        first, self.at = self.at, stop
        if first == 0 and stop == block.rows:
            return block
        return Selected(
            stop - first,
            {i: c.slice(first, stop) for i, c in block.columns.items()},
            block.keys.slice(first, stop),
        )


def merge_ordered(rowsets: list[OrderedBlocks]) -> Iterator[Selected]:
    """All rows of all rowsets in key order.  No key is in two of them.

    A heap says which rowset comes next, by its current key or, before it is begun, the first that it may
    have; another one, which of the blocks at hand ends first.  All rows up to that end are at hand once every
    rowset that may have some is begun.  Each step costs as much as the rowsets that have a part in it.
    """
    nearest = [(ordered.first_key, number) for number, ordered in enumerate(rowsets)]
    heapq.heapify(nearest)
    ends: list[tuple[bytes, int]] = []
    cursors: dict[int, _Cursor] = {}

    def enter(number: int) -> None:
        """A block is at hand: of a rowset that is begun, or goes on."""
        cursor = cursors[number]
        heapq.heappush(nearest, (cursor.key, number))
        heapq.heappush(ends, (cursor.last_key, number))

    while nearest:
        taking: list[int] = []
        while nearest and (not ends or nearest[0][0] <= ends[0][0]):
            number = heapq.heappop(nearest)[1]
            if number in cursors:
                taking.append(number)
                continue
            cursors[number] = _Cursor(rowsets[number])
            if cursors[number].fill():
                enter(number)
        if not taking:
            continue
        bound = ends[0][0]
        probe = EncodedKeys.from_list([bound])
        pieces = [cursors[number].take_through(probe, bound) for number in taking]
        while ends and ends[0][0] <= bound:
            heapq.heappop(ends)
        for number in taking:
            cursor = cursors[number]
            if cursor.at < cursor.block.rows:
                heapq.heappush(nearest, (cursor.key, number))
            elif cursor.fill():
                enter(number)
        if len(pieces) == 1:
            yield pieces[0]
        else:
            yield from _interleave(pieces)


def _interleave(pieces: list[Selected]) -> Iterator[Selected]:
    """Blocks whose keys interleave, as one block in key order; as several where one column is too large."""
    keys = []
    for piece in pieces:
        assert piece.keys is not None
        keys.append(piece.keys)
    source, position = merge([(k.data, k.offsets) for k in keys])

    def block(lower: int, upper: int) -> Selected:
        which, rows = source[lower:upper], position[lower:upper]
        columns = {
            i: ColumnBuffers.interleave([piece.columns[i] for piece in pieces], which, rows)
            for i in pieces[0].columns
        }
        return Selected(upper - lower, columns, EncodedKeys.interleave(keys, which, rows))

    for _, _, made in in_pieces(0, len(source), block):
        yield made
