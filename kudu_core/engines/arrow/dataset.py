"""A table at one snapshot as a ``pyarrow.dataset.Dataset``: for DuckDB, Polars, DataFusion, Dask and pyarrow.

What the engines call: ``schema``, then ``scanner(columns=, filter=)`` and of that ``to_reader`` (DuckDB), or
``to_batches`` (Polars), ``head``, ``count_rows``; or ``get_fragments(filter)``, and ``scanner`` of each
(DataFusion, Dask).  All of these are answered here and in ``dataset_rows.py``.

A ``Dataset`` is a C++ object that lists files, and some of pyarrow reads it past these methods: acero's scan
node, joins, ``Scanner.from_dataset``, unions.  For them ``share_files.py`` shows the table's shares as
files.  They are planned when pyarrow asks how to scan (``_scanner_options``, ``replace_schema``,
``children``); what reaches past that too gets an error, not other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kudu_core.engines.arrow.dataset_rows import DatasetMoment, Rows, both
from kudu_core.engines.arrow.fragments import FRAGMENT_ROWS, TableFragment, fragments_of
from kudu_core.engines.arrow.share_files import as_files, nothing_to_read
from kudu_core.table.opened.handle import Handle


class TableDataset(Rows, ds.UnionDataset):  # type: ignore[misc]
    """A table at one snapshot, pinned as long as the dataset lives.

    Batches that were given out stay what they are, and a scan that has begun ends well, also after
    ``table.close()``; a new one then raises ``Closed``.  Columns are those of the moment when the
    dataset was made.
    """

    def __init__(self, held: DatasetMoment, where: pc.Expression | None) -> None:
        schema = held.arrow_schema
        super().__init__(schema, [nothing_to_read(schema)])
        self._held = held
        self._where = where
        self._shown = False

    @staticmethod
    def of(handle: Handle, at: Any) -> TableDataset:
        """What ``Table.to_dataset`` returns."""
        return TableDataset(DatasetMoment(handle, at), None)

    @property
    def timestamp(self) -> int:
        """The snapshot that is read."""
        return self._held.snapshot.timestamp

    # ---- reading ----

    def filter(self, expression: pc.Expression) -> TableDataset:
        """The rows of this dataset that also pass ``expression``; nothing is read yet."""
        where = both(self._where, expression)
        self._scan(None, expression, None)  # what does not fit the columns is found now
        return TableDataset(self._held, where)

    def get_fragments(
        self, filter: pc.Expression | None = None, target_rows: int = FRAGMENT_ROWS
    ) -> Iterator[TableFragment]:
        """Shares of about ``target_rows`` rows, without those that have nothing that passes ``filter``.

        As of pyarrow's, the rows of a fragment are not filtered by it: give it to the fragment too.
        """
        return iter(fragments_of(self._held, self._where, filter, target_rows))

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

    # ---- the C++ object ----

    @property
    def children(self) -> list[ds.Dataset]:
        """One, for pyarrow: the shares of the table as files."""
        self._show_files()
        found: list[ds.Dataset] = super().children
        return found

    def replace_schema(self, schema: pa.Schema) -> ds.Dataset:
        """The same rows with the columns of ``schema``: fewer, in another order, of other types, or more, as
        NULL.  Of another schema than its own it is a dataset of pyarrow's, of shares as files."""
        self._show_files()
        if schema == self.schema:
            return self
        return as_files(self._held, self._where, schema)

    def _scanner_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """pyarrow asks this before it hands the C++ object to C++."""
        self._show_files()
        found: dict[str, Any] = super()._scanner_options(options)
        return found

    def _show_files(self) -> None:
        """From now on the C++ object can be read.  Two threads may both do this: what they make is alike."""
        if not self._shown:
            schema = self._held.arrow_schema
            ds.UnionDataset.__init__(self, schema, [as_files(self._held, self._where, schema)])
            self._shown = True

    # ---- what a dataset has not ----

    def __reduce__(self) -> Any:
        raise TypeError(
            "a table's dataset does not travel to another process: open the table there with "
            f"kudu_core.open_table({self._held.handle.path!r}), and call to_dataset({self.timestamp})"
        )

    def __repr__(self) -> str:
        return f"<kudu_core dataset {self._held.handle.path!r} at {self.timestamp}>"


def _plain(dataset: Any) -> Any:
    return dataset._read() if isinstance(dataset, TableDataset) else dataset


__all__ = ["TableDataset"]
