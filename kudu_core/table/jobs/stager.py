"""What an attempt of a task does: put its rows into files of one tablet each, in key order.

It reads nothing of the table and writes only into its job's folder, under names that no other attempt
uses; so it may fail, be repeated, run twice at once or outlive its job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core._ext.rules import decide as rules
from kudu_core.cfile import ColumnSpec
from kudu_core.cfile.files.rows_format import RowsMeta
from kudu_core.cfile.files.rows_writer import RowsFileSpec, write_rows_file
from kudu_core.common.idempotence.fingerprint import Fingerprint, of_hashes
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.keys import EncodedKeys, encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.run.clock import Clock
from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.casts import cast
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import SchemaMismatch
from kudu_core.options import Options
from kudu_core.rowset.disk.writing import DECODED_FACTOR, OrderedRows, write_rows
from kudu_core.rowset.rows.meta import FileRef
from kudu_core.table.calls.call import INSERTING, Call, joined, oversized_rows, row_default_bytes
from kudu_core.table.calls.conform import apply_calls, conform_calls
from kudu_core.table.calls.fingerprints import call_hashes
from kudu_core.table.calls.repeats import RowRules
from kudu_core.table.ingest.build import MAX_BYTES
from kudu_core.table.lifecycle.staging_folders import HEARTBEAT, HEARTBEAT_S
from kudu_core.table.runs.sorted import TabletSpan, tablet_spans
from kudu_core.table.runs.spilled import OPERATION_ID, STATUS_ID
from kudu_core.table.runs.staged import SEQUENCE_ID, StagedRun

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

STAGED_BYTES = 128 << 20
"""Before encoding, of the rows that an attempt holds before it writes them."""
APPLY = "apply"


@dataclass(frozen=True, slots=True)
class Form:
    """How the rows of a job are to be stored."""

    schema: Schema
    partitions: PartitionSchema
    options: Options
    operation: str
    sequence: tuple[str, ColumnType] | None
    """The column by which the last row of a key is known."""
    ignore_null: bool

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Form:
        schema, sequence = Schema.from_json(value["schema"]), value["sequence"]
        return Form(
            schema=schema,
            partitions=PartitionSchema.from_json(value["partitions"], schema),
            options=Options.from_json(value["options"]),
            operation=value["operation"],
            sequence=None if sequence is None else (sequence[0], ColumnType.parse(sequence[1])),
            ignore_null=value["ignore_null"],
        )

    @property
    def rules(self) -> RowRules:
        if self.sequence is None:
            return RowRules(None, self.ignore_null)
        name, type_ = self.sequence
        column = self.schema.by_name.get(name)
        return RowRules((SEQUENCE_ID if column is None else column.id, type_), self.ignore_null)

    @property
    def run_bytes(self) -> int:
        """Of the rows that are put in order together: about what makes one rowset of the target size."""
        return min(self.options.rowset_target_bytes * DECODED_FACTOR, STAGED_BYTES)


class JobStager:
    """Stages the rows of one attempt."""

    def __init__(
        self, fs: FileSystem, directory: str, form: Form, name: str, added: int | None = None
    ) -> None:
        """
        Parameters
        ----------
        name
            What the names of its files begin with, as no other attempt's do.
        added
            To the operation of each row in the fingerprints of the runs; None: they have none.
        """
        self._added = added
        self._fs = fs
        self._directory = directory
        self._form = form
        self._name = name
        self._clock = Clock()
        self._beat_s = self._clock.monotonic_s()
        self._waiting: list[Call] = []
        self._sequences: list[ColumnBuffers] = []
        self._nbytes = 0
        self._runs: list[StagedRun] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Take rows as they are stored, with ``_op`` and the sequence column where the job has them."""
        form = self._form
        schema = form.schema
        if form.sequence is not None:
            name, type_ = form.sequence
            place = batch.schema.get_field_index(name)
            if place < 0:
                raise SchemaMismatch(f"column {name!r}, by which the last row of a key is known, is missing")
            if name not in schema.by_name:
                if batch.num_rows:
                    array = cast(batch.column(place), type_, name)
                    self._sequences.append(ColumnBuffers.from_arrow(array, type_, name))
                batch = batch.remove_column(place)
        if form.operation == APPLY:
            calls = apply_calls(schema, batch, OP_COLUMN, stored=True)
        else:
            calls = conform_calls(schema, form.operation, batch, stored=True)
        for call in calls:
            if form.ignore_null:
                call.status = _null_keys(schema, call.block)
            self._keep(call)
        self._go_on()

    def take(self, call: Call) -> None:
        """Take rows that are decided already; those of one stager have the same columns and operation."""
        self._keep(call)
        self._go_on()

    def _keep(self, call: Call) -> None:
        call.continues = bool(self._waiting)
        self._waiting.append(call)
        self._nbytes += call.block.nbytes

    def _go_on(self) -> None:
        """Write what is enough for a run, and show that somebody is at work."""
        if self._nbytes >= self._form.run_bytes:
            self._write()
        now = self._clock.monotonic_s()
        if now - self._beat_s > HEARTBEAT_S:
            self._beat_s = now
            # A new name in the folder renews its time.  After an abort the folder is gone, and this
            # attempt, which nobody waits for, ends here.
            self._fs.replace_file(f"{self._directory}/{HEARTBEAT}", b"")

    @property
    def is_small(self) -> bool:
        """Nothing was written yet, and so little was given that the log takes it, as of any call."""
        options = self._form.options
        rows = sum(call.rows for call in self._waiting)
        return not self._runs and (
            rows < options.ingest_threshold_rows and self._nbytes < options.ingest_threshold_bytes
        )

    def held(self) -> tuple[Call, ColumnBuffers | None, Fingerprint | None] | None:
        """What was given and is not written: the rows, the column beside them by which the last one of a key
        is known, and their fingerprint; None: no rows.  It is kept, so that it can still be written."""
        if not self._waiting:
            return None
        [call] = joined(self._waiting)
        self._waiting = [call]
        sequence = ColumnBuffers.concat(self._sequences) if self._sequences else None
        hashes = self._hashes(call, sequence)
        return call, sequence, None if hashes is None else of_hashes(hashes)

    def _hashes(self, call: Call, sequence: ColumnBuffers | None) -> np.ndarray | None:
        if self._added is None:
            return None
        call.ignore_null = self._form.ignore_null
        return call_hashes(call, self._added, None if sequence is None else (SEQUENCE_ID, sequence))

    def finish(self) -> list[StagedRun]:
        """Make what was staged durable; a run for each file."""
        self._write()
        if self._runs:
            self._fs.sync_dir(self._directory)
        return self._runs

    def _write(self) -> None:
        if not self._waiting:
            return
        [call] = joined(self._waiting)
        sequence = ColumnBuffers.concat(self._sequences) if self._sequences else None
        self._waiting, self._sequences, self._nbytes = [], [], 0
        form = self._form
        keys = encode_keys(form.schema, call.block)
        hashes = self._hashes(call, sequence)
        order, spans = tablet_spans(keys, form.partitions.route(call.block))
        ordered = keys if order is None else keys.take(order)
        for ordinal, span in sorted(spans.items()):
            rows = _TabletRows(call, sequence, order, ordered, span, hashes)
            self._runs.append(self._write_run(ordinal, rows))

    def _write_run(self, ordinal: int, rows: _TabletRows) -> StagedRun:
        form, fs, call = self._form, self._fs, rows.call
        number = len(self._runs)
        name = f"{self._name}-{number}.rows"
        path = f"{self._directory}/{name}"
        keys = rows.keys
        status = rows.status()
        suspect = status is not None or keys.too_large() is not None or rows.oversized()
        given = tuple(call.block.columns)
        adoptable = (
            ordinal >= 0
            and not suspect
            and not isinstance(call.ops, np.ndarray)
            and call.ops in INSERTING
            and keys.order() == 2
            and all(self._can_insert(c.id, call.block) for c in form.schema.columns)
            and rows.count * row_default_bytes(form.schema, given, call.ops) <= MAX_BYTES
        )
        if adoptable:
            meta = write_rows(
                fs, form.schema, form.options,
                OrderedRows(keys, keys.hashes(), lambda i, a, b: self._inserted(rows, i, a, b), rows.nbytes),
                0, rows.count, path,
            )  # fmt: skip
        else:
            meta = write_rows_file(fs, path, RowsFileSpec(self._columns(rows, given, status)))
        return StagedRun(
            file=FileRef.of(name, meta),
            rows=rows.count,
            ordinal=ordinal,
            min_key=keys[0],
            max_key=keys[rows.count - 1],
            nbytes=rows.nbytes,
            op=None if isinstance(call.ops, np.ndarray) else call.ops,
            column_ids=given,
            suspect=suspect,
            has_status=status is not None,
            sequence=self._write_sequence(rows, f"{self._name}-{number}-sequence.rows"),
            rowset=meta.statistics if adoptable else None,
            fingerprint=None if rows.hashes is None else of_hashes(rows.picked(rows.hashes)),
        )

    def _can_insert(self, column_id: int, block: RowBlock) -> bool:
        """Whether what a new row has in a column is what the rows say of it."""
        column = self._form.schema.by_id[column_id]
        given = block.columns.get(column_id)
        if given is None:
            return column.nullable or column.write_default is not None
        if not self._form.ignore_null or given.validity is None or not given.null_count:
            return True
        return column.nullable and column.write_default is None

    def _inserted(self, rows: _TabletRows, column_id: int, lower: int, upper: int) -> ColumnBuffers:
        if column_id in rows.call.block.columns:
            return rows.take(rows.call.block.columns[column_id], lower, upper)
        column = self._form.schema.by_id[column_id]
        return ColumnBuffers.constant(column.type, column.write_default, upper - lower)

    def _columns(
        self, rows: _TabletRows, given: Iterable[int], status: np.ndarray | None
    ) -> Iterable[tuple[ColumnSpec, ColumnBuffers]]:
        for column_id in given:
            column = self._form.schema.by_id[column_id]
            spec = ColumnSpec(
                column_id, column.type, True, encoding=column.encoding, compression=column.compression
            )
            yield spec, rows.take(rows.call.block.columns[column_id], 0, rows.count)
        if isinstance(rows.call.ops, np.ndarray):
            yield _bytes(OPERATION_ID, rows.picked(rows.call.ops))
        if status is not None:
            yield _bytes(STATUS_ID, status)

    def _write_sequence(self, rows: _TabletRows, name: str) -> FileRef | None:
        if rows.sequence is None:
            return None
        assert self._form.sequence is not None
        column = rows.take(rows.sequence, 0, rows.count)
        spec = ColumnSpec(SEQUENCE_ID, self._form.sequence[1], True)
        path = f"{self._directory}/{name}"
        meta: RowsMeta = write_rows_file(self._fs, path, RowsFileSpec([(spec, column)]))
        return FileRef.of(name, meta)


@dataclass(slots=True)
class _TabletRows:
    """The rows of one tablet among those that are put in order together."""

    call: Call
    sequence: ColumnBuffers | None
    order: np.ndarray | None
    ordered: EncodedKeys
    span: TabletSpan
    hashes: np.ndarray | None

    @property
    def count(self) -> int:
        return self.span.upper - self.span.lower

    @property
    def keys(self) -> EncodedKeys:
        return self.ordered.slice(self.span.lower, self.span.upper)

    @property
    def nbytes(self) -> int:
        every = self.call.block.nbytes + len(self.ordered.data)
        return every * self.count // self.call.rows

    def take(self, column: ColumnBuffers, lower: int, upper: int) -> ColumnBuffers:
        first = self.span.lower
        if self.order is None:
            return column.slice(first + lower, first + upper)
        return column.take(self.order[first + lower : first + upper])

    def picked(self, cells: np.ndarray) -> np.ndarray:
        """(count,): the rows' part of an array with a cell for each row of the call."""
        lower, upper = self.span.lower, self.span.upper
        picked: np.ndarray = cells[lower:upper] if self.order is None else cells[self.order[lower:upper]]
        return picked

    def status(self) -> np.ndarray | None:
        """(count,) uint8, None where no row is refused as it is."""
        if self.call.status is None:
            return None
        mine = self.picked(self.call.status)
        return mine if mine.any() else None

    def oversized(self) -> bool:
        large = oversized_rows(self.call.block)
        return large is not None and bool(self.picked(large).any())


def _null_keys(schema: Schema, block: RowBlock) -> np.ndarray | None:
    """(n,) uint8: rows without a key, which no NULL stands for; None when there are none."""
    status = np.zeros(block.rows, np.uint8)
    for column_id in schema.key_ids:
        column = block.columns[column_id]
        if column.validity is not None:
            status[~column.valid_mask()] = rules.NULL_IN_REQUIRED
    return status if status.any() else None


def _bytes(column_id: int, cells: np.ndarray) -> tuple[ColumnSpec, ColumnBuffers]:
    column = ColumnBuffers(1, len(cells), np.ascontiguousarray(cells, np.uint8))
    return ColumnSpec(column_id, ColumnType.parse("uint8"), False), column


__all__ = ["APPLY", "Form", "JobStager"]
