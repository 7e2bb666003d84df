"""Rows of the table for which no row is given: what clauses by source make of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.table.merge.clauses import CheckedClause
from kudu_core.table.merge.merge_source import SourcePart
from kudu_core.table.opened.tablets import NEWEST
from kudu_core.table.write.where import NewValues, selected
from kudu_core.tablet.view.view import locate_newest

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet


def unmatched_calls(
    engine: Engine, clauses: Sequence[CheckedClause], parts: Iterable[SourcePart]
) -> list[tuple[CheckedClause, list[RowBlock]]]:
    """Of each clause blocks of keys with new values, or keys alone to delete.  Under all mutexes."""
    schema = engine.schema
    taken = _homes(engine, parts)
    found = []
    for clause in clauses:
        where = pc.scalar(True) if clause.where is None else clause.where.of_old()
        set_ = {} if clause.assigned is None else dict(clause.assigned.literals)
        if clause.assigned is not None:
            set_ |= {name: made.of_old() for name, made in clause.assigned.expressions.items()}
        new_values = NewValues.checked(schema, set_)
        blocks = []
        predicate = engine.plans_of(schema).predicate(where)
        for tablet, store, rows, old in selected(engine, predicate, new_values):
            mine = taken.get((tablet.id, store))
            if mine is None:
                left = np.arange(len(rows))
            else:
                left = np.flatnonzero(~np.isin(rows, mine))
            if len(left):
                blocks.append(new_values.of(old if len(left) == len(rows) else old.take(left)))
                _take(taken, tablet, store, rows[left])
        found.append((clause, blocks))
    return found


def _homes(engine: Engine, parts: Iterable[SourcePart]) -> dict[tuple[int, int], np.ndarray]:
    """By tablet and store: the rows there, ascending, of which one is given."""
    taken: dict[tuple[int, int], np.ndarray] = {}
    tablets = engine.tablets
    for part in parts:
        route = tablets.partitions.route(part.key_block)
        for tablet in tablets.there(NEWEST):
            share = np.flatnonzero((route == tablet.partition.ordinal) & part.keyed)
            if not len(share):
                continue
            homes = locate_newest(tablet.view, part.keys.take(share))
            for store in np.flatnonzero(np.bincount(homes.store[homes.live])).tolist():
                _take(taken, tablet, store, homes.row[homes.store == store])
    return taken


def _take(
    taken: dict[tuple[int, int], np.ndarray], tablet: Tablet, store: int, rows: np.ndarray
) -> None:
    known = taken.get((tablet.id, store))
    taken[tablet.id, store] = np.sort(rows if known is None else np.concatenate([known, rows]))


__all__ = ["unmatched_calls"]
