"""What every lazy answer can do: hand its batches to Arrow and whoever speaks Arrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from kudu_core.table.opened.handle import Handle

make_dataset: Callable[[Handle, Any], Any] | None = None
"""(handle, at) -> ``pyarrow.dataset.Dataset``.  Set by the room above that knows such engines
(``kudu_core.engines.arrow``), which importing ``kudu_core`` imports."""


class ArrowResult(ABC):
    """Batches of one schema, anew at every iteration.

    Speaks Arrow's C stream protocol: DuckDB, Polars, pandas and pyarrow take it as it is.
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

    def __arrow_c_schema__(self) -> Any:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = self.to_reader()
        if requested_schema is not None:
            wanted = pa.Schema._import_from_c_capsule(requested_schema)
            if wanted != reader.schema and wanted.names == reader.schema.names:
                reader = reader.cast(wanted)
        return reader.__arrow_c_stream__()
