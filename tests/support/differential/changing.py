"""``changes`` between two moments, compared with the model."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

import kudu_core as kc
from tests.support import cells
from tests.support.differential.cases import Disagree, Predicate, same
from tests.support.differential.predicates import argument, random_predicate
from tests.support.inside import oldest_ts_of
from tests.support.models.model import check_events, check_net
from tests.support.models.versions import check_versions, versions_of

if TYPE_CHECKING:
    from tests.support.differential.pair import Pair

Row = tuple[Any, ...]


class Told(NamedTuple):
    """One row of ``changes(images="both")``; rows are whole, in the order of ``Pair.names``."""

    op: str
    timestamp: int
    after: Row
    before: Row | None


class ChangesLook:
    """Changes of one handle."""

    def __init__(self, pair: Pair, table: kc.Table, rng: random.Random) -> None:
        self.pair, self.table, self.rng = pair, table, rng
        self.width = len(pair.case.key)

    def between(self, since: int | None, until: int) -> None:
        """All changes in order of time, net ones, and some of them by columns and predicates."""
        what = f"changes({since}, {until})"
        first, every = self._told(since, until, net=False)
        begins, net = self._told(since, until, net=True)
        while begins != first:  # without ``since``: history was forgotten in between
            first, every = self._told(since, until, net=False)
            begins, net = self._told(since, until, net=True)
        try:
            check_events(
                self.pair.timeline, first, until, [self._event(c) for c in every], begin=since is None
            )
            last = {key: time for time, key, _, _ in map(self._event, every)}
            check_net(self.pair.timeline, first, until, map(self._event, net), last, begin=since is None)
        except AssertionError as error:
            raise Disagree(f"{what}: {error}") from error
        for whole, only_net in ((every, False), (net, True)):
            where = random_predicate(self.rng, self.pair.case) if self.rng.random() < 0.6 else None
            self._some(since, first, until, whole, where, net=only_net)
        for key in self._some_keys(first, until, every):
            self._of_key(key, since, first, until, every)

    def _some_keys(self, first: int, until: int, every: list[Told]) -> list[Row]:
        """Of rows that changed, that did not, and that are not there."""
        names, case = self.pair.case.key, self.pair.case
        changed = list(dict.fromkeys(told.after[: self.width] for told in every))
        there = list(self.pair.timeline.at(self.rng.choice((first, until))))
        keys = [self.rng.choice(some) for some in (changed, changed, there) if some]
        return [*keys, tuple(self.rng.choice(cells.ugly(case.by_name(n).arrow)) for n in names)]

    def _of_key(self, key: Row, since: int | None, first: int, until: int, every: list[Told]) -> None:
        """The changes of one row, and its versions."""
        pair, names = self.pair, self.pair.case.key
        given: Any = tuple(
            cells.scalar(c, pair.case.by_name(n).arrow) for c, n in zip(key, names, strict=True)
        )
        given = self.rng.choice(
            (given, dict(zip(names, given, strict=True)), *(given if self.width == 1 else ()))
        )
        changes = self.table.changes(since, until, columns=pair.names, images="both", key=given)
        if changes.since == first:
            table = changes.to_table()
            rows = cells.rows_of(table.select(pair.names)), before_rows(table)
            found = list(map(Told, table["_op"].to_pylist(), table["_timestamp"].to_pylist(), *rows))
            wanted = [told for told in every if told.after[: self.width] == key]
            same(found, wanted, f"changes({since}, {until}, key={key!r})")
        oldest = oldest_ts_of(self.table)
        versions = self.table.history_of(given, pair.names, since, until)
        if oldest_ts_of(self.table) > oldest:
            return  # history was forgotten meanwhile
        rest = [row[self.width :] for row in cells.rows_of(versions.select(pair.names))]
        try:
            check_versions(pair.timeline, key, versions_of(versions, rest), oldest, since, until)
        except AssertionError as error:
            raise Disagree(f"history_of({key!r}, since={since}, until={until}): {error}") from error

    def _told(self, since: int | None, until: int, *, net: bool) -> tuple[int, list[Told]]:
        """Since when, and what."""
        changes = self.table.changes(since, until, columns=self.pair.names, images="both", net=net)
        table = changes.to_table()
        ops, times = table["_op"].to_pylist(), table["_timestamp"].to_pylist()
        rows = cells.rows_of(table.select(self.pair.names))
        return changes.since, list(map(Told, ops, times, rows, before_rows(table)))

    def _event(self, told: Told) -> tuple[int, Row, Row | None, Row | None]:
        width, before = self.width, told.before
        key, values = told.after[:width], told.after[width:]
        if (told.op == "insert") != (before is None):
            raise Disagree(f"{told}: an insert is what has no row before")
        if before is not None and before[:width] != key:
            raise Disagree(f"{told}: the row before has another key")
        if told.op == "delete" and values != (None,) * len(values):
            raise Disagree(f"{told}: a deletion has its key, and NULLs")
        old = None if before is None else before[width:]
        return told.timestamp, key, old, None if told.op == "delete" else values

    def _some(
        self,
        since: int | None,
        first: int,
        until: int,
        whole: list[Told],
        where: Predicate | None,
        *,
        net: bool,
    ) -> None:
        """Columns in any order, a predicate, one image or both, of the changes ``whole`` after ``first``."""
        pair, rng = self.pair, self.rng
        names = rng.sample(pair.names, rng.randint(0, len(pair.names)))
        images = rng.choice(("after", "both"))
        changes = self.table.changes(
            since,
            until,
            columns=names,
            where=None if where is None else argument(pair.case, where),
            images=images,
            net=net,
        )
        if changes.since != first:
            return  # without ``since``: history was forgotten meanwhile
        found = changes.to_table()
        at = [pair.names.index(n) for n in names]
        rows = [told.before if told.op == "delete" else told.after for told in whole]
        assert all(row is not None for row in rows)
        passing = pair.passing([row for row in rows if row is not None], where)
        wanted = [
            (
                told.op,
                told.timestamp,
                tuple(told.after[i] for i in at),
                None if told.before is None or images == "after" else tuple(told.before[i] for i in at),
            )
            for told, passes in zip(whole, passing, strict=True)
            if passes
        ]
        images_before = before_rows(found) if images == "both" else [None] * found.num_rows
        told = zip(
            found["_op"].to_pylist(),
            found["_timestamp"].to_pylist(),
            cells.rows_of(found.select(names)),
            images_before,
            strict=True,
        )
        what = f"changes({since}, {until}, columns={names}, where={where!r}, {images=}, {net=})"
        same(sorted(map(repr, told)), sorted(map(repr, wanted)), what)
        same(found.schema, changes.schema, f"{what}: schema")


def before_rows(table: pa.Table) -> list[Row | None]:
    """The column ``_before`` as rows of cells, None where it is NULL."""
    rows: list[Row | None] = []
    for chunk in table["_before"].chunks:
        columns = [cells.from_arrow(column) for column in chunk.flatten()]
        there = chunk.is_valid().to_pylist()
        rows += [tuple(column[i] for column in columns) if valid else None for i, valid in enumerate(there)]
    return rows
