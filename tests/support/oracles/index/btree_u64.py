"""What ``_ext.index.btree_u64`` means, in the fewest words Python allows.  Slow on purpose."""

from __future__ import annotations


class BTreeU64:
    def __init__(self) -> None:
        self.keys: list[int] = []

    def insert_sorted(self, keys: list[int]) -> None:
        self.keys = sorted(self.keys + keys)

    def range(self, lower: int, upper: int) -> list[int]:
        return [key for key in self.keys if lower <= key < upper]
