"""The rows of one range of keys, decided (protocol G2).

Rules speak of one key at a time, so ranges of keys are decided and built one beside the other.  Most
are plain: the rows of one call, of which no key repeats and none is there.  Then only the keys are
brought together; the other columns are gathered one by one while the rowset is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np

from kudu_core._ext.keys import merge_plan
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.keys import EncodedKeys, encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.rowset.disk.writing import OrderedRows
from kudu_core.table.calls.call import INSERTING, Call
from kudu_core.table.calls.decide import Net, decide_net
from kudu_core.table.calls.prepared import Prepared
from kudu_core.table.calls.refused import Refused
from kudu_core.table.calls.repeats import RowRules, last_rows
from kudu_core.table.runs.gather import cells_of
from kudu_core.table.runs.sorted import KeyRange, RunSpan
from kudu_core.table.runs.staged import StagedRun, whole_run
from kudu_core.tablet.ingest.part import NetChanges
from kudu_core.tablet.view.view import Homes, KeyBatch, View, locate_at, locate_newest

MERGED_RUNS = 32
"""So many runs are merged; of more, each step of a merge would cost more than sorting."""


@dataclass(slots=True)
class DecidedRange:
    """What the rows of a range come to."""

    net: NetChanges | None
    """None once it was written."""
    counts: tuple[int, int, int, int]
    refused: Refused | None = None
    undecided: bool = False
    """Some row came to nothing because of what was there."""


def decide_range(
    schema: Schema,
    partitions: PartitionSchema,
    view: View | None,
    cut: int | None,
    range_: KeyRange,
    rules: RowRules,
) -> DecidedRange:
    """Decide the rows of a range.

    ``view``: the tablet's, None where no partition takes the rows.  ``cut``: the snapshot that counts,
    None for the newest state (under the tablet's mutex).
    """
    whole = whole_run(range_)
    if whole is not None and view is not None and not may_hold(view, cut, whole.run):
        return DecidedRange(NetChanges(None, [], None, whole), (whole.run.rows, 0, 0, 0))
    rows = _RangeRows(schema, range_.spans)
    batch = rows.distinct() if view is not None else None
    if view is None or batch is None:
        calls, numbers = rows.calls(rules)
        prepared = Prepared(schema, partitions, calls)
        batch = prepared.batch
        homes = None if view is None else _locate(view, cut, batch)
    else:
        homes = _locate(view, cut, batch)
        op = rows.op
        if op in INSERTING and not homes.live.any():
            if whole is not None:
                return DecidedRange(NetChanges(None, [], None, whole), (rows.count, 0, 0, 0))
            inserts = None if rules.ignore_null else rows.inserted(batch)
            if inserts is not None:
                return DecidedRange(NetChanges(inserts, [], None), (rows.count, 0, 0, 0))
        assert op is not None
        block = RowBlock({i: rows.column(i) for i in rows.column_ids}, rows.count)
        call = Call(op, block, ignore_null=rules.ignore_null)
        prepared = Prepared(schema, partitions, [call], distinct=batch)
        numbers = rows.numbers_in_order
    live = np.zeros(prepared.groups, bool) if homes is None else homes.live
    decided, net = decide_net(prepared, live)
    refused = decided.refused(prepared, numbers)
    changed = len(net.insert_groups) + len(net.delete_groups) + sum(len(of) for _, of in net.updates)
    return DecidedRange(
        _changes_of(schema, net, batch, homes),
        (decided.inserted, decided.updated, decided.deleted, decided.ignored),
        refused,
        bool(decided.ignored or refused is not None) or changed < prepared.groups,
    )


def may_hold(view: View, cut: int | None, run: StagedRun) -> bool:
    """Whether the tablet may hold a key between the first and the last of the run."""
    lower, upper = run.min_key, run.max_key + b"\0"
    for memory in (view.active, *view.frozen):
        rows = len(memory) if cut is None else memory.rows_at(cut)
        if rows and len(memory.ordered(lower, upper, rows, 1)):
            return True
    return len(view.tree.range(lower, upper)) > 0


def _locate(view: View, cut: int | None, batch: KeyBatch) -> Homes:
    return locate_newest(view, batch) if cut is None else locate_at(view, batch, cut)[0]


def _changes_of(schema: Schema, net: Net, batch: KeyBatch, homes: Homes | None) -> NetChanges:
    """The net changes with their keys and homes; where there is no tablet there are none."""
    if homes is None:
        assert net.empty
        return NetChanges(None, [], None)

    def of(block: RowBlock, groups: np.ndarray) -> tuple[RowBlock, KeyBatch, Homes]:
        if len(groups) == len(batch):
            return block, batch, homes
        taken = Homes(homes.store[groups], homes.row[groups], homes.ghost[groups])
        return block, batch.take(groups), taken

    inserts = None
    if net.inserts.rows:
        block, keys, _ = of(net.inserts, net.insert_groups)
        order = keys.order
        ordered, hashes = keys.in_order
        columns = block.columns

        def column(column_id: int, lower: int, upper: int) -> ColumnBuffers:
            if order is None:
                return columns[column_id].slice(lower, upper)
            return columns[column_id].take(order[lower:upper])

        inserts = OrderedRows(ordered, hashes, column, block.nbytes)
    return NetChanges(
        inserts,
        [of(block, groups) for block, groups in net.updates],
        of(net.deletes, net.delete_groups) if net.deletes.rows else None,
    )


class _RangeRows:
    """The rows of a range, out of the runs that have some."""

    def __init__(self, schema: Schema, spans: Sequence[RunSpan]) -> None:
        self._schema = schema
        self._spans = spans
        self.count = sum(upper - lower for _, lower, upper in spans)
        self._cells = cells_of(spans)
        """Span after span; after ``distinct`` in the order of the keys."""
        self._order: np.ndarray | None = None
        """(count,) int64: from span after span into the order of the keys; None: they lie so."""

    @property
    def op(self) -> int | None:
        """The operation of all rows, None when they have different ones."""
        ops = {run.op for run, _, _ in self._spans}
        return ops.pop() if len(ops) == 1 else None

    @property
    def column_ids(self) -> Sequence[int]:
        return self._spans[0][0].column_ids

    def distinct(self) -> KeyBatch | None:
        """The keys, in their order, of rows of one call that are all fine and repeat no key."""
        first = self._spans[0][0]
        for run, _, _ in self._spans:
            if run.call != first.call or run.suspect:
                return None
        if self.op is None:
            return None
        schema = self._schema
        columns = {i: self._cells.column(i) for i in schema.key_ids}
        keys = encode_keys(schema, RowBlock(columns, self.count))
        known = keys.order()
        if known == 0:
            self._order = self._merged(keys)
            keys = keys.take(self._order)
            known = keys.order()
        self._cells = self._cells.reordered(self._order)
        return KeyBatch(keys, None, None) if known == 2 else None

    def _merged(self, keys: EncodedKeys) -> np.ndarray:
        """(count,) int64: from keys span after span into their order."""
        if len(self._spans) > MERGED_RUNS:
            return keys.sort()
        ends = np.cumsum([0, *(upper - lower for _, lower, upper in self._spans)])
        parts = [keys.slice(a, b) for a, b in pairwise(ends.tolist())]
        source, position = merge_plan.merge([(part.data, part.offsets) for part in parts])
        order: np.ndarray = ends[source]
        order += position
        return order

    def column(self, column_id: int) -> ColumnBuffers:
        """A column in the order of the keys, after ``distinct``."""
        return self._cells.column(column_id)

    def numbers_in_order(self) -> np.ndarray:
        """(count,) int64: the rows' numbers in the order of the keys, after ``distinct``."""
        numbers = np.concatenate([run.numbers(a, b) for run, a, b in self._spans])
        return numbers if self._order is None else numbers[self._order]

    def numbers(self) -> np.ndarray:
        """(count,) int64: the rows' numbers, span after span."""
        return np.concatenate([run.numbers(a, b) for run, a, b in self._spans])

    def inserted(self, keys: KeyBatch) -> OrderedRows | None:
        """The rows as they are inserted, in the order of the keys; None where a column has no value."""
        schema, count, given = self._schema, self.count, set(self.column_ids)
        for column in schema.columns:
            if column.id not in given and not column.nullable and column.write_default is None:
                return None

        def column_of(column_id: int, lower: int, upper: int) -> ColumnBuffers:
            assert (lower, upper) == (0, count)
            if column_id in given:
                return self.column(column_id)
            column = schema.by_id[column_id]
            return ColumnBuffers.constant(column.type, column.write_default, count)

        return OrderedRows(keys.keys, keys.hashes, column_of, keys.keys.nbytes)

    def calls(self, rules: RowRules) -> tuple[list[Call], Callable[[], np.ndarray]]:
        """The rows as calls, in the order of the calls, and what gives their numbers; equal keys of a call
        in its order, or the last of them."""
        calls = self._calls()
        numbers = self.numbers
        if rules.ignore_null:
            calls = [replace(call, ignore_null=True) for call in calls]
        if rules.sequence is not None:
            [call] = calls
            column_id, type_ = rules.sequence
            sequence = ColumnBuffers.concat([run.column(column_id, a, b) for run, a, b in self._spans])
            kept = last_rows(encode_keys(self._schema, call.block), sequence, type_)
            if kept is not None:
                return [call.take(kept)], lambda: numbers()[kept]
        return calls, numbers

    def _calls(self) -> list[Call]:
        calls = []
        for _, group in groupby(self._spans, lambda s: s[0].call):
            mine = list(group)
            columns = {
                i: ColumnBuffers.concat([run.column(i, a, b) for run, a, b in mine])
                for i in mine[0][0].column_ids
            }
            counts = [b - a for _, a, b in mine]
            statuses = [run.status(a, b) for run, a, b in mine]
            status = None
            if any(s is not None for s in statuses):
                status = np.concatenate(
                    [np.zeros(n, np.uint8) if s is None else s for s, n in zip(statuses, counts, strict=True)]
                )
            ops: int | np.ndarray | None = mine[0][0].op
            if ops is None or any(run.op != ops for run, _, _ in mine):
                ops = np.concatenate([run.ops(a, b) for run, a, b in mine])
            run = mine[0][0]
            block = RowBlock(columns, sum(counts))
            calls.append(Call(ops, block, status, unique=run.unique, alone=run.alone))
        return calls
