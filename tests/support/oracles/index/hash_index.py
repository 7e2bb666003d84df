"""What ``_ext.index.hash_index`` means, in the fewest words Python allows.  Slow on purpose."""

from __future__ import annotations


class KeyTable:
    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.hashes: list[int] = []
        self.ordinals: dict[bytes, int] = {}

    def append(self, keys: list[bytes], hashes: list[int]) -> int:
        first = len(self.keys)
        for key, key_hash in zip(keys, hashes, strict=True):
            assert key not in self.ordinals
            self.ordinals[key] = len(self.keys)
            self.keys.append(key)
            self.hashes.append(key_hash)
        return first

    def find(self, key: bytes, limit: int) -> int:
        ordinal = self.ordinals.get(key, -1)
        return ordinal if ordinal < limit else -1
