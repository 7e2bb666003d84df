"""A call as a distributed write: its rows staged by several attempts, resolved by a reader or not, committed
through the table that is open."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

import kudu_core as kc
from kudu_core.common.types.types import ColumnType
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.opened.handle import handle_of
from tests.support import cells
from tests.support.differential.cases import Case, Step, Write

if TYPE_CHECKING:
    from tests.support.differential.pair import Pair


JOBS = 0.2
"""Of the calls that can be, those that are sent as distributed writes."""


def job_of(pair: Pair, step: Step) -> Callable[[], kc.WriteResult] | None:
    """What sends a step as a distributed write; None where it is not to be."""
    rng = random.Random(f"job-{step.look}")
    if rng.random() < JOBS and isinstance(step, Write) and _can_be_job(pair.case, step):
        return partial(_send_job, pair, step, rng)
    return None


def _can_be_job(case: Case, call: Write) -> bool:
    """A job is refused whole, and so are rows that repeat a key."""
    if call.on_error != "raise" or not call.rows or not set(case.key) <= set(call.columns):
        return False
    places = [call.columns.index(name) for name in case.key]
    return len({tuple(row[i] for i in places) for row in call.rows}) == len(call.rows)


def _send_job(pair: Pair, call: Write, rng: random.Random) -> kc.WriteResult:
    """What ``kudu_core.spark.write`` does, without Spark.  It is refused as one call of all rows would be."""
    handle = handle_of(pair.table)
    types = [pair.case.by_name(name).arrow for name in call.columns]
    columns = [
        (name, str(ColumnType.from_arrow(type_))) for name, type_ in zip(call.columns, types, strict=True)
    ]
    job = jobs.begin(handle, call.op, columns)
    cuts = sorted(rng.choices(range(len(call.rows) + 1), k=rng.choice((0, 1, 2))))
    runs = []
    for number, (first, end) in enumerate(zip([0, *cuts], [*cuts, len(call.rows)], strict=True)):
        attempt = jobs.stager(job, f"p{number}-{rng.getrandbits(40):x}", handle.engine.fs)
        arrays = [
            cells.to_arrow((row[i] for row in call.rows[first:end]), type_) for i, type_ in enumerate(types)
        ]
        attempt.append(pa.RecordBatch.from_arrays(arrays, names=list(call.columns)))
        runs += attempt.finish()
    found = []
    if rng.random() < 0.6:
        with pair.open() as reader:
            found = resolve(handle_of(reader), job, jobs.form_of(job), runs)
    result = jobs.commit_job(job, runs, handle, found)
    if rng.random() < 0.3:
        again = jobs.resume(pair.ground.path, job.id, handle)
        assert again.deduplicated and again.counts == result.counts
    return result


__all__ = ["job_of"]
