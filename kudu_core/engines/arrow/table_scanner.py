"""A scan in the shape of a ``pyarrow.dataset.Scanner``: what engines ask a dataset for.

Arrow's own scanner reads on in the background, however few batches are taken from it: of a
``LIMIT 5`` it reads the whole table.  This one reads as it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from kudu_core.table.read.scan import Scan


class TableScanner:
    """Rows of a dataset or of a fragment; may be read any number of times.

    It is no ``pyarrow.dataset.Scanner``: that is a C++ object, which would be read past these methods.
    What needs one takes the Arrow stream that this is too, as ``pyarrow.dataset.write_dataset`` does.
    """

    def __init__(self, scan: Scan, dataset_schema: pa.Schema) -> None:
        self._scan = scan
        self._dataset_schema = dataset_schema

    @property
    def dataset_schema(self) -> pa.Schema:
        """All columns that there are."""
        return self._dataset_schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that are read."""
        return self._scan.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """A stream of the rows."""
        return self._scan.to_reader()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, read one by one."""
        return iter(self._scan)

    def to_table(self) -> pa.Table:
        """All rows."""
        return self._scan.to_table()

    def head(self, num_rows: int) -> pa.Table:
        """The first rows that come; no batch after them is read."""
        found: list[pa.RecordBatch] = []
        for batch in self._scan if num_rows > 0 else ():
            found.append(batch.slice(0, num_rows))
            num_rows -= found[-1].num_rows
            if num_rows == 0:
                break
        return pa.Table.from_batches(found, schema=self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Rows by their places, as ``pyarrow.dataset.Scanner.take``; all are read."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """How many rows there are."""
        return self._scan.count()

    def __arrow_c_schema__(self) -> Any:
        return self._scan.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._scan.__arrow_c_stream__(requested_schema)


AnyScanner = TableScanner | ds.Scanner

__all__ = ["AnyScanner", "TableScanner"]
