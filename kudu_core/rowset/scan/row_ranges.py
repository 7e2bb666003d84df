"""Which rows of a rowset a scan touches at all.

Three things rule rows out before anything is decoded: the statistics of the whole rowset, a search in
the key columns (which gives exactly the rows that satisfy the terms on them), and the zone maps of
pages.  Key columns never change, so what they say holds under any changes; what is said of another column
holds only where no visible change touches it (protocol N15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kudu_core._ext.base.status import PageError
from kudu_core.cfile.files.rows_file import PAGE_ROWS
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.analysis import Term, passing_all
from kudu_core.common.where.predicates import Filter
from kudu_core.common.where.sets import ValueSet
from kudu_core.rowset.disk.diskrowset import DiskRowsAt, DiskRowSet
from kudu_core.rowset.scan.by_index import ColumnsIndex, by_index

LEAST_RUN = 100
"""Rows that each step of a walk must pass on average (a value takes two), or testing all rows is faster."""


@dataclass(frozen=True, slots=True, eq=False)
class Pruning:
    """What a scan's predicate and bounds say about rows, in the form in which rowsets are asked."""

    keys: tuple[ValueSet | None, ...]
    """Of each key column."""
    key_ids: frozenset[int]
    columns: dict[int, ValueSet]
    """By column id, key columns too; whether NULL is in them says nothing."""
    types: dict[int, ColumnType]
    """Of these columns."""
    nulls: tuple[Term, ...]
    """Terms "is_null" and "not_null"."""
    lower: bytes | None
    upper: bytes | None
    """Encoded keys, half-open; None: open."""
    implied: tuple[bool, bool]
    """Which of the two say no more than ``keys``."""
    rest: Filter | None
    """What is left to test on rows that were found by ``keys``."""

    @staticmethod
    def of(
        schema: Schema,
        where: Filter | None,
        lower: bytes | None,
        upper: bytes | None,
        implied: tuple[bool, bool] = (False, False),
    ) -> Pruning:
        by_column: dict[int, list[Term]] = {}
        for term in () if where is None else where.terms:
            by_column.setdefault(term.column_id, []).append(term)
        columns: dict[int, ValueSet] = {}
        for column_id, terms in by_column.items():
            found = passing_all(terms)
            if found is not None:
                columns[column_id] = found
        rest = where
        if where is not None:
            for condition in where.conditions:
                column_id = condition.column_id
                if column_id in schema.key_ids:  # these the search is to meet exactly
                    exact = condition.passing
                    columns[column_id] = columns[column_id] & exact if column_id in columns else exact
            rest = where.beyond(schema.key_ids)
        keys = tuple(columns.get(column_id) for column_id in schema.key_ids)
        nulls = tuple(t for terms in by_column.values() for t in terms if t.op in ("is_null", "not_null"))
        types = {column_id: schema.by_id[column_id].type for column_id in columns}
        return Pruning(keys, frozenset(schema.key_ids), columns, types, nulls, lower, upper, implied, rest)

    def rowset_may_match(self, rowset: DiskRowSet, snapshot: int) -> bool:
        """Whether the statistics in the manifest leave any row of the rowset."""
        for column_id, wanted in self.columns.items():
            bounds = rowset.bounds(column_id, self.types[column_id])
            if bounds is None or (bounds.some and wanted.meets(bounds.low, bounds.high)):
                continue
            if column_id in self.key_ids or not rowset.may_touch(column_id, snapshot):
                return False
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows of a rowset that may hold an answer."""

    ranges: np.ndarray
    """(m, 2) int64, half-open, ascending and apart."""
    by_keys: int
    """Rows that the key columns alone leave."""
    where: Filter | None
    """What is left to test on them."""
    index: str | None = None
    """The name of the index that found them."""


def choose(
    source: DiskRowsAt, pruning: Pruning, where: Filter | None, indexes: Sequence[ColumnsIndex] = ()
) -> Candidates:
    """The rows of a rowset that keys, zone maps and indexes leave for a predicate."""
    found = None
    if any(one is not None for one in pruning.keys):
        found = _search(source, pruning)
    ranges, complete = (_between(source, pruning, (False, False)), False) if found is None else found
    by_keys = int((ranges[:, 1] - ranges[:, 0]).sum())
    if len(ranges):
        wanted = rows_wanted(source, pruning, searched=complete)
        ranges = ranges if wanted is None else intersection(ranges, wanted)
    left = pruning.rest if complete else where
    if indexes and len(ranges):
        chosen = by_index(source, pruning.columns, indexes, int((ranges[:, 1] - ranges[:, 0]).sum()))
        if chosen is not None:
            return Candidates(intersection(ranges, chosen[1]), by_keys, left, chosen[0])
    return Candidates(ranges, by_keys, left)


def _between(source: DiskRowsAt, pruning: Pruning, implied: tuple[bool, bool]) -> np.ndarray:
    """The rows between the bounds, but for those that are implied, (0 or 1, 2)."""
    lower = None if implied[0] else pruning.lower
    upper = None if implied[1] else pruning.upper
    first = 0 if lower is None else source.file.lower_bound(lower)
    last = source.rows if upper is None else source.file.lower_bound(upper)
    return np.array([[first, last]], np.int64)[: first < last]


def _search(source: DiskRowsAt, pruning: Pruning) -> tuple[np.ndarray, bool] | None:
    """Rows by a search in the key columns, and whether exactly these are what the predicate says of keys."""
    try:
        search = source.file.search
        if search is not None:
            between = _between(source, pruning, pruning.implied)
            if not len(between):
                return between, True
            first, last = between[0].tolist()
            ranges, stop = search.ranges(first, last, pruning.keys, LEAST_RUN)
            return ranges, stop is None
    except (PageError, ValueError):
        pass  # damage: whoever reads the pages says which
    return None


def rows_wanted(source: DiskRowsAt, pruning: Pruning, *, searched: bool) -> np.ndarray | None:
    """Rows of pages that the zone maps do not rule out, (m, 2) ranges; None: all of them.

    ``searched``: what the key columns say is done with.
    """
    file, wanted = source.file, None
    for column_id, passing in pruning.columns.items():
        if not file.has(column_id):
            continue
        is_key = column_id in file.key_ids
        if searched if is_key else source.touches(column_id):
            continue
        wanted = _in_pages(source, column_id, file.zone_table(column_id).may_hold(passing), wanted)
    for term in pruning.nulls:
        if file.has(term.column_id) and not source.touches(term.column_id):
            found = file.zone_table(term.column_id).may_be_null(term.op == "is_null")
            wanted = _in_pages(source, term.column_id, found, wanted)
    return wanted


def _in_pages(
    source: DiskRowsAt, column_id: int, pages: np.ndarray, ranges: np.ndarray | None
) -> np.ndarray | None:
    """What of the ranges lies in pages of a column of which there is a flag; None: all rows."""
    if pages.all():
        return ranges
    edges = np.flatnonzero(np.diff(np.concatenate(([False], pages, [False])).astype(np.int8)))
    found = np.minimum(edges.reshape(-1, 2) << source.file.columns[column_id].page_bits, source.rows)
    return found if ranges is None else intersection(ranges, found)


def intersection(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """What two lists of ranges, each ascending and apart, have in common."""
    if _covers(one, other):
        return other
    if _covers(other, one):
        return one
    begin = np.searchsorted(other[:, 1], one[:, 0], "right")
    count = np.maximum(np.searchsorted(other[:, 0], one[:, 1], "left") - begin, 0)
    mine = np.repeat(np.arange(len(one)), count)
    theirs = np.arange(len(mine)) + np.repeat(begin - (np.cumsum(count) - count), count)
    lower = np.maximum(one[mine, 0], other[theirs, 0])
    upper = np.minimum(one[mine, 1], other[theirs, 1])
    return np.stack([lower, upper], axis=1)


def _covers(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether a single range has all of the others in it: then there is nothing to join."""
    return len(one) == 1 and bool(not len(other) or (one[0, 0] <= other[0, 0] and other[-1, 1] <= one[0, 1]))


def pages_of(ranges: np.ndarray) -> int:
    """How many stretches of the rows of a page of numbers hold rows of the ranges."""
    if not len(ranges):
        return 0
    first, last = ranges[:, 0] // PAGE_ROWS, (ranges[:, 1] - 1) // PAGE_ROWS
    again = int((first[1:] == last[:-1]).sum())
    return int((last - first + 1).sum()) - again
