"""Selected rows of several rowsets, put together in key order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kudu_core._ext.keys.merge import merge
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers, in_pieces
from kudu_core.rowset.scan.scan import Selected


@dataclass(slots=True)
class OrderedBlocks:
    """Blocks of one rowset in key order, not begun before its first key is near."""

    first_key: bytes
    """No key of them is below it."""
    begin: Callable[[], Iterator[Selected]]


class _Cursor:
    """Blocks that have begun: the current one and how far that is used up."""

    __slots__ = ("at", "block", "blocks", "last_key")

    def __init__(self, ordered: OrderedBlocks) -> None:
        self.blocks = ordered.begin()
        self.block: Selected | None = None
        self.at = 0
        self.last_key = b""

    def fill(self) -> bool:
        """Make sure that the current block has rows; False after the last one."""
        while self.block is None or self.at == self.block.rows:
            self.block = next(self.blocks, None)
            if self.block is None:
                return False
            self.at = 0
            assert self.block.keys is not None
            self.last_key = self.block.keys[self.block.rows - 1]
        return True

    def take_through(self, bound: EncodedKeys, bound_key: bytes) -> Selected | None:
        """Rows up to and with the bound."""
        block = self.block
        assert block is not None and block.keys is not None
        if self.last_key <= bound_key:
            stop = block.rows
        else:
            stop = int(block.keys.lower_bound(bound, upper=True)[0])
        if stop <= self.at:
            return None
        first, self.at = self.at, stop
        if first == 0 and stop == block.rows:
            return block
        return Selected(
            stop - first,
            {i: c.slice(first, stop) for i, c in block.columns.items()},
            block.keys.slice(first, stop),
        )


def merge_ordered(rowsets: list[OrderedBlocks]) -> Iterator[Selected]:
    """All rows of all rowsets in key order.  No key is in two of them."""
    waiting = sorted(rowsets, key=lambda ordered: ordered.first_key, reverse=True)
    active: list[_Cursor] = []
    while waiting or active:
        if not active:
            active.append(_Cursor(waiting.pop()))
        active = [cursor for cursor in active if cursor.fill()]
        if not active:
            continue
        bound = min(cursor.last_key for cursor in active)
        if waiting and waiting[-1].first_key <= bound:
            active.append(_Cursor(waiting.pop()))
            continue
        probe = EncodedKeys.from_list([bound])
        pieces = [p for p in (cursor.take_through(probe, bound) for cursor in active) if p is not None]
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
