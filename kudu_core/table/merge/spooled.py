"""Rows that are given to a merge and do not fit into memory: in a file of ``staging/`` while it is decided.

Each batch is a stream of Arrow's IPC format.  Nobody reads the file after a crash; it is collected with its
folder (protocol G6).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kudu_core.common.rows.arrow_in import GivenRows

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


class SpooledRows:
    """Batches of rows, written one after the other and read any number of times.  A context manager."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs, self._path = fs, path
        self._file = fs.create(path)
        self._size = 0
        self._parts: list[tuple[int, int, int, np.ndarray | None, bool]] = []
        """(offset, bytes, first row, numbers of the rows, from rows)."""

    def add(self, part: GivenRows) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.batch.schema) as writer:
            writer.write_batch(part.batch)
        data = sink.getvalue()
        self._file.append(data)
        self._parts.append((self._size, data.size, part.first, part.numbers, part.from_rows))
        self._size += data.size

    def __iter__(self) -> Iterator[GivenRows]:
        file = self._fs.open_read(self._path, self._size)
        try:
            for offset, size, first, numbers, from_rows in self._parts:
                with pa.ipc.open_stream(pa.py_buffer(file.pread(size, offset))) as reader:
                    yield GivenRows(reader.read_next_batch(), first, numbers, from_rows)
        finally:
            file.close()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SpooledRows:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


__all__ = ["SpooledRows"]
