"""A table and its model side by side."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import kudu_core as kc
from kudu_core.common.run.clock import Clock, last_of_microsecond, micros_of
from tests.support import cells
from tests.support.cases.constants import of_stored_types
from tests.support.clock import ManualClock
from tests.support.differential.calls import INVALID, send_call
from tests.support.differential.cases import (
    Apply,
    Batch,
    Case,
    DeleteWhere,
    Disagree,
    Do,
    Invalid,
    Predicate,
    Step,
    UpdateWhere,
    Write,
    errors_of,
    needed,
    same,
)
from tests.support.differential.changing import ChangesLook
from tests.support.differential.distributed import job_of
from tests.support.differential.grounds import Ground
from tests.support.differential.looking import Look, check_refused, check_state
from tests.support.differential.merges import DOING
from tests.support.differential.predicates import argument, expression
from tests.support.differential.upkeep import UPKEEP, Floor
from tests.support.inside import engine_of, oldest_ts_of
from tests.support.models.model import Key, Outcome, State, TableModel, Timeline, order_of

Cell = Any


@dataclass
class Pinned:
    """A snapshot, a scan of it half read, and the rows that it is to give."""

    snapshot: kc.Snapshot
    held: int  # the newest commit in it, from which on history is kept
    state: State
    scan: Iterator[pa.RecordBatch]
    begun: list[pa.RecordBatch]


class Pair:
    """A table and its model."""

    def __init__(self, case: Case, ground: Ground) -> None:
        self.case = case
        self.ground = ground
        self.schema = case.arrow
        self.model = TableModel(
            case.key,
            {c.name: c.default for c in case.values},
            required=[c.name for c in case.values if not c.nullable],
            accepts=self._accepts,
        )
        self.names = [*case.key, *self.model.values]
        self.timeline = Timeline()
        self.floor = Floor()
        self.seen = 0
        """The newest moment that was read: nothing may be written at or before it."""
        self.pinned: Pinned | None = None
        self.reader: kc.Table | None = None
        self.manual = case.options.get("maintenance") == "manual"
        self.clock: Clock = ManualClock() if self.manual else ground.clock()
        partition_by: list[Any] = [kc.HashPartition(names, buckets) for names, buckets in case.hashes]
        if case.ranges:
            type_ = case.by_name(case.key[0]).arrow
            bounds = [
                tuple(None if edge is None else cells.scalar(edge, type_) for edge in r) for r in case.ranges
            ]
            partition_by.append(kc.RangePartition([case.key[0]], bounds))
        declared = [
            kc.Column(c.name, c.arrow, c.nullable, cells.scalar(c.default, c.arrow).as_py())
            for c in case.columns
        ]
        self.table = kc.create_table(
            ground.path, declared, list(case.key), partition_by=partition_by, options=case.options,
            _clock=self.clock, **ground.how,
        )  # fmt: skip

    def open(self, mode: str = "r") -> kc.Table:
        return kc.open_table(self.ground.path, mode, _clock=self.clock, **self.ground.how)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
        if self.reader is not None:
            self.reader.close()
        self.table.close()

    def _accepts(self, key: Key) -> str | None:
        if self.case.ranges:
            first = order_of(key)[0]
            inside = any(
                (low is None or order_of((low,))[0] <= first)
                and (high is None or first < order_of((high,))[0])
                for low, high in self.case.ranges
            )
            if not inside:
                return "no_partition"
        if any(isinstance(cell, str | bytes) and len(cell) > 16_384 for cell in key):
            return "too_large"
        return None

    # ---- steps

    def do(self, step: Step) -> None:
        if isinstance(self.clock, ManualClock):
            self.clock.advance(us=random.Random(f"time-{step.look}").choice((0, 1, 60, 700)))
        job = job_of(self, step)
        if job is not None:
            self.write([step], "raise", job, ordered=False)
        elif isinstance(step, Write | Apply):
            self.write([step], step.on_error, lambda: send_call(self.table, self.case, step, step.on_error))
        elif isinstance(step, Batch):
            self._batch(step)
        elif isinstance(step, DeleteWhere):
            self._delete_where(step)
        elif isinstance(step, UpdateWhere):
            self._update_where(step)
        elif isinstance(step, Invalid):
            self._invalid(step)
        elif isinstance(step, Do):
            UPKEEP[step.what](self, random.Random(f"{step.what}-{step.look}"))
        else:
            DOING[type(step)](self, step)

    def write(
        self,
        calls: Sequence[Write | Apply],
        on_error: str,
        send: Callable[[], kc.WriteResult],
        *,
        ordered: bool = True,  # what is refused has the numbers that the call gives its rows
    ) -> None:
        wrong = next(filter(None, (self._not_allowed(call) for call in calls)), None)
        after, outcome = self.model.copy(), Outcome()
        if wrong is None:
            for call in calls:
                rows = [dict(zip(call.columns, row, strict=True)) for row in call.rows]
                after.call(call.op if isinstance(call, Write) else call.ops, rows, outcome)
        try:
            result = send()
        except kc.RowErrors as error:
            if wrong is not None or on_error != "raise":
                raise
            known = len if not ordered else list
            same(known(errors_of(error.errors)), known(outcome.errors), "errors raised")
            return
        except kc.InvalidArgument as error:
            if wrong is None:
                raise
            same(type(error), wrong, "what was raised")
            return
        if wrong is not None:
            raise Disagree(f"{wrong.__name__} was not raised")
        if outcome.errors and on_error == "raise":
            raise Disagree(f"RowErrors was not raised: {outcome.errors}")
        same(result.counts, outcome.counts, "counts")
        same([] if result.errors is None else errors_of(result.errors), outcome.errors, "errors returned")
        self.committed(result, after)

    def _not_allowed(self, call: Write | Apply) -> type[Exception] | None:
        """What is raised for a call that no row of it could mend."""
        if call.form in ("batches", "python") and not call.rows:
            return None  # nothing came, so there were no columns to look at
        beside = [c for c in call.columns if c not in self.case.key]
        if isinstance(call, Write):
            if call.op.startswith("update") and not beside:
                return kc.InvalidArgument
            if call.op.startswith("insert") and any(
                needed(c) and c.name not in call.columns for c in self.case.values
            ):
                return kc.SchemaMismatch
        return None

    def committed(self, result: kc.WriteResult, after: TableModel) -> None:
        """The result's timestamp is where the new state begins; nothing changed before it."""
        if after.state() == self.model.state() and result.timestamp == self.timeline.times[-1]:
            return
        if result.timestamp <= self.seen and after.state() != self.model.state():
            raise Disagree(f"written at {result.timestamp}, when the state at {self.seen} had been read")
        self.model = after
        self.timeline.commit(result.timestamp, after.state())
        same(self.table.timestamp >= result.timestamp, True, "a write is visible when it returns")

    def _batch(self, step: Batch) -> None:
        def send() -> kc.WriteResult:
            with self.table.batch(on_error=step.on_error) as batch:
                for call in step.calls:
                    send_call(batch, self.case, call, None)
            assert batch.result is not None
            return batch.result

        if not step.broken:
            self.write(step.calls, step.on_error, send)
            return
        with suppress(kc.InvalidArgument, ZeroDivisionError), self.table.batch() as batch:
            for call in step.calls:
                send_call(batch, self.case, call, None)
            raise ZeroDivisionError

    def _delete_where(self, step: DeleteWhere) -> None:
        keys = [row[: len(self.case.key)] for row in self.matching(self.model.state(), step.where)]
        after = self.model.copy()
        outcome = after.call("delete", [dict(zip(self.case.key, key, strict=True)) for key in keys])
        result = self.table.delete(where=argument(self.case, step.where))
        same(result.counts, outcome.counts, "counts")
        self.committed(result, after)

    def _update_where(self, step: UpdateWhere) -> None:
        after, rows = self.model.copy(), []
        for old in self.matching(self.model.state(), step.where):
            row = dict(zip(self.names, old, strict=True))
            new = {n: row[v[1]] if isinstance(v, tuple) else v for n, v in step.set.items()}
            rows.append({**{k: row[k] for k in self.case.key}, **new})
        outcome = after.call("update", rows)
        set_ = {
            name: pc.field(given[1])
            if isinstance(given, tuple)
            else pc.scalar(cells.scalar(given, self.case.by_name(name).arrow))
            for name, given in step.set.items()
        }
        try:
            result = self.table.update(where=argument(self.case, step.where), set=set_)
        except kc.InvalidArgument:
            if not outcome.errors:
                raise
            return
        same(outcome.errors, [], "a NULL where none is allowed was not refused")
        same(result.counts, outcome.counts, "counts")
        self.committed(result, after)

    def _invalid(self, step: Invalid) -> None:
        with suppress(kc.InvalidArgument, ZeroDivisionError):
            INVALID[step.kind](self)
            raise Disagree(f"{step.kind} was not refused")

    def pin(self) -> None:
        """Hold a snapshot, and a scan of it half read."""
        self.release()
        snapshot = self.table.snapshot()
        held = min(snapshot.timestamp, engine_of(self.table).log.last_record_ts)
        scan = iter(snapshot.scan(self.names, batch_rows=3))
        begun = [batch for batch in (next(scan, None),) if batch is not None]
        self.pinned = Pinned(snapshot, held, self.model.state(), scan, begun)

    def release(self) -> None:
        """Let the pinned snapshot go, after what it promised has been looked at."""
        if self.pinned is None:
            return
        pinned, self.pinned = self.pinned, None
        table = pa.Table.from_batches([*pinned.begun, *pinned.scan], schema=self.projected(self.names))
        check_state(self, table, pinned.state, "a scan begun before")
        Look(self, self.table, random.Random(1), pinned.state, pinned.snapshot).whole()
        pinned.snapshot.close()

    # ---- looking

    def look(self, rng: random.Random, *, thorough: bool = False) -> None:
        """Compare what the table answers with the model."""
        self.floor.check(self)
        now = Look(self, self.table, rng, self.model.state(), None)
        now.everything() if thorough or rng.random() < 0.05 else now.something()
        if self.pinned is not None and rng.random() < 0.2:
            Look(self, self.table, rng, self.pinned.state, self.pinned.snapshot).something()
        for _ in range(12 if thorough else rng.choice((0, 0, 1, 2))):
            self.look_back(rng)
        for _ in range(6 if thorough else rng.choice((0, 0, 0, 1))):
            self.look_at_changes(rng)

    def glance(self, rng: random.Random) -> None:
        """Compare all rows as they are now."""
        self.floor.check(self)
        Look(self, self.table, rng, self.model.state(), None).whole()

    def look_back(self, rng: random.Random) -> None:
        """One past moment, given in one of the ways in which ``at`` takes it."""
        at = self.a_time(rng)
        given: Any = at
        how = rng.random()
        if how < 0.15:
            at = last_of_microsecond(micros_of(at))
            given = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros_of(at))
        oldest = oldest_ts_of(self.table)
        if at > last_of_microsecond(self.clock.now_us()):
            return  # the clock of a reopened table may lie behind its log
        try:
            if how > 0.85:
                with self.table.snapshot(given) as snapshot:
                    Look(self, self.table, rng, self.timeline.at(at), snapshot).something()
            else:
                Look(self, self.table, rng, self.timeline.at(at), given).something()
        except kc.SnapshotTooOld:
            # History goes in the background at any moment, and never comes back.
            if oldest_ts_of(self.table) <= at:
                raise
            check_refused(self, given)
        else:
            if at < oldest:
                raise Disagree(f"{at} was read, when history reaches back to {oldest} only")
            self.seen = max(self.seen, at)

    def look_at_changes(self, rng: random.Random) -> None:
        """The changes between two moments."""
        since, until = sorted((self.a_time(rng), self.a_time(rng)))
        first = None if rng.random() < 0.1 else since
        try:
            ChangesLook(self, self.table, rng).between(first, until)
        except kc.SnapshotTooOld as error:
            gone = until if first is None else since
            lost = isinstance(error, kc.ChangesLost)
            if oldest_ts_of(self.table) <= gone or lost != (first is not None):
                raise

    def a_time(self, rng: random.Random) -> int:
        """When something was written, or just before that."""
        at = rng.choice(self.timeline.times)
        if rng.random() < 0.3:
            # Where history ends is where it goes wrong.
            at = max((t for t in self.timeline.times if t <= self.floor.value), default=at)
        return max(at - 1, 0) if rng.random() < 0.3 else at

    def projected(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.table.schema.field(n) for n in names])

    def matching(self, state: State, where: Predicate | None) -> list[tuple[Cell, ...]]:
        """Whole rows that match, in key order, as pyarrow says."""
        rows = [(*key, *state[key]) for key in sorted(state, key=order_of)]
        return [row for row, passes in zip(rows, self.passing(rows, where), strict=True) if passes]

    def passing(self, rows: Sequence[tuple[Cell, ...]], where: Predicate | None) -> list[bool]:
        """Which whole rows pass a predicate, as pyarrow says."""
        if where is None or not rows:
            return [True] * len(rows)
        named = zip(self.names, zip(*rows, strict=True), strict=True)
        arrays = [cells.as_seen(cells.to_arrow(cut, self.case.by_name(name).arrow)) for name, cut in named]
        numbered = pa.table([*arrays, pa.array(range(len(rows)))], names=[*self.names, "#"])
        found = set(numbered.filter(of_stored_types(expression(self.case, where)))["#"].to_pylist())
        return [place in found for place in range(len(rows))]
