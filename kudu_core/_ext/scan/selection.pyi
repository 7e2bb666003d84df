from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Load = Callable[[list[int]], Sequence[tuple[Any, Any]]]

class ScanFile:
    @property
    def closed(self) -> bool: ...
    @property
    def pages(self) -> int: ...
    @property
    def held(self) -> tuple[Any, ...]: ...
    def __init__(self) -> None: ...
    def forget(self, place: Any) -> bool: ...
    def close(self) -> None: ...

class ScanColumn:
    @property
    def width(self) -> int: ...
    @property
    def rows(self) -> int: ...
    def __init__(
        self,
        file: ScanFile,
        load: Load,
        rows: int,
        stored_width: int,
        words: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]] | None = None,
        remember: Callable[[Any, Any], None] | None = None,
    ) -> None: ...

class CellSet:
    def __init__(
        self,
        kind: int,
        width: int,
        lows: npt.NDArray[np.uint64],
        highs: npt.NDArray[np.uint64],
        nulls: bool,
        words: int = 0,
    ) -> None: ...
    @staticmethod
    def of_strings(
        data: bytes | memoryview | npt.NDArray[np.uint8],  # const uint8_t[::1]
        offsets: npt.NDArray[np.int64],  # const int64_t[::1]
        open_end: bool,
        nulls: bool,
    ) -> CellSet: ...

class Selection:
    @property
    def rows(self) -> int: ...
    @property
    def file_rows(self) -> int: ...
    @property
    def chosen(self) -> int: ...
    def __init__(
        self,
        ranges: npt.NDArray[np.int64],  # const int64_t[:, ::1]
        file_rows: int,
        live: npt.NDArray[np.uint8] | None = None,
    ) -> None: ...
    def test(
        self, column: ScanColumn, test: CellSet, states: npt.NDArray[np.uint8] | None = None
    ) -> None: ...
    def keep(self, passed: npt.NDArray[np.uint8]) -> None: ...
    def rowids(self) -> npt.NDArray[np.int64]: ...
