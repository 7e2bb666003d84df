from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]

OFFSETS: int
TEXT: int

def variable(
    data: _Bytes, offsets: npt.NDArray[np.int32], valid: _Bytes | None, text: bool
) -> tuple[int, int] | None: ...
def views(cells: _Bytes, parts: Sequence[_Bytes], valid: _Bytes | None) -> int: ...
def digits(values: _Bytes, precision: int, valid: _Bytes | None) -> int: ...
def _choose(fast: bool) -> bool: ...
