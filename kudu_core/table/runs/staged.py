"""Runs that the tasks of a distributed write have staged: each a file with rows of one tablet in key order.

A run whose rows would be inserted as they are, no key twice, *is* the ``.rows`` file that a DiskRowSet of
them would have, so a commit that finds its keys absent takes it in by a link.  Others hold just what was
given.  Layout: docs/format-table.md, "staging/".
"""

from __future__ import annotations

import base64
from binascii import a2b_base64
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core.cfile.columns.statistics import FileStatistics
from kudu_core.cfile.columns.statistics import to_json as statistics_json
from kudu_core.cfile.pages.container import MAGIC, TRAILER
from kudu_core.common.format.members import flag, integer
from kudu_core.common.idempotence.fingerprint import Fingerprint
from kudu_core.common.rows.keys import EncodedKeys, encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Corruption
from kudu_core.fs.missing import FileMissing
from kudu_core.rowset.rows.meta import FileRef, RowSetMeta, statistics_from_json
from kudu_core.table.runs.sorted import SAMPLE_ROWS, KeyRange, Run, TabletSpan, key_ranges
from kudu_core.table.runs.spilled import OPERATION_ID, STATUS_ID, OpenRuns

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

SEQUENCE_ID = (1 << 31) - 4
"""Column of a run beside the table's: what says which of several rows of a key is the last."""


@dataclass(frozen=True, slots=True)
class StagedRun:
    """What a commit must know of a run.  Picklable."""

    file: FileRef
    """In the job's folder."""
    rows: int
    ordinal: int
    """Of the partition that the rows belong to, as the job's partitions number them; -1: to none."""
    min_key: bytes
    max_key: bytes
    """Encoded keys of the first and the last row."""
    nbytes: int
    """Of the rows before encoding, with their keys."""
    op: int | None
    """The operation of all rows; None: each has its own."""
    column_ids: tuple[int, ...]
    """The columns that were given."""
    suspect: bool
    """Some row may have to be refused whatever the table holds."""
    has_status: bool
    sequence: FileRef | None = None
    """The file that holds the column ``SEQUENCE_ID``."""
    rowset: FileStatistics | None = None
    """Statistics of the columns of a run that can become a rowset as it is, else None."""
    fingerprint: Fingerprint | None = None
    """Of its rows, in a job that has a token."""

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file.to_json(),
            "rows": self.rows,
            "ordinal": self.ordinal,
            "keys": [base64.b64encode(k).decode() for k in (self.min_key, self.max_key)],
            "bytes": self.nbytes,
            "op": self.op,
            "columns": self.column_ids,
            "suspect": self.suspect,
            "status": self.has_status,
            "sequence": None if self.sequence is None else self.sequence.to_json(),
            "rowset": statistics_json(self.rowset),
            "fingerprint": None if self.fingerprint is None else self.fingerprint.to_json(),
        }

    @staticmethod
    def from_json(value: Any) -> StagedRun:
        """Raises one of ``members.BROKEN`` for what ``to_json`` never writes."""
        first, last = value["keys"]
        fingerprint = value["fingerprint"]
        return StagedRun(
            file=FileRef.staged(value["file"]),
            rows=integer(value["rows"], 1, 1 << 32),
            ordinal=integer(value["ordinal"], -1, 1 << 31),
            min_key=a2b_base64(first, strict_mode=True),
            max_key=a2b_base64(last, strict_mode=True),
            nbytes=integer(value["bytes"]),
            op=None if value["op"] is None else integer(value["op"], 0, 256),
            column_ids=tuple(integer(i) for i in value["columns"]),
            suspect=flag(value["suspect"]),
            has_status=flag(value["status"]),
            sequence=None if value["sequence"] is None else FileRef.staged(value["sequence"]),
            rowset=statistics_from_json(value["rowset"]),
            fingerprint=None if fingerprint is None else Fingerprint.from_json(fingerprint),
        )

    @property
    def files(self) -> tuple[FileRef, ...]:
        return (self.file,) if self.sequence is None else (self.file, self.sequence)

    def as_rowset(self, rowset_id: int, name: str) -> RowSetMeta:
        """The manifest's entry when it is adopted, still without its time."""
        assert self.rowset is not None
        return RowSetMeta(
            id=rowset_id,
            base=FileRef.of(name, self.file),
            rows=self.rows,
            min_key=self.min_key,
            max_key=self.max_key,
            insert_ts=0,
            max_insert_ts=0,
            durable=0,
            statistics=self.rowset,
        )


@dataclass(slots=True, eq=False)
class StagedRows:
    """The rows of a run: a ``runs.sorted.Run``."""

    schema: Schema
    """The one that the rows were staged in."""
    run: StagedRun
    directory: str
    files: OpenRuns
    first: int
    """Number, over all runs, of its first row."""
    unique: bool
    call: int = 0
    alone: bool = False
    spans: dict[int, TabletSpan] = field(init=False)

    def __post_init__(self) -> None:
        self.spans = {self.run.ordinal: TabletSpan(0, self.run.rows, self._samples)}

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.run.file.name}"

    def as_rowset(self, rowset_id: int, name: str) -> RowSetMeta:
        return self.run.as_rowset(rowset_id, name)

    @property
    def op(self) -> int | None:
        return self.run.op

    @property
    def nbytes(self) -> int:
        return self.run.nbytes

    @property
    def suspect(self) -> bool:
        return self.run.suspect

    @property
    def column_ids(self) -> Sequence[int]:
        return self.run.column_ids

    def column(self, column_id: int, lower: int, upper: int) -> ColumnBuffers:
        ref = self.run.file
        if column_id == SEQUENCE_ID and self.run.sequence is not None:
            ref = self.run.sequence
        with self.files.use(f"{self.directory}/{ref.name}", ref.size) as file:
            return file.read(column_id, lower, upper)

    def numbers(self, lower: int, upper: int) -> np.ndarray:
        return np.arange(self.first + lower, self.first + upper)

    def ops(self, lower: int, upper: int) -> np.ndarray:
        if self.run.op is not None:  # of rows that are looked at together with those of another run
            return np.full(upper - lower, self.run.op, np.uint8)
        return self.column(OPERATION_ID, lower, upper).values

    def status(self, lower: int, upper: int) -> np.ndarray | None:
        return self.column(STATUS_ID, lower, upper).values if self.run.has_status else None

    def _samples(self) -> EncodedKeys:
        rows = self.run.rows
        if self.run.rowset is not None:
            with self.files.use(self.path, self.run.file.size) as file:
                return EncodedKeys(*file.key_index())
        block = RowBlock({i: self.column(i, 0, rows) for i in self.schema.key_ids}, rows)
        return encode_keys(self.schema, block).take(np.arange(0, rows, SAMPLE_ROWS))


def whole_run(range_: KeyRange) -> StagedRows | None:
    """The run that is all of a range and can become a rowset as it is."""
    if len(range_.spans) != 1:
        return None
    run, lower, upper = range_.spans[0]
    if not isinstance(run, StagedRows) or run.run.rowset is None or (lower, upper) != (0, run.run.rows):
        return None
    return run


def ranges_of(
    schema: Schema, runs: Sequence[Run], ordinal: int, target_bytes: int, multiple: int
) -> list[KeyRange]:
    """``key_ranges`` of a tablet's runs.  A staged run that overlaps no other is a range of its own."""
    staged = [run for run in runs if isinstance(run, StagedRows)]
    if len(staged) < len(runs):
        return key_ranges(schema, runs, ordinal, target_bytes, multiple)
    staged.sort(key=lambda r: (r.run.min_key, r.run.max_key))
    together: list[list[StagedRows]] = []
    last = b""
    for run in staged:
        if together and run.run.min_key <= last:
            together[-1].append(run)
            last = max(last, run.run.max_key)
        else:
            together.append([run])
            last = run.run.max_key
    ranges: list[KeyRange] = []
    for group in together:
        first = group[0].run
        if ranges:
            ranges[-1].end = first.min_key
        if len(group) == 1 and first.rowset is not None:
            ranges.append(KeyRange(ordinal, [(group[0], 0, first.rows)], None))
        else:
            in_order = sorted(group, key=lambda r: r.first)
            ranges += key_ranges(schema, in_order, ordinal, target_bytes, multiple)
    return ranges


def check_run(fs: FileSystem, directory: str, file: FileRef) -> None:
    """Whether a staged file is the one that its writer told of (protocol G3); ``Corruption`` if not."""
    path = f"{directory}/{file.name}"
    try:
        with closing(fs.open_read(path, file.size)) as opened:
            size = opened.size()
            if size != file.size:
                reason = f"the staged file has {size} bytes, its writer wrote {file.size}"
                raise Corruption(path, min(size, file.size), reason)
            at = size - TRAILER.size
            trailer = opened.pread(TRAILER.size, at)
    except (FileNotFoundError, FileMissing):
        raise Corruption(path, 0, "the staged file is missing") from None
    if len(trailer) < TRAILER.size:  # of an object, whose size is only known by those who wrote it
        raise Corruption(path, at, f"the staged file ends before the {file.size} bytes that its writer wrote")
    footer, length, crc, magic = TRAILER.unpack(trailer)
    if (footer + length, crc, magic) != (at, file.footer_crc, MAGIC):
        raise Corruption(path, at, "the staged file's footer is not its writer's")


__all__ = ["SEQUENCE_ID", "StagedRows", "StagedRun", "check_run", "ranges_of", "whole_run"]
