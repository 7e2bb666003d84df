"""A table at one snapshot as a ``pyarrow.dataset.Dataset``: for DuckDB, Polars, DataFusion and pyarrow.

What the engines call: ``schema``, then ``scanner(columns=, filter=)`` and of that ``to_reader`` (DuckDB), or
``to_batches`` (Polars), ``head``, ``count_rows``.  Columns and filter become those of a scan of ours, so
they prune tablets, rowsets and pages; the filter is applied exactly, because the engines do not ask
for the columns that only the filter needs.

A ``Dataset`` is a C++ object that lists files, which a table cannot be: rows are deleted and changed
outside of them.  So every method is answered here, and the C++ object beside it holds one
fragment that refuses to be read: whatever reaches past these methods gets an error, not other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs as arrow_fs

from kudu_core.common.schema.schema import Schema
from kudu_core.common.where import expressions
from kudu_core.errors import InvalidArgument, NotSupported
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.plan import BATCH_ROWS, ScanRequest
from kudu_core.table.read.scan import Scan, open_scan
from kudu_core.table.read.snapshot import open_snapshot

if TYPE_CHECKING:
    from kudu_core.common.run.locks import Claim
    from kudu_core.table.opened.engine import Engine

HINTS = (
    "batch_readahead",
    "fragment_readahead",
    "fragment_scan_options",
    "use_threads",
    "cache_metadata",
    "memory_pool",
)
"""pyarrow's arguments about how files are read.  Taken, as engines pass them; the table's options decide."""


class TableDataset(ds.UnionDataset):  # type: ignore[misc]
    """A table at one snapshot, pinned as long as the dataset lives.

    Batches that were given out stay what they are, and a scan that has begun ends well, also after
    ``table.close()``; a new one then raises ``Closed``.  Columns are those of the moment when the
    dataset was made.
    """

    def __init__(self, held: _Held, where: pc.Expression | None) -> None:
        schema = held.schema.arrow
        super().__init__(schema, [_nothing_to_read(schema)])
        self._held = held
        self._handle = held.handle
        self._snapshot = held.snapshot
        self._columns = held.schema
        self._where = where

    @staticmethod
    def of(handle: Handle, at: Any) -> TableDataset:
        """What ``Table.to_dataset`` returns."""
        return TableDataset(_Held(handle, at), None)

    @property
    def timestamp(self) -> int:
        """The snapshot that is read."""
        return self._snapshot.timestamp

    # ---- reading ----

    def scanner(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **hints: Any,
    ) -> ds.Scanner:
        """Rows of the snapshot; a scanner serves once.

        Parameters
        ----------
        columns
            Names, in the order wanted; or names and expressions over the columns.
        filter
            As ``where`` of ``Table.scan``.
        batch_size
            The most rows of a batch.
        hints
            ``HINTS``: how pyarrow would read files.
        """
        _check_hints(hints)
        if isinstance(columns, str):
            raise InvalidArgument(f"columns is a list of names: [{columns!r}]")
        names = columns if columns is None else _needed(columns, self._columns)
        scan = self._scan(names, filter, batch_size)
        projection = None if names is None or list(names) == columns else columns
        # One thread there: the rows come from our pool, and with more of them Arrow reads far ahead.
        return ds.Scanner.from_batches(scan.to_reader(), columns=projection, use_threads=False)

    def to_batches(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **hints: Any,
    ) -> Iterator[pa.RecordBatch]:
        """The batches of ``scanner``, read one by one."""
        _check_hints(hints)
        if _is_plain(columns):
            return iter(self._scan(columns, filter, batch_size))
        batches: Iterator[pa.RecordBatch] = self.scanner(columns, filter, batch_size).to_batches()
        return batches

    def to_table(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **hints: Any,
    ) -> pa.Table:
        """All rows of ``scanner``."""
        _check_hints(hints)
        if _is_plain(columns):
            return self._scan(columns, filter, batch_size).to_table()
        return self.scanner(columns, filter, batch_size).to_table()

    def head(
        self,
        num_rows: int,
        columns: Any = None,
        filter: pc.Expression | None = None,
        batch_size: int | None = None,
        **hints: Any,
    ) -> pa.Table:
        """The first rows that come; no more are read than that takes."""
        _check_hints(hints)
        if _is_plain(columns):
            return self._scan(columns, filter, batch_size, limit=num_rows).to_table()
        return self.scanner(columns, filter, batch_size).head(num_rows)

    def count_rows(
        self, filter: pc.Expression | None = None, batch_size: int | None = None, **hints: Any
    ) -> int:
        """How many rows pass, reading only what the filter and deletions need."""
        _check_hints(hints)
        return self._scan([], filter, batch_size).count()

    def filter(self, expression: pc.Expression) -> TableDataset:
        """The rows of this dataset that also pass ``expression``; nothing is read yet."""
        where = self._both(expression)
        self._scan(None, expression, None)  # what does not fit the columns is found now
        return TableDataset(self._held, where)

    def _both(self, filter: pc.Expression | None) -> pc.Expression | None:
        if filter is not None and not isinstance(filter, pc.Expression):
            raise InvalidArgument(f"filter is a pyarrow.compute expression, not {filter!r}")
        if self._where is None or filter is None:
            return self._where if filter is None else filter
        return self._where & filter

    def _scan(
        self, columns: Any, filter: pc.Expression | None, batch_size: int | None, limit: int | None = None
    ) -> Scan:
        rows = BATCH_ROWS if batch_size is None else batch_size
        request = ScanRequest(columns, self._both(filter), limit=limit, batch_rows=rows)
        return open_scan(self._handle, request, self._snapshot, self._columns)

    # ---- what pyarrow does with rows that it has read ----

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows, read and sorted."""
        return self._read().sort_by(sorting, **options)

    def join(self, right_dataset: Any, keys: Any, *args: Any, **options: Any) -> ds.InMemoryDataset:
        """As ``pyarrow.dataset.Dataset.join``, of all rows, read."""
        return self._read().join(_plain(right_dataset), keys, *args, **options)

    def join_asof(self, right_dataset: Any, *args: Any, **options: Any) -> ds.InMemoryDataset:
        """As ``pyarrow.dataset.Dataset.join_asof``, of all rows, read."""
        return self._read().join_asof(_plain(right_dataset), *args, **options)

    def _read(self) -> ds.InMemoryDataset:
        return ds.InMemoryDataset(self.to_table())

    # ---- what a table has not ----

    def get_fragments(self, filter: pc.Expression | None = None) -> NoReturn:
        """There are none."""
        raise NotSupported("a table has no fragments that could be read by themselves; " + _HOW)

    def replace_schema(self, schema: pa.Schema) -> TableDataset:
        """This dataset, if ``schema`` is its own; give other columns to ``scanner``."""
        if schema != self.schema:
            raise NotSupported("the columns of a table's dataset are the table's; project them in scanner()")
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "a table's dataset does not travel to another process: open the table there with "
            f"kudu_core.open_table({self._handle.path!r}), and call to_dataset({self.timestamp})"
        )

    def __repr__(self) -> str:
        return f"<kudu_core dataset {self._handle.path!r} at {self.timestamp}>"


class _Held:
    """A snapshot and the columns of one moment; while this lives, both can be read."""

    def __init__(self, handle: Handle, at: Any) -> None:
        self.handle = handle
        self.snapshot = open_snapshot(handle, at)
        self.schema, self._columns = handle.steady(_pinned_columns)  # not older than the snapshot


def _pinned_columns(engine: Engine) -> tuple[Schema, Claim]:
    return engine.schema, engine.schema_pins.pin(engine.schema)


def _is_plain(columns: Any) -> bool:
    """Whether the columns of a scan are these as they are."""
    return columns is None or (isinstance(columns, list) and len(set(columns)) == len(columns))


def _needed(columns: Any, schema: Schema) -> list[str]:
    """Names of the table's columns that a projection takes, each once."""
    if not isinstance(columns, dict):
        return list(dict.fromkeys(columns))
    names: dict[str, None] = {}
    for expression in columns.values():
        node = expressions.parse(expression)
        # Not understood, it may take any column.
        taken = schema.declared_names if node is None else expressions.references(node)
        names.update(dict.fromkeys(name for name in schema.declared_names if name in taken))
        for name in sorted(set(taken) - set(schema.declared_names)):
            schema.column(name)  # says that there is none
    return list(names)


def _check_hints(hints: dict[str, Any]) -> None:
    for name in hints:
        if name not in HINTS:
            raise InvalidArgument(f"no argument {name!r}; beside columns, filter and batch_size: {HINTS}")
    if hints.get("fragment_scan_options") is not None:
        raise InvalidArgument("fragment_scan_options are about the format of files; a table takes none")


def _plain(dataset: Any) -> Any:
    return dataset._read() if isinstance(dataset, TableDataset) else dataset


# ---- the C++ object that is beside it ----

_HOW = "go through scanner(), to_batches() or to_table(), or give Table.scan() itself away"


class _Refuses(arrow_fs.FileSystemHandler):  # type: ignore[misc]
    """A file system of which nothing can be read."""

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise NotSupported("a table's rows are not in files that Arrow could read; " + _HOW)

    def get_type_name(self) -> str:
        return "kudu_core"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[arrow_fs.FileInfo]:
        return [arrow_fs.FileInfo(path, arrow_fs.FileType.File) for path in paths]

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refuse
    delete_root_dir_contents = delete_file = move = copy_file = _refuse
    open_input_stream = open_input_file = open_output_stream = open_append_stream = _refuse


def _nothing_to_read(schema: pa.Schema) -> ds.FileSystemDataset:
    """A dataset of one fragment, which raises ``NotSupported`` when C++ comes to read it."""
    files = arrow_fs.PyFileSystem(_Refuses())
    file_format = ds.IpcFileFormat()
    return ds.FileSystemDataset(
        [file_format.make_fragment("table", filesystem=files)], schema, file_format, files
    )


__all__ = ["TableDataset"]
