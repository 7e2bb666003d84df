from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.pages.holder import Held, PageHolder

Load = Callable[[list[int]], Sequence[tuple[Any, Any]]]

class ScanColumn(Held):
    @property
    def width(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def page_bits(self) -> int: ...
    def __init__(
        self,
        file: PageHolder,
        load: Load,
        rows: int,
        stored_width: int,
        words: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]] | None = None,
        remember: Callable[[Any, Any], object] | None = None,
        page_bits: int = 14,
    ) -> None: ...
