"""How many changes are put together at a time: by number, and by the bytes of their images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kudu_core.common.schema.schema import StoredColumn
from kudu_core.rowset.history.image_bytes import image_bytes, row_bytes
from kudu_core.table.changes.change_blocks import Store

_DIVISOR = 4
"""Of the memory limit: images are made of pieces, put together, and handed out."""
_LEAST_BYTES, _MOST_BYTES = 4 << 20, 1 << 30


def budget_bytes(memory_limit_bytes: int) -> int:
    """What the images of a piece of changes may take, one column after the other and all together."""
    return max(_LEAST_BYTES, min(memory_limit_bytes // _DIVISOR, _MOST_BYTES))


def most_images(
    stores: Iterable[tuple[Store, int]], columns: Sequence[StoredColumn], budget: int, most: int
) -> int:
    """How many rows of these columns, ``most`` at most, come to about ``budget`` bytes.

    ``stores``: each with how many of its rows are asked for.
    """
    asked = [(store, count) for store, count in stores if count]
    if sum(min(count, most) * row_bytes(store) for store, count in asked) <= budget:
        return most  # files need not be looked into
    each = max((image_bytes(store, columns) for store, _ in asked), default=0.0)
    return most if each * most <= budget else max(1, int(budget / each))


__all__ = ["budget_bytes", "most_images"]
