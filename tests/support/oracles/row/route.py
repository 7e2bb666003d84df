"""What ``_ext.row.route`` means: cut the key, hash some cells, look between which bounds others lie."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.oracles.keys import hashing

Column = tuple[int, int, bool]
Cell = int | bytes


def encode(columns: Sequence[Column], cells: Sequence[Cell]) -> bytes:
    """docs/format.md, "Encoded keys"."""
    out = b""
    for i, ((kind, width, _), cell) in enumerate(zip(columns, cells, strict=True)):
        if isinstance(cell, bytes):
            out += cell if i == len(columns) - 1 else cell.replace(b"\0", b"\0\1") + b"\0\0"
        else:
            out += (cell + (0 if kind == hashing.UNSIGNED else 1 << 8 * width - 1)).to_bytes(width, "big")
    return out


def route(
    columns: Sequence[Column],
    hashes: Sequence[tuple[Sequence[int], int, int]],
    ranged: Sequence[int],
    cuts: Sequence[bytes],
    owners: Sequence[int],
    cells: Sequence[Cell],
) -> int:
    ordinal, buckets = 0, 1
    for positions, count, seed in hashes:
        for i in positions:
            kind, width, long_decimal = columns[i]
            if kind == hashing.DECIMAL and not long_decimal:
                kind = hashing.SIGNED
                cell = (int(cells[i]) + (1 << 63)) % (1 << 64) - (1 << 63)
                seed = hashing.chain(hashing.spark_bytes(kind, 8, cell), seed)
            else:
                seed = hashing.chain(hashing.spark_bytes(kind, width, cells[i]), seed)
        ordinal = ordinal * count + hashing.bucket(seed, count)
        buckets *= count
    if ranged:
        encoded = encode([columns[i] for i in ranged], [cells[i] for i in ranged])
        owner = owners[sum(cut <= encoded for cut in cuts)]
        return -1 if owner < 0 else owner * buckets + ordinal
    return ordinal
