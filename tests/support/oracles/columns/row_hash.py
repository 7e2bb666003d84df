"""What ``_ext.columns.row_hash`` and ``common.idempotence.fingerprint`` mean: XXH64 chained over a row's
cells, and sums. Slow on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import xxhash

WORD = (1 << 64) - 1


def cell_hash(seed: int, column_id: int, cell: bytes | None) -> int:
    """The hash of a row so far, and one more cell of it."""
    if cell is None:
        return int(xxhash.xxh64_intdigest(b"", (seed + 2 * column_id + 1) & WORD))
    return int(xxhash.xxh64_intdigest(cell, (seed + 2 * column_id) & WORD))


def mixed(row_hash: int) -> int:
    return int(xxhash.xxh64_intdigest(row_hash.to_bytes(8, "little"), 0))


def row_hash(operation: int, cells: Mapping[int, bytes | None]) -> int:
    """``cells``: physical bytes by column id, None for NULL."""
    value = int(xxhash.xxh64_intdigest(operation.to_bytes(8, "little"), 0))
    for column_id in sorted(cells):
        value = cell_hash(value, column_id, cells[column_id])
    return value


def fingerprint(rows: Iterable[tuple[int, Mapping[int, bytes | None]]]) -> tuple[int, int, int]:
    """(rows, sum, sum of the mixed) of rows given as (operation, cells)."""
    hashes = [row_hash(operation, cells) for operation, cells in rows]
    return len(hashes), sum(hashes) & WORD, sum(map(mixed, hashes)) & WORD


def text_fingerprint(text: str) -> tuple[int, int, int]:
    """Of a write that is no list of rows."""
    value = int(xxhash.xxh64_intdigest(text.encode(), 0))
    return 0, value, mixed(value)
