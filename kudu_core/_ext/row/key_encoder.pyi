from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

class KeyEncoder:
    @property
    def count(self) -> int: ...
    def __init__(self, names: Sequence[str], tags: Sequence[int], widths: Sequence[int]) -> None: ...
    def encode(self, key: Any) -> bytes | None: ...
    def encode_many(
        self, keys: list[Any] | tuple[Any, ...]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]] | None: ...
