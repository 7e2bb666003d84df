"""A row that was looked up, as Python has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types import values
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import StoredColumn


def shown_row(found: pa.Table, row: int) -> dict[str, Any]:
    """A row of an answer of ``get_many`` as Python has it; ``InvalidArgument`` as of ``get``."""
    made = {}
    for name in found.schema.names[:-1]:
        try:
            made[name] = found[name][row].as_py()
        except (OverflowError, ValueError) as error:
            raise InvalidArgument(
                f"column {name!r}: a value is none of Python's ({error}); read it as Arrow, by get_many"
            ) from None
    return made


def cell_value(column: StoredColumn, cells: ColumnBuffers, row: int = 0) -> Any:
    """A cell as Python has it; ``InvalidArgument`` where it has none like it."""
    if cells.validity is not None and not cells.validity[row >> 3] >> (row & 7) & 1:
        return None
    raw = values.unpack(column.type, cells.cell(row))
    return values.python(column.type, raw, f"column {column.name!r}")


__all__ = ["cell_value", "shown_row"]
