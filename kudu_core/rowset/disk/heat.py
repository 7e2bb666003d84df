"""How often the changed columns of a rowset are scanned: what maintenance weighs, and nothing rests on."""

from __future__ import annotations

from collections.abc import Iterable


class Heat:
    """Scans of a good part of a rowset by column, since the changes of the column were last folded.

    Counted by readers of this process, without a lock: that one of them gets lost does not matter.
    """

    __slots__ = ("_scans",)

    def __init__(self) -> None:
        self._scans: dict[int, int] = {}

    def note(self, column_ids: Iterable[int]) -> None:
        """A scan of columns that are changed."""
        for column_id in column_ids:
            self._scans[column_id] = self._scans.get(column_id, 0) + 1

    def scans(self, column_id: int) -> int:
        return self._scans.get(column_id, 0)

    def forget(self, column_ids: Iterable[int]) -> None:
        """Their changes are folded: others may be of less use."""
        for column_id in column_ids:
            self._scans.pop(column_id, None)


__all__ = ["Heat"]
