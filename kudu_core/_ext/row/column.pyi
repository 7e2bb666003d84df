from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.files.page_loader import PageLoader
from kudu_core._ext.pages.holder import Held, PageHolder

class PointColumn(Held):
    def __init__(
        self,
        load: Callable[[int], tuple[Any, Any]] | PageLoader,
        page_count: int,
        stored_width: int,
        words: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]] | None = None,
        holder: PageHolder | None = None,
        remember: Callable[[Any, Any], object] | None = None,
        page_bits: int = 14,
    ) -> None: ...
