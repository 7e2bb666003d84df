"""The whole answer of a scan that wants few rows, as one batch.

What scans of any size prepare for each rowset costs more here than the rows: a rowset is begun, and its rows
are read, by what views keep for reads of single keys (``_ext/ordered/``).  Where that cannot answer, or there
are more rows, the general way reads all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.ordered.few_in_order import RowsOfViews
from kudu_core._ext.ordered.in_order import RowsInOrder
from kudu_core.common.where import keybounds
from kudu_core.rowset.scan.first_rows import ROWS_ONE_BY_ONE, List, listed_in_memory
from kudu_core.table.read.plan import check_columns, planned_tablets

if TYPE_CHECKING:
    from kudu_core.common.where.predicates import Filter
    from kudu_core.rowset.scan.scan_counts import ScanCounts
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.read.plan import ScanPlan
    from kudu_core.tablet.view.view import View

_ROWS_BETWEEN = 256
"""Rows between two bounds that are looked for in this way before it is known how many there are."""
_CELLS = 1 << 13
"""In no particular order, blocks read more cells than these faster."""
_LOOKED_AT = 8 * ROWS_ONE_BY_ONE
"""Where so many rows are dead, blocks find the others faster."""
_STRING_BYTES = 4 << 20
"""Of one column: longer strings come in more than one batch."""


def wants_few(plan: ScanPlan) -> int | None:
    """How many rows a scan is asked for at most; None where this is not the way to read them."""
    if plan.dictionary or not plan.columns:
        return None
    if plan.filter is not None and not _is_said_by_bounds(plan, plan.filter):
        return None
    limit, most = plan.limit, ROWS_ONE_BY_ONE
    if not plan.ordered:
        most = min(most, _CELLS // len(plan.columns))
    if limit is not None and limit <= most:
        return limit
    if plan.lower is not None and plan.upper is not None:
        return min(most, _ROWS_BETWEEN) + 1
    return None


def _is_said_by_bounds(plan: ScanPlan, where: Filter) -> bool:
    """Whether all rows between the bounds pass.  That the predicate fixes columns of the key is not enough:
    bounds are made of its terms, which may say less than its conditions (decision 0004), and a ``key_range``
    may narrow them to another key."""
    schema = plan.schema
    if not where.fixes(schema.key_ids):
        return False
    is_whole = plan.implied == (True, True)
    bounds = (plan.lower, plan.upper) if is_whole else keybounds.key_bounds(schema, where.terms)
    shared = keybounds.equal_prefix(schema.key_codec, bounds)
    return len(shared) >= len(where.conditions)


def few_rows(
    engine: Engine, plan: ScanPlan, wanted: int, snapshot: int, counts: ScanCounts
) -> list[pa.RecordBatch] | None:
    """The rows of a plan that ``wants_few``; None: they must be read in another way."""
    check_columns(engine, plan.schema, plan.columns)
    views = [tablet.view_of(plan.schema) for tablet in planned_tablets(engine, plan, snapshot)]
    listed = partial(_in_memory, views, plan.lower, plan.upper, snapshot)
    columns = plan.made
    try:
        order = RowsInOrder.of_views(
            [view.points for view in views], snapshot, listed, plan.lower, plan.upper, plan.ordered
        )
        rows = RowsOfViews(order, columns.shape, columns.widths, columns.bits)
        rows.take(wanted, _LOOKED_AT)
        if not rows.at_end and rows.count != plan.limit:
            return None
        batch = rows.batch(_STRING_BYTES) if rows.count else None
    except (NeedsGeneralPath, PageError):
        return None
    counts.rowsets_begun = order.begun
    if plan.ordered and order.begun > len(views):
        for view in views:
            if len(view.rowsets) > 1:
                view.note_ordered(range(len(view.rowsets)), wanted)
    counts.rows_read = rows.taken
    counts.rows_selected = rows.count
    return [] if batch is None else [pa.RecordBatch._import_from_c(batch.address, columns.arrow)]


def _in_memory(
    views: list[View], lower: bytes | None, upper: bytes | None, snapshot: int, view: int, memory: int
) -> Iterator[List]:
    """Rows of a MemRowSet and their keys, for ``RowsInOrder``."""
    store = (views[view].active, *views[view].frozen)[memory]
    return listed_in_memory(store, store.rows_at(snapshot), lower, upper)


__all__ = ["few_rows", "wants_few"]
