"""What ``_ext.index.rowid_map`` means: a dict from rowid to the number of its last change."""

from __future__ import annotations

NONE = 0xFFFFFFFF


class RowidMap:
    def __init__(self) -> None:
        self.last: dict[int, int] = {}

    def exchange(self, rowids: list[int], first: int) -> list[int]:
        before = []
        for number, rowid in enumerate(rowids, first):
            before.append(self.last.get(rowid, NONE))
            self.last[rowid] = number
        return before

    def find(self, rowids: list[int]) -> list[int]:
        return [self.last.get(rowid, NONE) for rowid in rowids]
