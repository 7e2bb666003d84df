from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.view import PointView

List = tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]

class _File(Protocol):
    @property
    def points(self) -> PointFile: ...

class RowsInOrder:
    def __init__(
        self,
        first_keys: list[bytes],
        files: list[_File | None],
        listed: Callable[[int, int], Iterator[List]],
        lower: bytes | None,
        upper: bytes | None,
    ) -> None: ...
    @staticmethod
    def of_views(
        views: list[PointView],
        snapshot: int,
        listed: Callable[[int, int], Iterator[List]],
        lower: bytes | None,
        upper: bytes | None,
        ordered: bool,
    ) -> RowsInOrder: ...
    @property
    def begun(self) -> int: ...
    @property
    def last_key(self) -> bytes: ...
    def take(self, count: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]: ...
