from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

class KeyOrder:
    @property
    def rows(self) -> int: ...
    @property
    def page_count(self) -> int: ...
    @property
    def columns(self) -> int: ...
    def __init__(self, rows: int, columns: Sequence[tuple[int, int, npt.NDArray[np.uint64]]]) -> None: ...
    def ranges(
        self,
        lower: int,
        upper: int,
        spans: Sequence[npt.NDArray[np.uint64] | None],  # (n, 2)
        load: Callable[[int, int, int], Sequence[Any]],
        least_run: int = 0,
    ) -> tuple[npt.NDArray[np.int64], int | None]: ...
    def seek(
        self,
        cells: npt.NDArray[np.uint64],  # const uint64_t[::1]
        beyond: bool,
        load: Callable[[int, int, int], Sequence[Any]],
    ) -> int: ...
