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
