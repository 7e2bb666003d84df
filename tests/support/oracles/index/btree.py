"""What ``_ext.index.btree`` means, in the fewest words Python allows.  Slow on purpose."""

from __future__ import annotations


class BTree:
    """Knows the keys themselves, by ordinal."""

    def __init__(self, keys: list[bytes]) -> None:
        self.keys = keys
        self.ordinals: list[int] = []

    def insert_sorted(self, ordinals: list[int]) -> None:
        self.ordinals = sorted(self.ordinals + ordinals, key=self.keys.__getitem__)

    def range(
        self, lower: bytes | None, upper: bytes | None, limit: int, most: int | None = None
    ) -> list[int]:
        return [
            ordinal
            for ordinal in self.ordinals
            if ordinal < limit
            and (lower is None or lower <= self.keys[ordinal])
            and (upper is None or self.keys[ordinal] < upper)
        ][:most]
