"""The repaired table: built beside its place, with what was put aside, and renamed when it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kudu_core._ext.rules import decide as rules
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.run.clock import Clock
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Corruption
from kudu_core.table.backup.backup import write_runs
from kudu_core.table.calls.call import Call
from kudu_core.table.lifecycle.beside import make_beside, open_beside
from kudu_core.table.lifecycle.create import create
from kudu_core.table.read.plan import ALL_ROWS
from kudu_core.table.read.scan import open_scan
from kudu_core.table.repair.facts import OLDER
from kudu_core.table.repair.finding import Found
from kudu_core.table.repair.report import RepairReport
from kudu_core.table.report.verify import verify
from kudu_core.table.write.door import write_parts

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

FOLDER = "repair"
"""In the repaired table's folder: the report, and what was put aside."""
REPORT = "REPORT"
TABLET, STATUS = "_tablet", "_status"


@dataclass(frozen=True, slots=True)
class Aside:
    """What the repaired table does not tell by itself, of one range of keys."""

    tablet: int
    lost: RowBlock
    """Rows of which some cell is not known: the others."""
    known: dict[int, np.ndarray]
    """By column: which cells of those rows are known."""
    doubtful: RowBlock
    """Keys of rows that are kept in doubt."""
    verdict: np.ndarray
    """Theirs."""


@dataclass(frozen=True, slots=True)
class RepairedRange:
    """Rows of one range of keys."""

    kept: RowBlock
    aside: Aside


def write_beside(
    fs: FileSystem,
    target: str,
    found: Found,
    outputs: Iterator[RepairedRange],
    report: Callable[[], RepairReport],
    clock: Clock,
) -> None:
    """Make the table at ``target``, whole or not at all.  ``report`` is asked once all rows were read."""
    make_beside(
        fs,
        target,
        lambda inside, path: _build(inside.rooted(path), path, found, outputs, report, clock),
    )


def _build(
    fs: FileSystem,
    path: str,
    found: Found,
    outputs: Iterator[RepairedRange],
    report: Callable[[], RepairReport],
    clock: Clock,
) -> None:
    state = found.state
    schema = state.schema.renewed()
    live = tuple(r for r in state.partitions.ranges if not r.dropped)
    partitions = PartitionSchema(schema, state.partitions.hashes, state.partitions.range_ids, live)
    create(fs, path, schema, partitions, state.options, clock)
    folder = f"{path}/{FOLDER}"
    fs.mkdir(folder)
    aside = _AsideFiles(fs, folder, schema)
    with open_beside(fs, path, clock) as handle:
        engine = handle.for_writing()
        op = rules.CALL_INSERT if found.is_told else rules.CALL_UPSERT
        write_parts(engine, _calls(outputs, aside, op), clears=False)
        aside.finish()
        total = open_scan(handle, ALL_ROWS, None).count()
        told = report()
        if total != told.rows_kept and (found.is_told or total > told.rows_kept):
            raise Corruption(path, 0, f"the repaired table has {total} rows, {told.rows_kept} were kept")
        verify(engine)
    fs.replace_file(f"{folder}/{REPORT}", told.text().encode("utf-8", "replace") + b"\n")
    fs.sync_dir(path)


def _calls(outputs: Iterator[RepairedRange], aside: _AsideFiles, op: int) -> Iterator[Call]:
    """The rows that are kept, as one call.  They are in the table's types, as they were stored.

    ``op``: insert, but where tablets are guessed, of which one may have taken the place of another."""
    first = True
    for output in outputs:
        aside.add(output.aside)
        if output.kept.rows:
            yield Call(op, output.kept, continues=not first)
            first = False


class _AsideFiles:
    """Files of what was put aside: all columns, NULL where nothing is known, with the reason."""

    def __init__(self, fs: FileSystem, folder: str, schema: Schema) -> None:
        self._fs = fs
        self._folder = folder
        self._schema = schema
        fields = [pa.field(TABLET, pa.int64()), pa.field(STATUS, pa.string())]
        fields += [pa.field(c.name, c.type.arrow) for c in schema.columns]
        self._arrow = pa.schema(fields)
        self._batches: list[pa.RecordBatch] = []
        self._files = 0
        self._nbytes = 0

    def add(self, aside: Aside) -> None:
        if aside.lost.rows:
            status = np.array(["lost"] * aside.lost.rows)
            self._add(aside.tablet, status, aside.lost)
        if aside.doubtful.rows:
            status = np.where(aside.verdict == OLDER, "older", "doubtful")
            self._add(aside.tablet, status, aside.doubtful)

    def _add(self, tablet: int, status: np.ndarray, block: RowBlock) -> None:
        arrays = [pa.array(np.full(block.rows, tablet, np.int64)), pa.array(status.tolist(), pa.string())]
        for column in self._schema.columns:
            cells = block.columns.get(column.id)
            type_ = column.type
            arrays.append(pa.nulls(block.rows, type_.arrow) if cells is None else cells.to_arrow(type_))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        self._batches.append(batch)
        self._nbytes += batch.nbytes
        if self._nbytes >= 64 << 20:
            self._write()

    def _write(self) -> None:
        if self._batches:
            first = self._files
            runs, _ = write_runs(
                self._fs,
                self._folder,
                self._arrow,
                iter(self._batches),
                lambda number: f"rows-{first + number:06d}.arrow",
            )
            self._files += len(runs)
        self._batches, self._nbytes = [], 0

    def finish(self) -> None:
        self._write()
        self._fs.sync_dir(self._folder)


__all__ = ["Aside", "RepairedRange", "write_beside"]
