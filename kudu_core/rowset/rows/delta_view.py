"""What one store of changes says at one snapshot, and how it is laid over decoded columns.

A ``DeltaView`` is one store (a DeltaMemStore, the changes of a MemRowSet, a REDO or an UNDO
file) together with the snapshot; the reader asks the views of a rowset in their order and applies
what they give.  Nothing here knows where the stores come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kudu_core._ext.changes import delta
from kudu_core._ext.changes.replay import Updates, replay, replay_at
from kudu_core.common.rows.rowblock import ColumnBuffers, check_size, too_large

TOGETHER_BYTES = 64 << 20
"""Of new values of a variable column that are copied so that the column is copied once."""


class DeltaView(Protocol):
    """The changes of one store that one snapshot sees, in the order in which they apply."""

    def touches(self, column_id: int) -> bool:
        """False only if no change of this view sets the column."""
        ...

    def changes_liveness(self) -> bool:
        """False only if no change of this view removes or revives a row."""
        ...

    def updates(self, column_id: int, lower: int, upper: int) -> tuple[np.ndarray, ColumnBuffers] | None:
        """(rowids uint32, new values) of rows ``[lower, upper)``; of equal rowids the last wins."""
        ...

    def liveness(self, lower: int, upper: int) -> tuple[np.ndarray, np.ndarray] | None:
        """(rowids uint32, 1 = present / 0 = absent) of rows ``[lower, upper)``; the last wins."""
        ...

    def parts(self, column_id: int, lower: int, upper: int) -> list[Updates] | None:
        """Pieces in which all updates of rows ``[lower, upper)`` are, beside others, in their order.

        None: the column is not one of fixed width, ask ``updates``.  What the store keeps decoded is handed
        out as it is, so this costs little beside laying it over.
        """
        ...

    def liveness_parts(self, lower: int, upper: int) -> list[Updates]:
        """The same of which rows are present, one byte each."""
        ...

    def updates_of(self, column_id: int, rows: np.ndarray) -> tuple[np.ndarray, ColumnBuffers] | None:
        """Like ``updates``, of at least these single rows, (n,) int64."""
        ...

    def liveness_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Like ``liveness``, of at least these single rows, (n,) int64."""
        ...


def patch(
    base: ColumnBuffers, first_row: int, rowids: np.ndarray, new: ColumnBuffers, *, owned: bool
) -> ColumnBuffers:
    """Lay updates over the values of rows ``first_row .. first_row + base.length``.

    ``owned`` says that ``base`` may be written.  Returns the patched column, which is owned.
    ``ColumnTooLarge``: ask for fewer rows.
    """
    validity = base.validity
    if validity is not None or new.validity is not None:
        if validity is None:
            validity = np.full((base.length + 7) // 8, 0xFF, np.uint8)
        elif not owned:
            validity = validity.copy()
        delta.apply_bits(validity, base.length, first_row, rowids, new.validity)
    if base.width:
        values = base.values if owned else base.values.copy()
        delta.apply_fixed(values, base.width, first_row, rowids, new.values)
        return ColumnBuffers(base.width, base.length, values, None, validity)
    assert base.offsets is not None and new.offsets is not None
    try:
        offsets, data = delta.overlay_var(
            base.offsets, base.values, first_row, rowids, new.offsets, new.values
        )
    except OverflowError as error:
        raise too_large(base.length, error) from error
    check_size(base.length, len(data))
    return ColumnBuffers(0, base.length, data, offsets, validity)


def patch_all(
    base: ColumnBuffers,
    first_row: int,
    changes: Sequence[tuple[np.ndarray, ColumnBuffers]],
    *,
    owned: bool,
) -> ColumnBuffers:
    """``patch`` by several stores' updates, the later ones last.

    Each ``patch`` of a variable column copies all of it, so new values of up to ``TOGETHER_BYTES`` are put
    together before.
    """
    waiting: list[tuple[np.ndarray, ColumnBuffers]] = []
    nbytes = 0
    for change in changes:
        size = change[1].nbytes
        if waiting and (base.width or nbytes + size > TOGETHER_BYTES):
            base, owned = _patched(base, first_row, waiting, owned=owned), True
            waiting, nbytes = [], 0
        waiting.append(change)
        nbytes += size
    return _patched(base, first_row, waiting, owned=owned) if waiting else base


def _patched(
    base: ColumnBuffers, first_row: int, changes: list[tuple[np.ndarray, ColumnBuffers]], *, owned: bool
) -> ColumnBuffers:
    rowids = changes[0][0] if len(changes) == 1 else np.concatenate([rowids for rowids, _ in changes])
    return patch(base, first_row, rowids, ColumnBuffers.concat([new for _, new in changes]), owned=owned)


def lay_over(
    base: ColumnBuffers, rows: int | np.ndarray, parts: list[Updates], *, owned: bool
) -> ColumnBuffers:
    """``patch`` for a column of fixed width, by pieces that may hold changes of other rows too.

    ``rows``: the first of consecutive rows, or all of them, (n,) int64 ascending.
    """
    if not parts or not base.length:
        return base
    validity = base.validity
    if any(part.nullable for part in parts) and validity is None:
        validity = np.full((base.length + 7) // 8, 0xFF, np.uint8)
    elif validity is not None and not owned:
        validity = validity.copy()
    values = base.values if owned else base.values.copy()
    if isinstance(rows, np.ndarray):
        replay_at(parts, values, base.width, rows, validity)
    else:
        replay(parts, values, base.width, rows, base.length, validity)
    return ColumnBuffers(base.width, base.length, values, None, validity)
