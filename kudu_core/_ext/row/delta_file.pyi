from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.pages.holder import Held, PageHolder
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.overlay import Store
from kudu_core._ext.row.shape import RowShape

Said = tuple[bool | None, dict[int, Any]]

class DecodedColumn(Held):
    @property
    def width(self) -> int: ...
    def __init__(
        self,
        load: Callable[[], tuple[npt.NDArray[np.uint8] | None, Any]],
        width: int,
        count: int,
        remember: Callable[[Any, Any], object] | None = None,
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
