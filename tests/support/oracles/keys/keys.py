"""What ``_ext.keys.keys`` means, in the fewest words Python allows.  Slow on purpose."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

UNSIGNED, SIGNED, BINARY, DECIMAL = 0, 1, 3, 4

Type = tuple[int, int]
"""(kind, width)"""
Cell = int | bytes


def encode(types: Sequence[Type], row: Sequence[Cell]) -> bytes:
    key = b""
    for i, ((kind, width), cell) in enumerate(zip(types, row, strict=True)):
        if isinstance(cell, int):
            key += (cell + (0 if kind == UNSIGNED else 1 << 8 * width - 1)).to_bytes(width, "big")
        elif i == len(types) - 1:
            key += cell
        else:
            key += cell.replace(b"\0", b"\0\1") + b"\0\0"
    return key


def decode(types: Sequence[Type], key: bytes) -> tuple[list[Cell], int]:
    """The cells and where they end; where the bytes are no key, ValueError with the place."""
    row: list[Cell] = []
    at = 0
    for i, (kind, width) in enumerate(types):
        if kind != BINARY:
            if at + width > len(key):
                raise ValueError(at)
            number = int.from_bytes(key[at : at + width], "big")
            row.append(number - (0 if kind == UNSIGNED else 1 << 8 * width - 1))
            at += width
        elif i == len(types) - 1:
            row.append(key[at:])
            at = len(key)
        else:
            cell = b""
            while key[at : at + 2] != b"\0\0":
                if at + 1 >= len(key) and (at == len(key) or key[at] == 0):
                    raise ValueError(at)
                if key[at] == 0 and key[at + 1] != 1:
                    raise ValueError(at)
                cell += key[at : at + 1]
                at += 1 if key[at] else 2
            row.append(cell)
            at += 2
    if at != len(key):
        raise ValueError(at)
    return row, at


def order(keys: Sequence[bytes]) -> int:
    if list(keys) != sorted(keys):
        return 0
    return 2 if len(set(keys)) == len(keys) else 1


def same(keys: Sequence[bytes]) -> list[int]:
    return [int(at > 0 and key == keys[at - 1]) for at, key in enumerate(keys)]


def interleave(
    parts: Sequence[Sequence[bytes]], source: Sequence[int], position: Sequence[int]
) -> list[bytes]:
    return [parts[part][at] for part, at in zip(source, position, strict=True)]


def sort(keys: Sequence[bytes]) -> list[int]:
    return sorted(range(len(keys)), key=keys.__getitem__)


def lower_bound(keys: Sequence[bytes], probes: Sequence[bytes], upper: bool) -> list[int]:
    return [(bisect_right if upper else bisect_left)(keys, probe) for probe in probes]


def group(keys: Sequence[bytes]) -> tuple[list[int], list[int]]:
    distinct = list(dict.fromkeys(keys))
    return [distinct.index(key) for key in keys], [list(keys).index(key) for key in distinct]
