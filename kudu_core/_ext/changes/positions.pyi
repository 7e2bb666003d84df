from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Rowids: TypeAlias = npt.NDArray[np.uint32]  # const uint32_t[::1]
_Positions: TypeAlias = npt.NDArray[np.int64]  # const int64_t[::1]

def bucket_sort(rowids: _Rowids, shift: int) -> tuple[_Positions, _Positions]: ...

class ChangePositions:
    @property
    def count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __init__(self, rowids: _Rowids) -> None: ...
