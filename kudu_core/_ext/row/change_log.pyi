from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.index.rowid_map import RowidMap
from kudu_core._ext.row.overlay import Store
from kudu_core._ext.row.shape import Cell, RowShape

Said = tuple[bool | None, dict[int, Any]]

class ChangePoints(Store):
    @property
    def liveness(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __init__(
        self,
        timestamps: AppendColumn,
        rowids: AppendColumn,
        ops: AppendColumn,
        before: AppendColumn,
        last: RowidMap,
    ) -> None: ...
    def add(
        self,
        column_id: int,
        numbers: AppendColumn,
        rowids: AppendColumn,
        values: AppendColumn,
        logs: dict[int, Any],
        log: Any,
    ) -> None: ...
    def reserve(self, n: int) -> None: ...
    def append_rows(
        self,
        ts: int,
        op: int,
        rowids: npt.NDArray[np.uint32],  # const uint32_t[::1]
    ) -> None: ...
    def reserve_one(self, ids: tuple[int | None, ...], cells: list[Cell]) -> int: ...
    def append_one(
        self, ts: int, op: int, rowid: int, ids: tuple[int | None, ...], cells: list[Cell]
    ) -> None: ...
    def count_liveness(self, changes: int) -> None: ...
    def touched(self, row: int) -> bool: ...
    def newest(
        self,
        column_id: int | None,
        rows: npt.NDArray[np.int64],  # const int64_t[::1]
        limit: int,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def row(self, row: int, snapshot: int, shape: RowShape) -> Said: ...
