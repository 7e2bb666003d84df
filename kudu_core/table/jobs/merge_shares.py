"""A merge whose rows other processes decide, in shares; the holder of the lease applies them as one record.

A share is decided against what a reader sees: the newest state, or a newer one than that in which the merge
began.  It stays right for as long as nothing is written to the tablets that it looked at, and the holder of
the lease is the only one who could: under the mutexes it asks whether anything was, and tells of it by
``SharesOvertaken``.  Then it decides the rows itself, as those of any merge.

A share's rows are staged as those of a distributed write are, in a folder of ``staging/`` that lives as long
as the merge.  What attempts leave there that nobody is told of goes with the folder.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core.common.idempotence.fingerprint import NO_ROWS, Fingerprint, total
from kudu_core.common.rows.arrow_in import given_rows
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.run.locks import Claim, HeldLocks
from kudu_core.errors import Conflict
from kudu_core.table.calls.call import Call
from kudu_core.table.ingest.build import SortedRows
from kudu_core.table.ingest.ingest import ingest_made
from kudu_core.table.jobs.small import is_small
from kudu_core.table.jobs.stager import Form, JobStager
from kudu_core.table.lifecycle.staging_folders import remove
from kudu_core.table.merge.clauses import Clause
from kudu_core.table.merge.decision import Decision
from kudu_core.table.merge.merge_rows import MergeResult, result_of, said_by
from kudu_core.table.merge.merge_source import PART_BYTES, MergeSource
from kudu_core.table.opened.record import once
from kudu_core.table.runs.spilled import OpenRuns
from kudu_core.table.runs.staged import StagedRows, StagedRun, check_run
from kudu_core.table.write.door import write_collected
from kudu_core.table.write.expired_rows import sweep
from kudu_core.tablet.store.tablet import newest_of

if TYPE_CHECKING:
    from kudu_core.common.idempotence.writers import Txn
    from kudu_core.common.schema.schema import Schema
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.table.opened.tablets import Tablets

LOOKS = 40
LOOK_PAUSE_S = 0.05
"""How often, and how long apart, a task looks whether it sees the table as the merge does."""


class SharesOvertaken(Conflict):
    """Something was written to a tablet after shares of it were decided, or a task did not see the table as
    the merge does: the rows are to be decided by the holder of the lease."""


@dataclass(frozen=True, slots=True)
class ShareOrder:
    """What a process must know that decides a share.  Picklable."""

    table_path: str
    table_uuid: str
    form: str
    """JSON: columns, partitions and options of the table."""
    directory: str
    """Where it stages its rows."""
    seen: int
    """It decides against a state in which this timestamp is visible."""
    on: Mapping[str, str]
    clauses: Sequence[Clause]
    last_by: str | None
    """Then all rows of a key are of one share."""
    is_named: bool
    """The merge has a token: the fingerprint of its rows is asked for."""


@dataclass(slots=True)
class DecidedShare:
    """What one process has decided."""

    applied: np.ndarray
    """(clauses,) int64: the rows to which each was applied."""
    without: int = 0
    runs: list[StagedRun] = field(default_factory=list)
    looked_at: frozenset[int] = frozenset()
    """Ordinals of the tablets in which a row was looked for."""
    rows: Fingerprint = NO_ROWS
    """Of the rows that were given and of what the clauses say, if it was asked for."""
    said: Fingerprint = NO_ROWS

    def to_bytes(self) -> bytes:
        told = {
            "applied": self.applied.tolist(),
            "without": self.without,
            "runs": [run.to_json() for run in self.runs],
            "looked_at": sorted(self.looked_at),
            "rows": self.rows.to_json(),
            "said": self.said.to_json(),
        }
        return json.dumps(told).encode()

    @staticmethod
    def from_bytes(data: bytes) -> DecidedShare:
        told = json.loads(data)
        return DecidedShare(
            np.array(told["applied"], np.int64),
            told["without"],
            [StagedRun.from_json(run) for run in told["runs"]],
            frozenset(told["looked_at"]),
            Fingerprint.from_json(told["rows"]),
            Fingerprint.from_json(told["said"]),
        )


# ---- in any process ----


def decide_share(
    find: Callable[[], Handle], order: ShareOrder, batches: Iterator[pa.RecordBatch], name: str
) -> DecidedShare | None:
    """Decide the rows of a share; None where the table is not to be seen as the merge sees it.

    ``find`` gives the table in the state that is durable by now.  ``name``: what the names of its files begin
    with, as no other attempt's do.
    """
    form = Form.from_json(json.loads(order.form))
    engine = _as_ordered(find, order, form)
    if engine is None:
        return None
    share = DecidedShare(np.zeros(len(order.clauses), np.int64))
    stagers: dict[tuple[int, tuple[int, ...]], JobStager] = {}
    looked_at: set[int] = set()
    for rows in _by_parts(batches, order.last_by is not None):
        source = MergeSource(list(given_rows(iter(rows), engine.schema)), order.on, order.last_by)
        decision = Decision(engine, source, order.clauses)
        for call in decision.made():
            assert isinstance(call.ops, int)
            form_of_call = call.ops, tuple(sorted(call.block.columns))
            if form_of_call not in stagers:
                path = f"{name}-{len(stagers)}"
                stagers[form_of_call] = JobStager(engine.fs, order.directory, form, path)
            stagers[form_of_call].take(call)
        share.applied += decision.outcome.applied
        share.without += decision.outcome.without
        for part in decision.checked.parts:
            route = engine.partitions.route(part.key_block)
            looked_at.update(np.flatnonzero(np.bincount(route[route >= 0])).tolist())
        if order.is_named:
            share.rows += decision.source_fingerprint()
            share.said = said_by(decision)
    share.runs = [run for stager in stagers.values() for run in stager.finish()]
    share.looked_at = frozenset(looked_at)
    return share


def _as_ordered(find: Callable[[], Handle], order: ShareOrder, form: Form) -> Engine | None:
    for look in range(LOOKS):
        engine = find().opened()
        if engine.uuid.hex() != order.table_uuid:
            return None
        if engine.schema.version != form.schema.version or engine.partitions != form.partitions:
            return None
        if engine.visible_ts >= order.seen:
            return engine
        if look < LOOKS - 1:
            engine.clock.sleep(LOOK_PAUSE_S)
    return None


def _by_parts(batches: Iterator[pa.RecordBatch], together: bool) -> Iterator[list[pa.RecordBatch]]:
    """Batches of about the size in which a merge decides.  ``together``: all at once."""
    kept: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        kept.append(batch)
        nbytes += batch.nbytes
        if nbytes >= PART_BYTES and not together:
            yield kept
            kept, nbytes = [], 0
    if kept:
        yield kept


# ---- in that of the lease ----


@dataclass(frozen=True, slots=True)
class ShareMerge:
    """A merge of which shares are asked for."""

    engine: Engine
    order: ShareOrder
    schema: Schema
    tablets: Tablets
    """Both of the state in which it began."""

    def applied(self, shares: Sequence[DecidedShare | None], on_error: str, txn: Txn | None) -> MergeResult:
        """Apply what shares have come to, as one record.

        Raises ``SharesOvertaken`` where they are not right any more, and what every merge raises; nothing was
        applied.
        """
        engine, order = self.engine, self.order
        told = [share for share in shares if share is not None]
        if not told or len(told) < len(shares):
            raise SharesOvertaken(f"{engine.path}: not every task saw the table as the merge does")
        runs = [run for share in told for run in share.runs]
        for run in runs:
            check_run(engine.fs, order.directory, run.file)
        looked_at = sorted(frozenset[int]().union(*(share.looked_at for share in told)))
        named = None
        if txn is not None:
            rows_given = total(share.rows for share in told) + told[0].said
            named = txn.of(replace(rows_given, rows=0))  # as of every merge
        with closing(OpenRuns(engine.fs)) as files:
            rows = self._rows(runs, files)

            def check() -> None:
                tablets = [self.tablets.of_ordinal(ordinal) for ordinal in looked_at]
                if engine.tablets is not self.tablets or engine.schema is not self.schema:
                    raise SharesOvertaken(f"{engine.path} was altered after its rows were decided")
                if newest_of(tablets) > order.seen:
                    raise SharesOvertaken(f"{engine.path} was written to after its rows were decided")

            if is_small(engine.options, runs):

                def calls() -> Sequence[Call]:
                    check()
                    return _calls_of(rows)

                touched = sorted((self.tablets.of_ordinal(o) for o in looked_at), key=lambda t: t.id)
                done = write_collected(
                    engine, lambda: touched or self.tablets[:1], calls, on_error=on_error, txn=named
                )
            else:

                def made(_: str) -> SortedRows:
                    check()
                    return rows

                def write() -> Any:
                    engine.memory.admit()
                    return ingest_made(engine, made, on_error=on_error, txn=named)

                done = once(engine, named, write)
        applied = sum((share.applied for share in told), np.zeros(len(order.clauses), np.int64))
        return result_of(done, applied, sum(share.without for share in told))

    def _rows(self, runs: Sequence[StagedRun], files: OpenRuns) -> SortedRows:
        """The rows of all shares: a call of each form, none of which may have a key of another."""
        forms = sorted({(run.op or 0, run.column_ids) for run in runs})
        ordered = sorted(runs, key=lambda run: forms.index((run.op or 0, run.column_ids)))
        staged = []
        first = 0
        for run in ordered:
            call = forms.index((run.op or 0, run.column_ids))
            staged.append(
                StagedRows(
                    self.schema, run, self.order.directory, files, first,
                    unique=False, call=call, alone=True,
                )
            )  # fmt: skip
            first += run.rows
        starts = np.zeros(max(1, len(forms)), np.int64)
        return SortedRows(self.schema, self.tablets.partitions, staged, starts)


def _calls_of(rows: SortedRows) -> list[Call]:
    calls = []
    for number, run in enumerate(rows.runs):
        assert isinstance(run, StagedRows) and run.op is not None
        count = run.run.rows
        block = RowBlock({i: run.column(i, 0, count) for i in run.column_ids}, count)
        status = run.status(0, count)
        calls.append(Call(run.op, block, status, alone=True, continues=number > 0, schema=rows.schema))
    return calls


@contextmanager
def shared_merge(
    engine: Engine, on: Mapping[str, str], clauses: Sequence[Clause], last_by: str | None, *, is_named: bool
) -> Iterator[ShareMerge]:
    """A merge whose shares other processes decide while this is entered, in folders that go at its end."""
    fs: FileSystem = engine.fs
    if engine.schema.ttl is not None:
        sweep(engine)  # what has expired is not there
    tablets, schema = engine.tablets, engine.schema
    with HeldLocks([tablet.mutex for tablet in tablets]):
        seen = newest_of(tablets)
    engine.wait_visible(seen)
    engine.log.wait_committed(seen)  # else no other process sees it
    form = {
        "schema": schema.to_json(),
        "partitions": tablets.partitions.to_json(),
        "options": engine.asked_options.to_json(),
        "operation": "apply",
        "sequence": None,
        "ignore_null": False,
    }
    name = f"merge-{uuid.uuid4().hex}"
    directory = f"{engine.path}/staging/{name}"
    order = ShareOrder(
        engine.path, engine.uuid.hex(), json.dumps(form), directory, seen, dict(on), tuple(clauses), last_by,
        is_named,
    )  # fmt: skip
    fs.mkdir(f"{engine.path}/staging", exist_ok=True)
    with Claim(engine.writers.committing, name):
        try:
            fs.mkdir(directory)
            yield ShareMerge(engine, order, schema, tablets)
        finally:
            remove(fs, directory)


__all__ = ["DecidedShare", "ShareMerge", "ShareOrder", "SharesOvertaken", "decide_share", "shared_merge"]
