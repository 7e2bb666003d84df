"""What a ``Table`` does as other tables and containers do: its length, its head, its Arrow stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.common.format.html_table import html_table
from kudu_core.errors import InvalidArgument, shown
from kudu_core.table.opened.handle import HandleOwner
from kudu_core.table.read import points
from kudu_core.table.read.plan import ScanRequest
from kudu_core.table.read.scan import Scan, count, open_scan

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import StoredColumn


class TableManners(HandleOwner):
    """The part of ``Table`` that Python and other packages know by its names.

    Speaks Arrow's C stream protocol, as its ``scan()`` does: ``pyarrow.table(table)``, DuckDB and
    ``polars.DataFrame(table)`` read all rows of now.
    """

    def head(self, n: int = 5, columns: Any = None) -> pa.Table:
        """Some ``n`` rows of now, all if there are no more.  Which ones is not said.

        >>> stock.head(2, ["price"]).num_rows
        2
        """
        return self._all(ScanRequest(columns, limit=n)).to_table()

    def to_table(self) -> pa.Table:
        """All rows of now; ``scan`` reads some, or some columns, or another time.

        >>> stock.to_table().column_names
        ['id', 'name', 'price']
        """
        return self._all().to_table()

    def to_pandas(self, **options: Any) -> Any:
        """All rows of now as a pandas frame; ``options`` go to ``pyarrow.Table.to_pandas``.

        >>> stock.to_pandas().shape
        (3, 3)
        """
        return self._all().to_pandas(**options)

    def to_polars(self) -> Any:
        """All rows of now as a Polars frame.

        >>> stock.to_polars().shape
        (3, 3)
        """
        return self._all().to_polars()

    def __len__(self) -> int:
        return count(self._handle, None, None)

    def __bool__(self) -> bool:
        return True  # it is there, whether or not it has rows; and nobody counts them to see that

    def __contains__(self, key: Any) -> bool:
        """Whether a row has the key, which may be all that ``get`` takes."""
        first = self._handle.engine.schema.key_names[:1]
        return points.get(self._handle, key, first, None) is not None

    def __iter__(self) -> Iterator[Any]:
        raise InvalidArgument(
            "a Table is not iterated: for batch in table.scan(), or one of to_table(), to_pandas() and "
            "to_polars(), reads its rows"
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        """What pandas asks for, to which a row is a list of cells and all columns are of one type."""
        raise InvalidArgument("a Table is no array: to_pandas() makes a frame of it, to_table() a table")

    def __arrow_c_schema__(self) -> Any:
        return self._handle.opened().schema.arrow.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._all().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Its columns, for notebooks; no row is read."""
        engine = self._handle.engine
        key = engine.schema.key_names
        title = f"{engine.path} ({engine.partitions.told})"
        header = "column", "type", "key", "NULL", "default"
        return html_table(title, header, (_told(column, key) for column in engine.schema.columns))

    def _all(self, request: ScanRequest | None = None) -> Scan:
        return open_scan(self._handle, request or ScanRequest(), None)


def _told(column: StoredColumn, key: tuple[str, ...]) -> tuple[object, ...]:
    place = key.index(column.name) + 1 if column.name in key else ""
    default = "" if column.write_default is None else shown(column.write_default)
    return column.name, column.type, place, "yes" if column.nullable else "no", default


__all__ = ["TableManners"]
