from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.pages.holder import PageHolder
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.shape import RowShape

class PointFile(PageHolder):
    @property
    def can_find(self) -> bool: ...
    def __init__(
        self,
        rows: int,
        columns: dict[int, PointColumn],
        keys: Sequence[tuple[PointColumn, int, int, int]] | None,
        encoded: PointColumn | None,
        index: tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]] | None,
        bloom: npt.NDArray[np.uint8] | Callable[[], npt.NDArray[np.uint8] | None] | None,
        others: list[PageHolder] | None = None,
        make: Callable[[int], PointColumn | None] | None = None,
    ) -> None: ...
    def may_contain(self, hash: int) -> bool: ...
    def find(self, key: bytes, hash: int) -> int: ...
    def find_many(
        self,
        data: bytes | memoryview | npt.NDArray[np.uint8],  # const uint8_t[::1]
        offsets: npt.NDArray[np.int64],  # const int64_t[::1]
        hashes: npt.NDArray[np.uint64],  # const uint64_t[::1]
    ) -> npt.NDArray[np.int64]: ...
    def row(self, row: int, shape: RowShape) -> dict[str, Any]: ...
    def cells(
        self,
        column_ids: Sequence[Any],
        rows: npt.NDArray[np.int64],  # const int64_t[::1]
    ) -> list[
        tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32] | None, npt.NDArray[np.uint8] | None] | None
    ]: ...
