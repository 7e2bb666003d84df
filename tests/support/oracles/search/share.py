"""What ``_ext.search.share`` means."""

from __future__ import annotations

from itertools import takewhile


def below(keys: list[bytes], rowsets: list[tuple[int, int, int]]) -> list[float]:
    """Bytes at or below each key; ``rowsets``: (first key, last key, bytes)."""
    return [sum(part(keys, rowset, number) for rowset in rowsets) for number in range(len(keys))]


def part(keys: list[bytes], rowset: tuple[int, int, int], key: int) -> float:
    first, last, weight = rowset
    if key < first:
        return 0.0
    if key >= last:
        return float(weight)
    if key == first:
        return 0.0
    pairs = zip(keys[first], keys[last], strict=False)
    skip = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    low, high, at = (head(keys[k][skip:]) for k in (first, last, key))
    return weight * (at - low) / (high - low) if high > low else weight / 2


def head(key: bytes) -> int:
    return int.from_bytes(key[:8].ljust(8, b"\0"), "big")
