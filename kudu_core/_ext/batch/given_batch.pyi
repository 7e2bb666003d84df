from typing import Any

import numpy as np

from kudu_core._ext.row.row_writer import RowWriter

class GivenBatch:
    rows: int
    data: np.ndarray
    offsets: np.ndarray
    hashes: np.ndarray
    writer: RowWriter
    def __init__(self, writer: RowWriter, rows: int) -> None: ...
    def __len__(self) -> int: ...
    def complete(self, room: int) -> bool: ...

def batch_of(
    writer: RowWriter,
    formats: tuple[bytes, ...],
    kinds: tuple[tuple[int, int, int], ...],
    schema: Any,
    batch: Any,
    operation: int,
    room: int,
) -> GivenBatch | None: ...
