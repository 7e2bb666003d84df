"""A change of types by which cells change: what is in memory goes to files first, which are read as the new
type.

Under all flush lanes and mutexes, so that no flush, ingest or end of a merge lies across the change, and no
store in memory has cells of two types.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.schema.alter import altered
from kudu_core.errors import InvalidArgument
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.tablet.flush.deltas import flush_deltas_held
from kudu_core.tablet.flush.memory import flush_memrowset_held

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet


def changes_cells(before: Schema, after: Schema) -> bool:
    return before.cells != after.cells


def flush_before(engine: Engine, rename: Any, change: Any) -> None:
    """Without a lock: most of what is in memory goes to files before a change that needs it there."""
    with suppress(InvalidArgument):  # it is said later, of the columns of then
        after = altered(engine.schema, rename=rename, change=change)
        if changes_cells(engine.schema, after) and engine.maintenance is not None:
            engine.maintenance.flush_all()


def flush_rest(tablets: Sequence[Tablet]) -> None:
    """Under their lanes and mutexes: what has been written to them since."""
    for tablet in tablets:
        flush_memrowset_held(tablet)
        flush_deltas_held(tablet, [rowset.id for rowset in tablet.view.changed])


def retype(tablet: Tablet, schema: Schema) -> None:
    """Likewise, where nothing is in memory: its files give columns of the types of ``schema``, which is the
    table's by now."""
    view, types = tablet.view, tablet.context.types()
    assert not (len(view.active) or view.frozen or view.changed), "a change of cells with rows in memory"
    rowsets = []
    for rowset in view.rowsets:
        typed = rowset.typed(types)
        rowset.outlive(typed)  # whoever holds the one may still open its files
        rowsets.append(typed)
    typed_view = view.with_rowsets(rowsets)
    tablet.view = replace(typed_view, active=MemRowSet(schema), types_version=schema.cells)


__all__ = ["changes_cells", "flush_before", "flush_rest", "retype"]
