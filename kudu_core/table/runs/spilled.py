"""Sorted runs in files, of calls that do not fit into memory.  Layout: docs/format-table.md, "staging/"."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.cfile import ColumnSpec, RowsFile
from kudu_core.cfile.files.rows_writer import RowsFileSpec, write_rows_file
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.locks import mutex
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import ColumnType
from kudu_core.table.runs.sorted import MemoryRun, TabletSpan

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

OPEN_FILES = 128
"""Files of runs that stay open while nobody reads them."""

# Columns of a spilled run beside the table's own, whose ids are smaller.
NUMBER_ID = (1 << 31) - 1
OPERATION_ID = (1 << 31) - 2
STATUS_ID = (1 << 31) - 3


class OpenRuns:
    """The files of spilled runs: opened when read, and few of them kept open."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._lock = mutex()
        self._idle: dict[str, list[RowsFile]] = {}
        self._count = 0

    @contextmanager
    def use(self, path: str, size: int | None = None) -> Iterator[RowsFile]:
        """One file for one thread.  ``size``: where it is known."""
        with self._lock:
            idle = self._idle.get(path)
            file = idle.pop() if idle else None
            self._count -= file is not None
        if file is None:
            file = RowsFile(self._fs, path, size=size)
        try:
            yield file
        finally:
            with self._lock:
                keep = self._count < OPEN_FILES
                if keep:
                    self._idle.setdefault(path, []).append(file)
                    self._count += 1
            if not keep:
                file.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._count = self._idle, {}, 0
        for files in idle.values():
            for file in files:
                file.close()


@dataclass(slots=True, eq=False)
class SpilledRun:
    """A run whose rows lie in a file."""

    call: int
    unique: bool
    alone: bool
    spans: dict[int, TabletSpan]
    nbytes: int
    suspect: bool
    column_ids: Sequence[int]
    op: int | None
    has_status: bool
    path: str
    files: OpenRuns

    def column(self, column_id: int, lower: int, upper: int) -> ColumnBuffers:
        with self.files.use(self.path) as file:
            return file.read(column_id, lower, upper)

    def numbers(self, lower: int, upper: int) -> np.ndarray:
        return self.column(NUMBER_ID, lower, upper).values.view(np.int64)

    def ops(self, lower: int, upper: int) -> np.ndarray:
        return self.column(OPERATION_ID, lower, upper).values

    def status(self, lower: int, upper: int) -> np.ndarray | None:
        return self.column(STATUS_ID, lower, upper).values if self.has_status else None


def spill_run(fs: FileSystem, schema: Schema, run: MemoryRun, path: str, files: OpenRuns) -> SpilledRun:
    """Write a run to a file that need not survive a crash."""
    count = max((s.upper for s in run.spans.values()), default=0)
    status = run.status(0, count)

    def columns() -> Iterable[tuple[ColumnSpec, ColumnBuffers]]:
        for column_id in run.column_ids:
            column = schema.by_id[column_id]
            spec = ColumnSpec(
                column_id, column.type, True, encoding=column.encoding, compression=column.compression
            )
            yield spec, run.column(column_id, 0, count)
        yield _extra(NUMBER_ID, "int64", run.numbers(0, count))
        if run.op is None:
            yield _extra(OPERATION_ID, "uint8", run.ops(0, count))
        if status is not None:
            yield _extra(STATUS_ID, "uint8", status)

    write_rows_file(fs, path, RowsFileSpec(columns(), durable=False))
    return SpilledRun(
        run.call,
        run.unique,
        run.alone,
        run.spans,
        run.nbytes,
        run.suspect,
        run.column_ids,
        run.op,
        status is not None,
        path,
        files,
    )


def _extra(column_id: int, type_: str, cells: np.ndarray) -> tuple[ColumnSpec, ColumnBuffers]:
    column = ColumnBuffers(cells.itemsize, len(cells), np.ascontiguousarray(cells).view(np.uint8))
    return ColumnSpec(column_id, ColumnType.parse(type_), False), column
