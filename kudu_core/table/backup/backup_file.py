"""Files of a backup's rows, each one Arrow IPC stream.

Each is written by one attempt of one task.  The backup's manifest has name, length, row count and CRC-32C of
each, which whoever reads it checks; a file that no manifest names is never looked at.  Knows nothing of Spark
or of tablets.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.common.format.names import staged_file
from kudu_core.errors import Corruption
from kudu_core.fs.missing import FileMissing

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


@dataclass(frozen=True, slots=True)
class BackupFile:
    """What a reader must know of one.  Picklable."""

    name: str
    rows: int
    size: int
    """Bytes."""
    crc: int
    """CRC-32C of the whole file."""


class BackupFileWriter:
    """Writes one.  ``name`` is one that no other attempt uses."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        name: str,
        schema: pa.Schema,
        *,
        compression: str | None = None,
    ) -> None:
        """``compression``: of Arrow's buffers, "lz4" or "zstd"."""
        self._sink = _Sink(fs.create(f"{directory}/{name}"))
        options = pa.ipc.IpcWriteOptions(compression=compression)
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), schema, options=options)
        self._name = name
        self._rows = 0

    def append(self, batch: pa.RecordBatch) -> None:
        self._stream.write_batch(batch)
        self._rows += batch.num_rows

    def finish(self) -> BackupFile:
        """Make the file durable."""
        self._stream.close()
        sink = self._sink
        sink.file.sync()
        sink.file.close()
        return BackupFile(self._name, self._rows, sink.size, sink.crc)

    def discard(self) -> None:
        """After an error: let go of the file; it goes with its job's directory."""
        self._sink.file.close()


class _Sink:
    """What pyarrow writes to: appends to a file of ``fs`` and keeps its checksum."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.size = 0
        self.crc = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if view.nbytes:
            self.file.append(view)
            self.crc = crc32c(view, self.crc)
            self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def read_backup_file(fs: FileSystem, directory: str, told: BackupFile) -> pa.Table:
    """The rows of a file, checked against what its writer told; ``Corruption`` when they differ."""
    try:
        path = f"{directory}/{staged_file(told.name)}"
    except ValueError as exc:
        raise Corruption(directory, 0, str(exc)) from None
    try:
        with closing(fs.open_read(path, told.size)) as file:
            size = file.size()
            if size != told.size:
                reason = f"the backup's file has {size} bytes, its writer wrote {told.size}"
                raise Corruption(path, min(size, told.size), reason)
            data = file.pread(size, 0)
    except (FileNotFoundError, FileMissing):
        raise Corruption(path, 0, "the backup's file is missing") from None
    if crc32c(data) != told.crc:
        raise Corruption(path, 0, "the backup's file's checksum does not match")
    try:
        rows = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        rows.validate(full=True)  # before anything reads what the buffers say
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise Corruption(path, 0, f"the backup's file holds no rows: {exc}") from exc
    if rows.num_rows != told.rows:
        raise Corruption(path, 0, f"the backup's file has {rows.num_rows} rows, its writer wrote {told.rows}")
    return rows.combine_chunks()
