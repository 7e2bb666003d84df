"""From the rows of write calls to one net change for each key (protocol W3).

``decide`` applies the row rules in the order of the calls, given which keys live, and ``net_changes``
gathers what is left as columns.  Nothing here takes a lock or knows where a key lives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kudu_core._ext.rules import decide as rules
from kudu_core.common.idempotence.writers import Counts
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.table.calls.call import INSERTING, Call, no_rows
from kudu_core.table.calls.prepared import Prepared
from kudu_core.table.calls.refused import NULL_IN_REQUIRED, OK, Refused

_UPDATES = (rules.CALL_UPSERT, rules.CALL_UPDATE, rules.CALL_UPDATE_IGNORE)
_DELETES = (rules.CALL_DELETE, rules.CALL_DELETE_IGNORE)


@dataclass(slots=True)
class Decided:
    """What the row rules made of the calls."""

    inserted: int
    updated: int
    deleted: int
    ignored: int
    codes: np.ndarray
    """(rows,) uint8: 0, or why the row was refused."""
    kind: np.ndarray
    """(groups,) uint8: the net change of each key, ``_ext.rules.decide.NET_*``."""
    source: np.ndarray
    """(groups, value columns) int64: where the new value of each cell comes from."""
    key_row: np.ndarray
    """(groups,) int64: a row that holds the key's columns."""

    @property
    def errors(self) -> np.ndarray:
        """Rows that were refused, ascending."""
        return np.flatnonzero((self.codes != OK) & (self.codes != rules.IGNORED))

    @property
    def counts(self) -> Counts:
        return self.inserted, self.updated, self.deleted, self.ignored

    def refused(self, prepared: Prepared, numbers: Callable[[], np.ndarray] | None = None) -> Refused | None:
        """The rows that were refused; None: none was.

        ``numbers``: gives the number of each row, (rows,) int64, where these are not all rows of all calls.
        """
        rows = self.errors
        if not len(rows):
            return None
        numbered = rows if numbers is None else numbers()[rows]
        return Refused(numbered, self.codes[rows], prepared.key_block.take(rows))


def decide(prepared: Prepared, live: np.ndarray) -> Decided:
    """Apply the row rules in call order.

    ``live``: (groups,) bool, whether each key is present before the batch.
    """
    schema, groups = prepared.schema, prepared.groups
    values = schema.value_columns
    was_live = live.astype(np.uint8)
    now = was_live.copy()
    touched = np.zeros(groups, np.uint8)
    source = np.full(groups * len(values), rules.SOURCE_KEEP, np.int64)
    key_row = np.full(groups, -1, np.int64)
    codes = np.zeros(prepared.rows, np.uint8)
    group = np.ascontiguousarray(prepared.group, np.int32)
    totals = [0, 0, 0, 0]
    first = 0
    for call in prepared.calls:
        last = first + call.rows
        given = np.array([c.id in call.block.columns for c in values], np.uint8)
        missing = any(
            not c.nullable and c.write_default is None and not g
            for c, g in zip(values, given.tolist(), strict=True)
        )
        counts = rules.decide(
            group[first:last],
            call.ops,
            None if prepared.status is None else prepared.status[first:last],
            given,
            missing,
            first,
            now,
            touched,
            source,
            key_row,
            codes[first:last],
        )
        for i in range(4):
            totals[i] += counts[i]
        if call.ignore_null:
            totals[0] -= _say_nothing(prepared, call, first, was_live, now, touched, source, codes)
        first = last
    kind = rules.net(was_live, now, touched, source, groups, len(values))
    inserted, updated, deleted, ignored = totals
    return Decided(
        inserted, updated, deleted, ignored, codes, kind, source.reshape(groups, len(values)), key_row
    )


def _say_nothing(
    prepared: Prepared,
    call: Call,
    first: int,
    was_live: np.ndarray,
    now: np.ndarray,
    touched: np.ndarray,
    source: np.ndarray,
    codes: np.ndarray,
) -> int:
    """With ``ignore_null``, a NULL means "not given": a row that is there keeps its value, and a new row
    takes the default, or is refused if there is none.  Returns how many were refused.

    No key is twice in the call.
    """
    group = prepared.group[first : first + call.rows]
    taken = np.flatnonzero(codes[first : first + call.rows] == OK)
    refused = 0
    width = len(prepared.schema.value_columns)
    for index, column in enumerate(prepared.schema.value_columns):
        missing = _null_cells(prepared.schema, call, column.id)
        if missing is None:
            continue
        rows = taken[missing[taken]]
        groups = group[rows]
        mine = source[groups * width + index] >= 0  # not of a row that deletes
        rows, groups = rows[mine], groups[mine]
        new = was_live[groups] == 0
        source[groups * width + index] = np.where(new, rules.SOURCE_DEFAULT, rules.SOURCE_KEEP)
        if not column.nullable and column.write_default is None and new.any():
            lacking = groups[new]
            codes[first + rows[new]] = NULL_IN_REQUIRED
            refused += int(np.count_nonzero(now[lacking]))
            now[lacking] = touched[lacking] = 0
    return refused


def _null_cells(schema: Schema, call: Call, column_id: int) -> np.ndarray | None:
    """(rows,) bool, where a call gives NULL; None: nowhere.  The leaves of a nested column or of a list say
    it together."""
    columns = call.block.columns
    if column_id not in columns:
        return None
    nested, giver, is_flag = schema.leaf_of.get(column_id), column_id, False
    if nested is not None:
        test = nested.layout.null_test()
        if all(id_ in columns for id_ in nested.ids):
            if test is None:
                return None
            giver, is_flag = schema.by_name[test[0]].id, test[1] == "is_true"
        else:
            place, bracket, _ = schema.by_id[column_id].name.partition("[")
            if bracket:
                names = (schema.by_id[id_].name for id_ in nested.ids)
                giver = schema.by_name[next(name for name in names if name.startswith(f"{place}["))].id
    given = columns[giver]
    if is_flag:
        flags: np.ndarray = given.to_arrow(schema.by_id[giver].type).to_numpy(zero_copy_only=False)
        return flags
    return None if given.validity is None else ~given.valid_mask()


@dataclass(slots=True)
class Net:
    """One net change per key, as columns; ``*_groups`` say which keys."""

    inserts: RowBlock
    insert_groups: np.ndarray
    updates: list[tuple[RowBlock, np.ndarray]]
    """One for each set of columns."""
    deletes: RowBlock
    delete_groups: np.ndarray

    @property
    def empty(self) -> bool:
        return not (self.inserts.rows or self.updates or self.deletes.rows)


def decide_net(prepared: Prepared, live: np.ndarray) -> tuple[Decided, Net]:
    """The row rules, and what is left of the calls.

    Most calls are plain: one operation on keys of which none repeats, none present before or all.  Then every
    row is a net change as it stands, and no cell needs to be asked where it comes from.
    """
    plain = _plain(prepared, live)
    if plain is not None:
        return plain
    decided = decide(prepared, live)
    return decided, net_changes(prepared, decided)


def _plain(prepared: Prepared, live: np.ndarray) -> tuple[Decided, Net] | None:
    call = prepared.calls[0]
    if len(prepared.calls) > 1 or prepared.repeats or prepared.status is not None or call.ignore_null:
        return None
    if not isinstance(call.ops, int) or not prepared.rows:
        return None
    schema, rows, given = prepared.schema, prepared.rows, call.block.columns
    every, nobody = np.arange(rows), np.empty(0, np.int64)
    no_keys = no_rows(schema).block
    codes, none = np.zeros(rows, np.uint8), np.empty(0, np.uint8)
    present = int(np.count_nonzero(live))

    def done(inserted: int, updated: int, deleted: int) -> Decided:
        return Decided(inserted, updated, deleted, 0, codes, none, none, nobody)

    if not present and call.ops in INSERTING:
        columns = {}
        for column in schema.columns:
            if column.id in given:
                columns[column.id] = given[column.id]
            elif column.nullable or column.write_default is not None:
                columns[column.id] = ColumnBuffers.constant(column.type, column.write_default, rows)
            else:
                return None
        return done(rows, 0, 0), Net(RowBlock(columns, rows), every, [], no_keys, nobody)
    if present < rows:
        return None
    if call.ops in _UPDATES and len(given) > len(schema.key_ids):
        columns = {c.id: given[c.id] for c in schema.columns if c.id in given}
        return done(0, rows, 0), Net(no_keys, nobody, [(RowBlock(columns, rows), every)], no_keys, nobody)
    if call.ops in _DELETES:
        return done(0, 0, rows), Net(no_keys, nobody, [], call.block.select(schema.key_ids), every)
    return None


def net_changes(prepared: Prepared, decided: Decided) -> Net:
    """Gather the columns of the net changes."""
    schema = prepared.schema
    inserts = np.flatnonzero(decided.kind == rules.NET_INSERT)
    deletes = np.flatnonzero(decided.kind == rules.NET_DELETE)
    every = tuple(range(len(schema.value_columns))) if len(inserts) else ()
    return Net(
        _gather(prepared, decided, inserts, every),
        inserts,
        _updates(prepared, decided),
        _gather(prepared, decided, deletes, ()),
        deletes,
    )


def _updates(prepared: Prepared, decided: Decided) -> list[tuple[RowBlock, np.ndarray]]:
    groups = np.flatnonzero(decided.kind == rules.NET_UPDATE)
    if not len(groups):
        return []
    changed = decided.source[groups] != rules.SOURCE_KEEP
    if (changed == changed[0]).all():
        sets = [(changed[0], groups)]
    else:
        packed = np.packbits(changed, axis=1)
        # As one string of bytes a row, since NumPy compares rows as structures, in Python, where an interrupt
        # comes out as a TypeError.
        patterns = packed.view(f"S{packed.shape[1]}").reshape(-1)
        _, first, which = np.unique(patterns, return_index=True, return_inverse=True)
        sets = [(changed[row], groups[which == i]) for i, row in enumerate(first)]
    return [
        (_gather(prepared, decided, mine, tuple(np.flatnonzero(pattern).tolist())), mine)
        for pattern, mine in sets
    ]


def _gather(prepared: Prepared, decided: Decided, groups: np.ndarray, values: tuple[int, ...]) -> RowBlock:
    """Rows of the keys ``groups``: the key columns and some of the others."""
    schema = prepared.schema
    columns = {}
    key_rows = decided.key_row[groups]
    for column in schema.key_columns:
        columns[column.id] = _take(prepared.key_block.columns[column.id], key_rows)
    for index in values:
        column = schema.value_columns[index]
        source = decided.source[groups, index]
        default = source == rules.SOURCE_DEFAULT
        if default.all():
            columns[column.id] = ColumnBuffers.constant(column.type, column.write_default, len(groups))
            continue
        pool = prepared.pools[column.id]
        if default.any():
            pool = ColumnBuffers.concat([pool, ColumnBuffers.constant(column.type, column.write_default, 1)])
            source = np.where(default, pool.length - 1, source)
        columns[column.id] = _take(pool, source)
    return RowBlock({c.id: columns[c.id] for c in schema.columns if c.id in columns}, len(groups))


def _take(column: ColumnBuffers, rows: np.ndarray) -> ColumnBuffers:
    if len(rows) == column.length and (len(rows) == 0 or _is_identity(rows)):
        return column
    return column.take(rows)


def _is_identity(rows: np.ndarray) -> bool:
    return bool(rows[0] == 0 and rows[-1] == len(rows) - 1 and (np.diff(rows) == 1).all())


__all__ = ["Decided", "Net", "decide", "decide_net", "net_changes"]
