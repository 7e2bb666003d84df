"""The changes of one stretch of time, of all stores, in the order of their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.ordering import stable_order
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.rowset.history.history import RowSetHistory
from kudu_core.rowset.history.straight import StraightHistory
from kudu_core.rowset.history.window import EVENT_DELETED, Events
from kudu_core.table.changes.change_batches import BATCH_ROWS
from kudu_core.table.changes.change_blocks import ChangeBlock


@dataclass(slots=True)
class _Span:
    """Changes of one store, or of one file of it: what is known of them before their images are made."""

    timestamps: np.ndarray
    ops: np.ndarray
    first: int
    last: int
    """Least and greatest timestamp."""
    alone: bool = True
    """Their times overlap those of no other one."""

    @staticmethod
    def of(timestamps: np.ndarray, ops: np.ndarray) -> _Span:
        return _Span(timestamps, ops, int(timestamps.min()), int(timestamps.max()))

    @property
    def order(self) -> np.ndarray | None:
        """That of their times, where nothing else must be put among them."""
        return stable_order(self.timestamps) if self.alone else None


class Teller:
    """What one rowset tells of a stretch: straight, or as events."""

    def __init__(self, history: RowSetHistory) -> None:
        self._history = history
        self._straight: list[StraightHistory] | None = history.straight()
        self._events: Events | None = None
        if self._straight is not None:
            stores = [told for part in self._straight for told in part.stores]
            self.spans = [_Span.of(told.timestamps, told.ops) for told in stores]
        else:
            self._events = history.events()
            self.spans = [_Span.of(self._events.timestamps, self._events.ops)] if len(self._events) else []

    def __len__(self) -> int:
        return sum(len(span.ops) for span in self.spans)

    @property
    def deletes(self) -> bool:
        """Whether some row is deleted."""
        return any(bool((span.ops == EVENT_DELETED).any()) for span in self.spans)

    def events(self) -> tuple[RowSetHistory, Events]:
        """All of it, by row and time."""
        if self._events is None:
            self._events = self._history.events()
        return self._history, self._events

    def blocks(
        self, after: Sequence[StoredColumn], before: Sequence[StoredColumn]
    ) -> Iterator[tuple[_Span, ChangeBlock]]:
        """The changes with their images, those of a span that is alone by time."""
        orders = [span.order for span in self.spans]
        images: list[tuple[dict[int, ColumnBuffers], dict[int, ColumnBuffers]]] = []
        if self._straight is not None:
            for part in self._straight:
                mine = orders[len(images) : len(images) + len(part.stores)]
                new = part.images(after, mine, before=False)
                images += zip(new, part.images(before, mine, before=True), strict=True)
        else:
            history, events = self.events()
            images = [
                (history.after(events, after, order), history.before(events, before, order))
                for order in orders
            ]
        for span, order, (new_image, old_image) in zip(self.spans, orders, images, strict=True):
            times, ops = span.timestamps, span.ops
            if order is not None:
                times, ops = times[order], ops[order]
            yield span, ChangeBlock(times, ops, new_image, old_image)


def in_order(
    tellers: Sequence[Teller], after: Sequence[StoredColumn], before: Sequence[StoredColumn]
) -> list[ChangeBlock]:
    """All changes in the order of their times, with the images that are asked for.

    Where the times of files do not overlap, nothing is sorted or joined: the cells of large blocks are those
    of the files.
    """
    groups = _groups([span for teller in tellers for span in teller.spans])
    made = {id(span): block for teller in tellers for span, block in teller.blocks(after, before)}
    blocks: list[ChangeBlock] = []
    waiting: list[ChangeBlock] = []
    for group in groups:
        block = ChangeBlock.concat([made.pop(id(span)) for span in group])
        if len(group) > 1:
            block = block.by_time()
        waiting.append(block)
        if sum(map(len, waiting)) >= BATCH_ROWS:
            blocks.append(ChangeBlock.concat(waiting))
            waiting = []
    if waiting:
        blocks.append(ChangeBlock.concat(waiting))
    return blocks


def _groups(spans: list[_Span]) -> list[list[_Span]]:
    """Spans by time, together where their times overlap."""
    groups: list[list[_Span]] = []
    last = -1
    for span in sorted(spans, key=lambda span: (span.first, span.last)):
        if span.first >= last:
            groups.append([span])
        else:
            groups[-1].append(span)
        last = max(last, span.last)
    for group in groups:
        for span in group:
            span.alone = len(group) == 1
    return groups


__all__ = ["Teller", "in_order"]
