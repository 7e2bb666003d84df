"""Jobs of few rows go through the log, as a call of their size does: what was staged is read back, what was
not is taken as it was given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.common.rows.keys import encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.table.calls.call import Call, joined
from kudu_core.table.calls.repeats import last_rows
from kudu_core.table.runs.staged import StagedRows, StagedRun

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema
    from kudu_core.common.types.types import ColumnType
    from kudu_core.options import Options
    from kudu_core.table.ingest.build import SortedRows
    from kudu_core.table.jobs.stager import Form


def is_small(options: Options, runs: Sequence[StagedRun]) -> bool:
    """Whether the rows go through the log, as those of a call of this size would."""
    return (
        sum(run.rows for run in runs) < options.ingest_threshold_rows
        and sum(run.nbytes for run in runs) < options.ingest_threshold_bytes
    )


def calls_of(rows: SortedRows) -> Iterator[Call]:
    """All rows of some small runs as one call."""
    calls = [replace(call, ignore_null=rows.rules.ignore_null) for call in _each_call(rows)]
    if rows.rules.sequence is None or not calls:
        yield from calls
        return
    [call] = joined(calls)
    column_id, type_ = rows.rules.sequence
    parts = [run.column(column_id, 0, run.run.rows) for run in rows.runs if isinstance(run, StagedRows)]
    yield _last_of(rows.schema, call, ColumnBuffers.concat(parts), type_)


def held_call(form: Form, call: Call, sequence: ColumnBuffers | None, *, unique: bool) -> Call:
    """The rows that an attempt was given, as a call.

    ``sequence``: cells of a column beside the table's.  ``unique``: rows that repeat a key are refused.
    """
    call = replace(call, unique=unique, ignore_null=form.rules.ignore_null)
    if form.rules.sequence is None:
        return call
    column_id, type_ = form.rules.sequence
    return _last_of(form.schema, call, call.block.columns[column_id] if sequence is None else sequence, type_)


def _last_of(schema: Schema, call: Call, sequence: ColumnBuffers, type_: ColumnType) -> Call:
    """Of each key the rows whose cell of ``sequence`` is the largest."""
    kept = last_rows(encode_keys(schema, call.block), sequence, type_)
    return call if kept is None else call.take(kept)


def _each_call(rows: SortedRows) -> Iterator[Call]:
    mixed = len({run.op for run in rows.runs}) > 1
    for number, run in enumerate(rows.runs):
        assert isinstance(run, StagedRows)
        count = run.run.rows
        block = RowBlock({i: run.column(i, 0, count) for i in run.column_ids}, count)
        ops: int | np.ndarray = run.ops(0, count) if run.op is None or mixed else run.op
        yield Call(
            ops, block, run.status(0, count),
            unique=run.unique, continues=number > 0, schema=rows.schema,
        )  # fmt: skip


__all__ = ["calls_of", "held_call", "is_small"]
