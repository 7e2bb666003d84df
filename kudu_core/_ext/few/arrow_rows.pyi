from typing import Any

from kudu_core._ext.row.row_writer import RowWriter
from kudu_core._ext.row.shape import Cell

def format_of(schema: Any) -> bytes: ...
def cells_of_batch(
    writer: RowWriter,
    formats: tuple[bytes, ...],
    schema: Any,
    batch: Any,
    operation: int,
    room: int,
) -> tuple[list[bytes], list[list[Cell]]] | None: ...
