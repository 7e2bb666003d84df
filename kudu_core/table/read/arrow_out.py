"""What every lazy answer can do: hand its batches to Arrow and whoever speaks Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core.common.format.html_table import MOST_CHARACTERS, html_table
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from kudu_core.table.opened.handle import Handle

DATASET_MODULE = "kudu_core.engines.arrow.dataset"
"""The room above that knows engines over Arrow datasets.  It is found by its name when one is asked for:
it imports ``pyarrow.dataset``, and that pandas."""


def make_dataset(handle: Handle, at: Any) -> Dataset:
    """The table at a time as a ``pyarrow.dataset.Dataset``."""
    made: Dataset = import_module(DATASET_MODULE).TableDataset.of(handle, at)
    return made


def first_of(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """Its first rows, which hold on to no more memory than twice what they need."""
    if 2 * rows >= batch.num_rows:
        return batch.slice(0, rows)
    return batch.take(pa.array(np.arange(rows)))


class ArrowResult(ABC):
    """Batches of one schema, anew at every iteration.

    Speaks Arrow's C stream protocol: DuckDB, Polars and pyarrow take it as it is; pandas by ``to_pandas``.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(list(self), schema=self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """A pandas frame; ``options`` go to ``pyarrow.Table.to_pandas``.

        >>> stock.scan(["price"]).to_pandas().shape
        (3, 1)
        """
        return self.to_table().to_pandas(**options)

    def to_polars(self) -> Any:
        """A Polars frame.

        >>> stock.scan(["price"]).to_polars().shape
        (3, 1)
        """
        import polars

        return polars.from_arrow(self.to_table())

    def to_pylist(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.to_table().to_pylist()
        return rows

    def _told(self) -> list[tuple[str, str]]:
        """What is read, for people, without reading it."""
        return [("columns", ", ".join(self.schema.names))]

    def __repr__(self) -> str:
        told = "; ".join(f"{what} {text[:MOST_CHARACTERS]}" for what, text in self._told())
        return f"<kudu_core.{type(self).__name__}: {told}>"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, (), self._told())

    def __array__(self, *_: Any, **__: Any) -> Any:
        """What pandas asks for, to which a batch is a row."""
        raise InvalidArgument(
            f"a {type(self).__name__} is no array: to_pandas() makes a frame of it, to_table() a table"
        )

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = self.to_reader()
        if requested_schema is not None:
            wanted = pa.Schema._import_from_c_capsule(requested_schema)
            if wanted != reader.schema and wanted.names == reader.schema.names:
                reader = reader.cast(wanted)
        return reader.__arrow_c_stream__()
