"""A change of types by which cells change: what is in memory goes to files first, which are read as the new
type.

Under all flush lanes and mutexes, so that no flush, ingest or end of a merge lies across the change, and no
store in memory has cells of two types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.tablet.flush.deltas import flush_deltas_held
from kudu_core.tablet.flush.memory import flush_memrowset_held

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet


def changes_cells(before: Schema, after: Schema) -> bool:
    return before.cell_types.version != after.cell_types.version


def lanes_of(engine: Engine, before: Schema, after: Schema) -> Sequence[Tablet]:
    """The tablets whose lanes are to be held.  Most of what is in memory is flushed before they are taken."""
    if not changes_cells(before, after):
        return ()
    assert engine.maintenance is not None
    engine.maintenance.flush_all()
    return engine.tablets


def flush_rest(tablets: Sequence[Tablet]) -> None:
    """Under their lanes and mutexes: what has been written to them since."""
    for tablet in tablets:
        flush_memrowset_held(tablet)
        flush_deltas_held(tablet, [rowset.id for rowset in tablet.view.changed])


def retype(tablet: Tablet, schema: Schema) -> None:
    """Likewise, where nothing is in memory: its files give columns of the types of ``schema`` from now on."""
    view, types = tablet.view, schema.cell_types
    assert not (len(view.active) or view.frozen or view.changed), "a change of cells with rows in memory"
    rowsets = []
    for rowset in view.rowsets:
        typed = rowset.typed(types.types)
        rowset.outlive(typed)  # whoever holds the one may still open its files
        rowsets.append(typed)
    typed_view = view.with_rowsets(rowsets)
    tablet.view = replace(typed_view, active=MemRowSet(schema), types_version=types.version)


__all__ = ["changes_cells", "flush_rest", "lanes_of", "retype"]
