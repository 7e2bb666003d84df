"""From the rows of write calls to one net change per key (protocol W1, W3).

``Prepared`` is what can be known without the tablets: encoded keys, groups of equal keys, routes,
rows that are refused as they are.  ``decide`` then applies the row rules in call order, given which
keys live where, and ``net_changes`` gathers what is left as columns.  Nothing here takes a lock.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
import pyarrow as pa

from kudu_core._ext.rules import decide as rules
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.keys import EncodedKeys, encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.run.cached import cached_property
from kudu_core.common.run.pool import Pool
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.values import raw_bytes
from kudu_core.errors import InvalidArgument, RowErrors
from kudu_core.tablet.view.view import KeyBatch

OK, ALREADY_PRESENT, NOT_FOUND, NULL_IN_REQUIRED = (
    rules.OK,
    rules.ALREADY_PRESENT,
    rules.NOT_FOUND,
    rules.NULL_IN_REQUIRED,
)
NO_PARTITION = 16
TOO_LARGE = 17
DUPLICATE_IN_BATCH = 18
CODE_NAMES = {
    ALREADY_PRESENT: "already_present",
    NOT_FOUND: "not_found",
    NULL_IN_REQUIRED: "null_in_required",
    NO_PARTITION: "no_partition",
    TOO_LARGE: "too_large",
    DUPLICATE_IN_BATCH: "duplicate_in_batch",
}
MAX_ROW_BYTES = 64 << 20
SORTED_ROWS = 1 << 16
"""Calls of so many rows are looked through for repeated keys in key order."""
ERRORS_SHOWN = 5
ON_ERROR_HINT = 'Pass on_error="return" to apply the others.'
SHOWN_CHARACTERS = 100


@dataclass(slots=True)
class Call:
    """Rows of one write call, already cast to the table's types."""

    ops: int | np.ndarray
    """One of the codes of ``_ext.rules.decide`` for all rows, or (n,) uint8."""
    block: RowBlock
    """The key columns and those that the call gives."""
    status: np.ndarray | None = None
    """(n,) uint8: 0, or the code with which a row is refused."""
    _: KW_ONLY
    unique: bool = False
    """Rows that repeat a key of the call are refused (``on_duplicate="error"``)."""
    ignore_null: bool = False
    """A NULL says nothing of its column, as if it were not given for that row.  With ``unique`` only."""
    continues: bool = False
    """The rows follow those of the ``Call`` before as rows of the same call."""

    @property
    def rows(self) -> int:
        return self.block.rows

    def take(self, rows: np.ndarray) -> Call:
        """Some of the rows, (n,) int64."""
        ops = self.ops if isinstance(self.ops, int) else self.ops[rows]
        status = None if self.status is None else self.status[rows]
        return replace(self, ops=ops, block=self.block.take(rows), status=status)


def fitted(schema: Schema, calls: Sequence[Call]) -> Sequence[Call]:
    """Calls that were put into the form of an older schema, without the columns that were dropped since.

    As if they had come before the drop: what they say of other columns stands.
    """
    known = schema.by_id.keys()
    if all(call.block.columns.keys() <= known for call in calls):
        return calls
    columns = [[i for i in call.block.columns if i in known] for call in calls]
    return [replace(call, block=call.block.select(ids)) for call, ids in zip(calls, columns, strict=True)]


def joined(parts: Sequence[Call]) -> list[Call]:
    """Each call as one: rows are numbered through, one set of columns is given."""
    calls: list[list[Call]] = []
    for part in parts:
        if part.continues:
            calls[-1].append(part)
        else:
            calls.append([part])
    return [_join(call) for call in calls]


def _join(parts: list[Call]) -> Call:
    if len(parts) == 1:
        return parts[0]
    status = None
    if any(p.status is not None for p in parts):
        status = np.concatenate([np.zeros(p.rows, np.uint8) if p.status is None else p.status for p in parts])
    ops: int | np.ndarray = parts[0].ops
    if isinstance(ops, np.ndarray):
        ops = np.concatenate([np.asarray(p.ops) for p in parts])
    block = RowBlock.concat([p.block for p in parts])
    return Call(ops, block, status, unique=parts[0].unique, ignore_null=parts[0].ignore_null)


class Prepared:
    """The rows of all calls of one batch, encoded, grouped by key and routed."""

    def __init__(
        self,
        schema: Schema,
        partitions: PartitionSchema,
        calls: Sequence[Call],
        pool: Pool | None = None,
        *,
        distinct: KeyBatch | None = None,
    ) -> None:
        """``pool``: for what can be done beside the calling thread.  ``distinct``: the keys of the rows,
        where the caller knows that none repeats."""
        self.schema = schema
        self.partitions = partitions
        calls = calls or (_nothing(schema),)
        self.calls = calls
        self.rows = sum(call.rows for call in calls)
        self.key_block = RowBlock.concat([call.block.select(schema.key_ids) for call in calls])
        self.groups: int
        """Distinct keys."""
        self.batch: KeyBatch
        """The distinct keys, in the order in which they first appear."""
        ordered = distinct
        if ordered is None:
            all_keys = encode_keys(schema, self.key_block)
            ordered = self._in_order(all_keys, pool) if self.rows >= SORTED_ROWS else None
        if ordered is not None:
            self.group = np.arange(self.rows, dtype=np.int32)
            self.groups, self.repeats = self.rows, False
            self.batch = ordered
            first_keys = self.key_block
        else:
            hashes = all_keys.hashes()
            self.group, first = all_keys.group(hashes)
            self.groups = len(first)
            self.repeats = self.groups < self.rows
            if self.repeats:
                self.batch = KeyBatch(all_keys.take(first), hashes[first])
            else:
                self.batch = KeyBatch(all_keys, hashes)
            first_keys = self.key_block.take(first) if self.repeats else self.key_block
        self.route = partitions.route(first_keys)
        """(groups,) int32: ordinal of the partition, -1 where no partition takes the key."""
        self.status = self._refused()

    @staticmethod
    def _in_order(keys: EncodedKeys, pool: Pool | None) -> KeyBatch | None:
        """Many keys as a batch with its order, which the ingest needs anyway; None if any repeats.

        Neighbours in the order show repeats at a fraction of the cost of grouping by hash.
        """
        hashing = None if pool is None or pool.threads == 1 else pool.submit(keys.hashes)
        order = None
        known = keys.order()
        unique = known == 2
        if known == 0:
            order = keys.sort()
            unique = not keys.repeats(order)
        hashes = keys.hashes() if hashing is None else hashing.result()
        return KeyBatch(keys, hashes, order) if unique else None

    def _refused(self) -> np.ndarray | None:
        """(rows,) uint8: why a row is refused whatever the table holds; None: no row is."""
        status: np.ndarray | None = None

        def mark(rows: np.ndarray, code: int) -> None:
            nonlocal status
            if status is None:
                status = np.zeros(self.rows, np.uint8)
            status[rows & (status == 0)] = code

        first = 0
        for call in self.calls:
            if call.status is not None and call.status.any():
                if status is None:
                    status = np.zeros(self.rows, np.uint8)
                status[first : first + call.rows] = call.status
            first += call.rows
        outside = self.route < 0
        if outside.any():
            mark(outside[self.group], NO_PARTITION)
        large = self.batch.keys.too_large()
        if large is not None:
            mark(large[self.group], TOO_LARGE)
        first = 0
        for call in self.calls:
            oversized = oversized_rows(call.block)
            if oversized is not None:
                mine = np.zeros(self.rows, bool)
                mine[first : first + call.rows] = oversized
                mark(mine, TOO_LARGE)
            if call.unique and self.repeats:
                mine = np.zeros(self.rows, bool)
                mine[first : first + call.rows] = _repeated(self.group[first : first + call.rows])
                mark(mine, DUPLICATE_IN_BATCH)
            first += call.rows
        return status

    @property
    def nbytes(self) -> int:
        return sum(call.block.nbytes for call in self.calls)

    @cached_property
    def pools(self) -> dict[int, ColumnBuffers]:
        """Values of every non-key column over all calls; a call that lacks one has NULLs there."""
        pools: dict[int, ColumnBuffers] = {}
        for column in self.schema.value_columns:
            parts = [call.block.columns.get(column.id) for call in self.calls]
            if len(parts) == 1:
                if parts[0] is not None:
                    pools[column.id] = parts[0]
            elif any(part is not None for part in parts):
                pools[column.id] = ColumnBuffers.concat(
                    [
                        ColumnBuffers.nulls(column.type, call.rows) if part is None else part
                        for part, call in zip(parts, self.calls, strict=True)
                    ]
                )
        return pools


def _nothing(schema: Schema) -> Call:
    """A call of no rows: of a batch without calls, or a predicate that matches nothing."""
    key = {c.id: ColumnBuffers.nulls(c.type, 0) for c in schema.key_columns}
    return Call(rules.CALL_DELETE, RowBlock(key, 0))


def _repeated(group: np.ndarray) -> np.ndarray:
    """(n,) bool: rows whose group came before in the array."""
    again = np.ones(len(group), bool)
    again[np.unique(group, return_index=True)[1]] = False
    return again


def oversized_rows(block: RowBlock) -> np.ndarray | None:
    """(n,) bool: rows of more than 64 MiB; None when there are none."""
    if block.nbytes <= MAX_ROW_BYTES:
        return None
    total = np.zeros(block.rows, np.int64)
    for column in block.columns.values():
        if column.offsets is None:
            total += column.width
        else:
            total += np.diff(column.offsets)
    large = total > MAX_ROW_BYTES
    return large if large.any() else None


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
    """Where a cell is NULL that the call lets say nothing, a row that is there keeps what it has and a new
    one takes the default, or is refused where there is none: how many were.

    No key is twice in the call.
    """
    group = prepared.group[first : first + call.rows]
    taken = np.flatnonzero(codes[first : first + call.rows] == OK)
    refused = 0
    width = len(prepared.schema.value_columns)
    for index, column in enumerate(prepared.schema.value_columns):
        given = call.block.columns.get(column.id)
        if given is None or given.validity is None:
            continue
        rows = taken[~given.valid_mask()[taken]]
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


def default_bytes(schema: Schema, calls: Sequence[Call]) -> int:
    """At most so many bytes of defaults come to the rows of calls: of strings that are not given."""
    total = 0
    for call in calls:
        op = call.ops if isinstance(call.ops, int) else None
        total += call.rows * row_default_bytes(schema, call.block.columns, op)
    return total


def row_default_bytes(schema: Schema, given: Container[int], op: int | None) -> int:
    """What defaults of strings take in a row that is inserted with the columns given, and no others.

    ``op``: the operation of the rows, None for several.
    """
    if op is not None and op not in INSERTING:
        return 0
    return sum(
        len(raw_bytes(column.type, column.write_default))
        for column in schema.value_columns
        if not column.type.width and column.write_default and column.id not in given
    )


INSERTING = (rules.CALL_INSERT, rules.CALL_INSERT_IGNORE, rules.CALL_UPSERT)
_UPDATES = (rules.CALL_UPSERT, rules.CALL_UPDATE, rules.CALL_UPDATE_IGNORE)
_DELETES = (rules.CALL_DELETE, rules.CALL_DELETE_IGNORE)


def _plain(prepared: Prepared, live: np.ndarray) -> tuple[Decided, Net] | None:
    call = prepared.calls[0]
    if len(prepared.calls) > 1 or prepared.repeats or prepared.status is not None or call.ignore_null:
        return None
    if not isinstance(call.ops, int) or not prepared.rows:
        return None
    schema, rows, given = prepared.schema, prepared.rows, call.block.columns
    every, nobody = np.arange(rows), np.empty(0, np.int64)
    no_keys = _nothing(schema).block
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
        none_new = RowBlock({c.id: ColumnBuffers.nulls(c.type, 0) for c in schema.columns}, 0)
        return done(0, rows, 0), Net(none_new, nobody, [(RowBlock(columns, rows), every)], no_keys, nobody)
    if call.ops in _DELETES:
        none_new = RowBlock({c.id: ColumnBuffers.nulls(c.type, 0) for c in schema.columns}, 0)
        return done(0, 0, rows), Net(none_new, nobody, [], call.block.select(schema.key_ids), every)
    return None


def net_changes(prepared: Prepared, decided: Decided) -> Net:
    """Gather the columns of the net changes."""
    schema = prepared.schema
    inserts = np.flatnonzero(decided.kind == rules.NET_INSERT)
    deletes = np.flatnonzero(decided.kind == rules.NET_DELETE)
    every = tuple(range(len(schema.value_columns)))
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


@dataclass(slots=True)
class Refused:
    """Rows that were refused."""

    rows: np.ndarray
    """(n,) int64, numbered over all calls."""
    codes: np.ndarray
    """(n,) uint8"""
    keys: RowBlock

    @staticmethod
    def of(prepared: Prepared, decided: Decided, numbers: np.ndarray | None = None) -> Refused | None:
        """The rows that ``decide`` refused; ``numbers`` where the rows are not all rows of all calls."""
        rows = decided.errors
        if not len(rows):
            return None
        return Refused(
            rows if numbers is None else numbers[rows], decided.codes[rows], prepared.key_block.take(rows)
        )

    def slice(self, lower: int, upper: int) -> Refused:
        return Refused(self.rows[lower:upper], self.codes[lower:upper], self.keys.slice(lower, upper))

    @staticmethod
    def concat(parts: Sequence[Refused]) -> Refused:
        """All of them, in the order of the calls."""
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows, kind="stable")
        codes = np.concatenate([part.codes for part in parts])
        return Refused(rows[order], codes[order], RowBlock.concat([part.keys for part in parts]).take(order))


def error_table(schema: Schema, refused: Refused, starts: np.ndarray) -> pa.Table:
    """The refused rows as users see them: row, code, key.

    ``starts``: number of the first row of each call; rows are shown as counted from there.
    """
    fields = [pa.field(c.name, c.type.arrow, True) for c in schema.key_columns]
    arrays = [refused.keys.columns[c.id].to_arrow(c.type) for c in schema.key_columns]
    rows = refused.rows - starts[np.searchsorted(starts, refused.rows, side="right") - 1]
    known, place = np.unique(refused.codes, return_inverse=True)
    names = pa.array([CODE_NAMES[c] for c in known.tolist()], pa.string())
    return pa.table(
        {
            "row": pa.array(rows, pa.int64()),
            "code": names.take(pa.array(place)),
            "key": pa.StructArray.from_arrays(arrays, fields=fields),
        }
    )


def starts_of(calls: Sequence[Call]) -> np.ndarray:
    """Number of the first row of each call, (calls,) int64."""
    ends = np.cumsum([0, *(call.rows for call in calls)], dtype=np.int64)[:-1]
    starts: np.ndarray = ends[[not call.continues for call in calls]]
    return starts


def row_errors(table: pa.Table, by_code: Mapping[int, int] | None = None) -> RowErrors:
    """The exception for refused rows, with counts and a few examples.

    ``by_code``: how many there are by code, where the table does not have all of them.
    """
    if by_code is None:
        counts = table["code"].value_counts().to_pylist()
        by_name = {c["values"]: c["counts"] for c in counts}
    else:
        by_name = {CODE_NAMES[code]: count for code, count in by_code.items()}
    total = sum(by_name.values())
    summary = ", ".join(f"{count} {name}" for name, count in by_name.items())
    shown = table.slice(0, ERRORS_SHOWN)
    rows, codes = shown["row"].to_pylist(), shown["code"].to_pylist()
    examples = "; ".join(
        f"row {row} {code} {_key_text(key)}" for row, code, key in zip(rows, codes, shown["key"], strict=True)
    )
    told = f"{total} rows were refused ({summary}); nothing was applied. First: {examples}. {ON_ERROR_HINT}"
    return RowErrors(told, table)


def _key_text(key: pa.StructScalar) -> str:
    """A key for people: long cells cut, dates that Python does not have as numbers."""
    cells = {}
    for name, cell in key.items():
        try:
            text = repr(cell.as_py())
        except (OverflowError, ValueError):
            text = str(cell.value)
        cells[name] = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
    return "{" + ", ".join(f"{name!r}: {cell}" for name, cell in cells.items()) + "}"


def check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "return"):
        raise InvalidArgument(f'on_error is "raise" or "return", not {on_error!r}')
