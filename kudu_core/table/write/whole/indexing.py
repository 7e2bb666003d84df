"""``Table.create_index``, ``drop_index`` and ``indexes``: which columns rows are to be found by.

An index is a line in TABLE.  What it says of the rows of a file is made of the file when a scan asks for it
(``rowset/disk/cell_order.py``), and of the files that are there before the index is; so a new one is complete
from the moment on that TABLE has it, whatever rows there are, and no write knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.locks import HeldLocks
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.errors import InvalidArgument, NotSupported, shown
from kudu_core.rowset.disk.cell_order import order_of
from kudu_core.table.lifecycle.alter import log_and_apply
from kudu_core.table.opened.tablets import NEWEST
from kudu_core.table.stored.alteration import Alteration
from kudu_core.table.stored.indexes import MAX_INDEX_COLUMNS, MAX_INDEXES, IndexEntry, check_index_name

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.stored.table_state import TableState


@dataclass(frozen=True, slots=True)
class Index:
    """An index of a table: its name, and the columns by whose values rows are found."""

    name: str
    columns: tuple[str, ...]


def create_index(engine: Engine, name: Any, columns: Any) -> None:
    """Add an index, durably."""
    name = check_index_name(name)
    with engine.altering:
        engine.check_writable()
        state = engine.table_file.state
        entry = IndexEntry(state.next_index, _column_ids(engine.schema, columns))
        known = state.indexes.get(name)
        if known is not None:
            if known.column_ids == entry.column_ids:
                return
            has = ", ".join(_names(engine.schema, known))
            raise InvalidArgument(f"there is an index {name!r}, of {has}; drop it before")
        if len(state.indexes) >= MAX_INDEXES:
            raise NotSupported(f"the table has {len(state.indexes)} indexes, as many as there may be")
        _make_orders(engine, entry)
        _install(engine, {**state.indexes, name: entry}, entry.id + 1)


def _make_orders(engine: Engine, entry: IndexEntry) -> None:
    """What the first scans would have to make, while they are without the index."""
    for tablet in engine.tablets.there(engine.visible_ts):
        for rowset in tablet.view.rowsets:
            source = rowset.opened_at(NEWEST, entry.column_ids)
            if source is not None and all(map(source.file.has, entry.column_ids)):
                order_of(source, entry.id, entry.column_ids)


def drop_index(engine: Engine, name: Any) -> None:
    """Take an index away, durably."""
    with engine.altering:
        engine.check_writable()
        state = engine.table_file.state
        left = dict(state.indexes)
        if not isinstance(name, str) or left.pop(name, None) is None:
            some = ", ".join(map(repr, sorted(state.indexes))) or "none"
            raise InvalidArgument(f"there is no index {shown(name)}; there is {some}")
        _install(engine, left, state.next_index)


def indexes(engine: Engine) -> dict[str, Index]:
    """Those of a table by name."""
    known = engine.table_file.state.indexes
    schema = engine.schema
    return {name: Index(name, _names(schema, entry)) for name, entry in sorted(known.items())}


def _names(schema: Schema, entry: IndexEntry) -> tuple[str, ...]:
    return tuple(schema.by_id[column_id].name for column_id in entry.column_ids)


def _column_ids(schema: Schema, columns: Any) -> tuple[int, ...]:
    names: Sequence[Any] = (columns,) if isinstance(columns, str) else columns
    if not isinstance(names, Sequence) or not 1 <= len(names) <= MAX_INDEX_COLUMNS:
        raise InvalidArgument(
            f"columns of an index are 1 to {MAX_INDEX_COLUMNS} names of columns, not {shown(columns)}"
        )
    ids = []
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(f"columns of an index are names of columns, not {shown(name)}")
        column = schema.seen(name)
        if not isinstance(column, StoredColumn):
            raise InvalidArgument(f"column {name!r} is {column.type}, whose values have no order")
        if column.id in ids:
            raise InvalidArgument(f"column {name!r} is twice in an index")
        ids.append(column.id)
    return tuple(ids)


def _install(engine: Engine, known: Mapping[str, IndexEntry], next_index: int) -> None:
    def after(state: TableState) -> TableState:
        return replace(state, indexes=dict(known), next_index=next_index)

    engine.table_file.keep(after)
    if engine.in_store:  # by a record readers look at TABLE again (protocol B9)
        with HeldLocks([tablet.mutex for tablet in engine.tablets]):
            log_and_apply(engine, Alteration(None, None), (), engine.schema, engine.partitions)


__all__ = ["Index", "create_index", "drop_index", "indexes"]
