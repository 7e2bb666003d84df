"""A table's dataset as a C++ object: for what reads datasets past Python (acero's scan node, unions, joins).

C++ knows datasets of files alone.  So each share of the table (``fragments.py``) is a file to it, in a file
system of ours: when one is opened, its rows are read and laid out in Arrow's file format, in memory.  The
range of keys of each file is told to Arrow, which does not open those that its filter excludes.
"""

from __future__ import annotations

from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs as arrow_fs

from kudu_core.engines.arrow.dataset_rows import DatasetMoment
from kudu_core.engines.arrow.fragments import TableFragment, fragments_of
from kudu_core.errors import NotSupported

FILE_ROWS = 1 << 17
"""Rows of a file, about: Arrow holds some files at a time in memory."""
HOW = "go through scanner(), to_batches() or to_table(), or give Table.scan() itself away"


def as_files(held: DatasetMoment, where: pc.Expression | None, schema: pa.Schema) -> ds.FileSystemDataset:
    """The rows that pass ``where``, with the columns of ``schema`` that the table has; Arrow makes the others
    NULL, and casts those of another type."""
    names = [name for name in schema.names if name in held.schema.declared_names]
    files = _ShareFiles(fragments_of(held, where, None, FILE_ROWS), names)
    return _dataset(files, [fragment.partition_expression for fragment in files.shares], schema)


def nothing_to_read(schema: pa.Schema) -> ds.FileSystemDataset:
    """A dataset of one file, which raises ``NotSupported`` when C++ comes to read it."""
    return _dataset(_Refuses(), [pc.scalar(True)], schema)


def _dataset(
    files: arrow_fs.FileSystemHandler, guarantees: list[pc.Expression], schema: pa.Schema
) -> ds.FileSystemDataset:
    system, file_format = arrow_fs.PyFileSystem(files), ds.IpcFileFormat()
    fragments = [
        file_format.make_fragment(str(place), filesystem=system, partition_expression=known)
        for place, known in enumerate(guarantees)
    ]
    return ds.FileSystemDataset(fragments, schema, file_format, system)


class _Refuses(arrow_fs.FileSystemHandler):  # type: ignore[misc]
    """A file system of which nothing can be read."""

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise NotSupported("a table's rows are not in files that Arrow could read; " + HOW)

    def get_type_name(self) -> str:
        return "kudu_core"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[arrow_fs.FileInfo]:
        return [arrow_fs.FileInfo(path, arrow_fs.FileType.File) for path in paths]

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
    delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_input_stream = open_input_file = open_output_stream = open_append_stream = _refuse


class _ShareFiles(_Refuses):
    """A file for each share, named by its place among them."""

    def __init__(self, shares: list[TableFragment], names: list[str]) -> None:
        self.shares = shares
        self._names = names

    def open_input_file(self, path: str) -> pa.BufferReader:
        scanner = self.shares[int(path)].scanner(columns=self._names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, scanner.projected_schema) as file:
            for batch in scanner.to_batches():
                file.write_batch(batch)
        return pa.BufferReader(sink.getvalue())

    def __reduce__(self) -> NoReturn:
        raise TypeError("files of a table's shares do not travel to another process: send get_fragments()")


__all__ = ["HOW", "as_files", "nothing_to_read"]
