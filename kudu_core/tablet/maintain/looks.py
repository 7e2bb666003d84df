"""What a lane saw of the tablets, kept for as long as it works through them.

To look at a tablet takes some microseconds.  Were all looked at before each operation, the time of the looks
would grow with the square of the tablets.  Here a tablet is looked at again before an operation of it begins
and once one was done; the others once, and once more when nothing seems to be left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from kudu_core.tablet.maintain.scoring import Operation
from kudu_core.tablet.store.tablet import Tablet


class Looks:
    """The operations that were found in each tablet.  Of one thread, while it works through a table."""

    def __init__(
        self,
        tablets: Callable[[], Sequence[Tablet]],
        look: Callable[[Sequence[Tablet]], list[Operation]],
    ) -> None:
        """``tablets``: those of now; ``look``: what could be done to some of them."""
        self._tablets = tablets
        self._look = look
        self._found: dict[int, list[Operation]] | None = None
        """By tablet; None: nobody has looked."""
        self._changed: set[int] = set()
        """Ids of the tablets of which an operation was given out since the last look at them."""

    @property
    def changed(self) -> list[Tablet]:
        """The tablets of which an operation was given out since the last look at them."""
        return [tablet for tablet in self._tablets() if tablet.id in self._changed]

    def best(self, pick: Callable[[list[Operation]], Operation | None]) -> Operation | None:
        """What ``pick`` chooses of all that can be done, as it is now; None: there is nothing for it.

        ``pick`` may also choose what is of no tablet.
        """
        while True:
            tablets = self._tablets()
            is_whole = self._found is None or len(self._changed) >= len(tablets)
            if is_whole:
                self._found = {}
                self._look_at(tablets)
            else:
                self._look_again(self._changed)
            self._changed.clear()
            assert self._found is not None
            chosen = pick([op for found in self._found.values() for op in found])
            if chosen is None and is_whole:
                return None
            if chosen is None:
                self._found = None  # others may have made work in what nobody has looked at since
                continue
            if not is_whole and chosen.tablet_id in self._found:
                self._look_again((chosen.tablet_id,))
                now = [op for op in self._found.get(chosen.tablet_id, ()) if _is_same(op, chosen)]
                if not now:
                    continue  # others have done it
                chosen = now[0]
            self._changed.add(chosen.tablet_id)
            return chosen

    def _look_again(self, tablet_ids: Collection[int]) -> None:
        assert self._found is not None
        for tablet_id in tablet_ids:
            self._found.pop(tablet_id, None)  # the tablet may have been purged
        if tablet_ids:
            self._look_at([tablet for tablet in self._tablets() if tablet.id in tablet_ids])

    def _look_at(self, tablets: Sequence[Tablet]) -> None:
        assert self._found is not None
        for op in self._look(tablets):
            self._found.setdefault(op.tablet_id, []).append(op)


def _is_same(op: Operation, other: Operation) -> bool:
    """Whether they do the same; what that frees and gains may have changed."""
    return (op.kind, op.rowsets) == (other.kind, other.rowsets)


__all__ = ["Looks"]
