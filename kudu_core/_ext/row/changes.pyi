from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.index.rowid_map import RowidMap
from kudu_core._ext.row.codec import Cell, RowShape
from kudu_core._ext.row.column import Held, PageHolder, PointColumn

Said = tuple[bool | None, dict[int, Any]]

class Overlay: ...
class Store:
    def let_go(self) -> None: ...

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
        self, column_id: int, numbers: AppendColumn, rowids: AppendColumn, values: AppendColumn
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

class DecodedColumn(Held):
    @property
    def width(self) -> int: ...
    def __init__(
        self,
        load: Callable[[], tuple[npt.NDArray[np.uint8] | None, Any]],
        width: int,
        count: int,
        remember: Callable[[Any, Any], None] | None = None,
    ) -> None: ...

class DeltaPoints(PageHolder):
    def __init__(
        self,
        rowids: DecodedColumn,
        ops: DecodedColumn,
        times: DecodedColumn | None,
        columns: Sequence[tuple[int, DecodedColumn, PointColumn]],
    ) -> None: ...
    def touched(
        self,
        rows: npt.NDArray[np.int64],  # const int64_t[::1]
    ) -> npt.NDArray[np.bool_]: ...
    def newest(
        self,
        column_id: int | None,
        rows: npt.NDArray[np.int64],  # const int64_t[::1]
        snapshot: int | None,
        undo: bool,
    ) -> tuple[npt.NDArray[np.int64], Any] | None: ...

class ChangeFile(Store):
    @property
    def undo(self) -> bool: ...
    def __init__(
        self,
        open: Callable[[], DeltaPoints],
        undo: bool,
        min_ts: int,
        max_ts: int,
        columns: tuple[int, ...] | None = None,
        liveness: bool = True,
    ) -> None: ...
    def row(self, row: int, snapshot: int, shape: RowShape) -> Said: ...
