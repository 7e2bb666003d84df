"""The indexes of an open table as scans know them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kudu_core.rowset.scan.by_index import ColumnsIndex

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine


def indexes_for_scans(engine: Engine, *, only_known: bool = False) -> tuple[ColumnsIndex, ...]:
    """Those of a table as scans know them.

    ``only_known``: no order of cells is made, as under mutexes: others would wait for that.
    """
    known = engine.table_file.state.indexes
    if not known:
        return ()
    return tuple(ColumnsIndex(name, one.id, one.column_ids, only_known) for name, one in known.items())


__all__ = ["indexes_for_scans"]
