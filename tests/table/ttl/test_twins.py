"""Random calls on a table with ``ttl`` and on one from which what has expired is deleted: the same answers,
now and at past times, while the clock moves and maintenance comes between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from tests.support.rounds import rounds
from tests.table.ttl.twins import DAY, LIFETIME, Rows, Twins, sorted_rows

KEYS = 24
STEPS = 40
BULK_ROWS = 16
"""A call of so many rows goes to files."""
Act = Callable[[kc.Table], Any]


class Drawn:
    """Random calls."""

    def __init__(self, rng: np.random.Generator, twins: Twins) -> None:
        self.rng, self.twins = rng, twins

    def key(self) -> int:
        return int(self.rng.integers(KEYS))

    def row(self, key: int | None = None, *, whole: bool = False) -> dict[str, Any]:
        rng = self.rng
        row: dict[str, Any] = {"k": self.key() if key is None else key}
        if whole or rng.random() < 0.7:
            age = int(rng.integers(-2, 14))
            row["at"] = None if rng.random() < 0.2 else self.twins.now - age * DAY
        if whole or rng.random() < 0.6:
            row["v"] = int(rng.integers(5))
        if whole or rng.random() < 0.3:
            row["s"] = str(rng.choice(["x", "y"]))
        return row

    def rows(self, most: int, *, whole: bool = True) -> Rows:
        keys = self.rng.permutation(KEYS)[: int(self.rng.integers(1, most + 1))].tolist()
        return [self.row(key, whole=whole) for key in keys]

    def write(self) -> Act:
        rng = self.rng
        return [
            self._one, self._one, self._few, self._few, self._bulk, self._apply, self._batch, self._modify,
            self._merge, self._condition, self._where, self._sql,
        ][int(rng.integers(12))]()  # fmt: skip

    def _policy(self) -> dict[str, Any]:
        return {"on_error": "return"} if self.rng.random() < 0.5 else {}

    def _one(self) -> Act:
        row, how, kind = self.row(), self._policy(), int(self.rng.integers(6))
        key, ignore = {"k": row["k"]}, {"on_missing": "ignore"}
        return [
            lambda t: t.insert([row], **how),
            lambda t: t.upsert([row], **how),
            lambda t: t.update([{"v": 3, **row}], **how),
            lambda t: t.update([{"v": 4, **row}], **ignore),
            lambda t: t.delete([key], **how),
            lambda t: t.insert([row], on_conflict="ignore"),
        ][kind]

    def _few(self) -> Act:
        rows, how, kind = self.rows(10), self._policy(), int(self.rng.integers(5))
        data = pa.Table.from_pylist(rows, self.twins.ttl.schema)
        given: Any = data if self.rng.random() < 0.5 else rows
        keys = data.select(["k"])
        return [
            lambda t: t.insert(given, **how),
            lambda t: t.upsert(data.select(["k", "s"]), **how),
            lambda t: t.update(data.select(["k", "at"]), **how),
            lambda t: t.delete(keys, on_missing="ignore"),
            lambda t: t.insert(given, on_conflict="ignore"),
        ][kind]

    def _bulk(self) -> Act:
        keys = self.rng.permutation(KEYS)[: BULK_ROWS + 4].tolist()
        data = pa.Table.from_pylist([self.row(key, whole=True) for key in keys], self.twins.ttl.schema)
        return [
            lambda t: t.insert(data, on_conflict="ignore"),
            lambda t: t.upsert(data.select(["k", "v"])),
            lambda t: t.update(data, on_missing="ignore"),
            lambda t: t.insert(data, on_error="return"),
        ][int(self.rng.integers(4))]

    def _apply(self) -> Act:
        ops = ["insert", "insert_ignore", "upsert", "update_ignore", "delete_ignore"]
        rows = [{**self.row(whole=True), "_op": str(self.rng.choice(ops))} for _ in range(6)]
        return lambda t: t.apply(rows, on_error="return")

    def _batch(self) -> Act:
        first, second, row = self.key(), self.key(), self.row(whole=True)

        def act(table: kc.Table) -> Any:
            with table.batch(on_error="return") as batch:
                seen = batch.get(first), batch.get_many([first, second], ["v"]).to_pylist()
                batch.upsert([{**row, "v": 1 if seen[0] is None else 2}])
                batch.delete([second], on_missing="ignore")
            return seen, batch.result.counts

        return act

    def _modify(self) -> Act:
        key, now = self.key(), self.twins.now
        fates = [lambda row: None, lambda row: {"v": 0 if row is None else row["v"], "at": now}]
        fate = fates[int(self.rng.integers(2))]
        return lambda t: t.modify(key, fate)

    def _merge(self) -> Act:
        rows, kind = self.rows(8), int(self.rng.integers(3))

        def act(table: kc.Table) -> Any:
            merge = table.merge(rows)
            if kind == 0:
                merge = merge.when_matched({"v": kc.old("v") + kc.new("v")}).when_not_matched_insert()
            elif kind == 1:
                merge = merge.when_matched_delete().when_not_matched_by_source_update({"v": 9})
            else:
                merge = merge.when_matched().when_not_matched_by_source_delete(where=kc.old("v") > 3)
            done = merge.execute(on_error="return")
            return done.counts, done.clauses

        return act

    def _condition(self) -> Act:
        row, kind = self.row(whole=True), int(self.rng.integers(4))
        small = kc.old("v") < 3
        return [
            lambda t: t.upsert([row], if_=small, on_error="return"),
            lambda t: t.update([{"k": row["k"]}], set={"v": kc.old("v") + 1}, on_error="return"),
            lambda t: t.delete([row["k"]], if_=small, on_error="return"),
            lambda t: t.insert([row], if_=kc.new("v") < 3, on_error="return"),
        ][kind]

    def _where(self) -> Act:
        where: Any = [pc.field("v") > 2, pc.field("k") < 9, "at is null", [("s", "==", "x")], pc.scalar(True)]
        chosen = where[int(self.rng.integers(len(where)))]
        if self.rng.random() < 0.3:
            return lambda t: t.delete(where=chosen)
        at = self.twins.now - 5 * DAY
        return lambda t: t.update(where=chosen, set={"v": pc.field("v") + 1, "at": at})

    def _sql(self) -> Act:
        return [
            lambda t: t.sql("UPDATE this SET v = v + 1 WHERE k < 12").counts,
            lambda t: t.sql("DELETE FROM this WHERE v > 4").counts,
            lambda t: sorted(t.sql("SELECT k, v FROM this WHERE v > 1").to_pylist(), key=lambda r: r["k"]),
        ][int(self.rng.integers(3))]

    def upkeep(self) -> None:
        """What nobody sees."""
        twins = self.twins
        [
            twins.ttl.flush,
            lambda: twins.ttl.compact(full=True),
            twins.ttl.maintain,
            lambda: (twins.ttl.flush(), twins.ttl.compact(full=True), twins.ttl.gc()),
            twins.reopen,
        ][int(self.rng.integers(5))]()  # type: ignore[operator]


def test_the_same_answers(tmp_path: Path, long: bool) -> None:
    for number, rng in enumerate(rounds(long, 2)):
        folder = tmp_path / str(number)
        folder.mkdir()
        twins = Twins(folder, int(rng.integers(1, 3)), ingest_threshold_rows=BULK_ROWS)
        drawn, moments = Drawn(rng, twins), list[tuple[int, int]]()
        for _ in range(STEPS):
            twins.both(drawn.write())
            assert sorted_rows(twins.ttl.to_table()) == twins.rows()
            twins.clock.advance(float(rng.integers(1, 3 * 86_400)))
            assert sorted_rows(twins.ttl.to_table()) == twins.rows()
            moments.append((twins.ttl.timestamp, twins.plain.timestamp))
            if rng.random() < 0.3:
                drawn.upkeep()
                assert sorted_rows(twins.ttl.to_table()) == twins.rows()
        _check_past(twins, moments)
        _check_reader(twins)
        twins.close()


def _check_past(twins: Twins, moments: list[tuple[int, int]]) -> None:
    """Versions that have expired by now come back at no time; all others do."""
    oldest = twins.now - LIFETIME
    for mine, plain in moments[::5]:
        then = sorted_rows(twins.plain.scan(at=plain).to_table())
        alive = [row for row in then if row["at"] is None or row["at"] > oldest]
        assert sorted_rows(twins.ttl.scan(at=mine).to_table()) == alive
        found = twins.ttl.get_many(list(range(KEYS)), at=mine)
        found = found.filter(found["_found"]).drop_columns(["_found"])
        assert sorted_rows(found) == alive


def _check_reader(twins: Twins) -> None:
    twins.ttl.flush()
    with kc.open_table(twins.ttl.path, _clock=twins.clock) as reader:
        assert sorted_rows(reader.to_table()) == twins.rows()
        twins.clock.advance(DAY.total_seconds())
        assert sorted_rows(reader.to_table()) == twins.rows()
