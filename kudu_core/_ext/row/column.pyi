from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

class Held: ...

class PageHolder:
    def __init__(self, *args: Any) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def pages(self) -> int: ...
    @property
    def held(self) -> tuple[Any, ...]: ...
    def forget(self, place: Any) -> bool: ...
    def close(self) -> None: ...

class PointColumn(Held):
    def __init__(
        self,
        load: Callable[[int], tuple[Any, Any]],
        page_count: int,
        stored_width: int,
        words: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]] | None = None,
        holder: PageHolder | None = None,
        remember: Callable[[Any, Any], None] | None = None,
    ) -> None: ...
