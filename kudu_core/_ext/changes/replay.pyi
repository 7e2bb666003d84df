from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kudu_core._ext.changes.positions import ChangePositions

_Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
_MutableBytes: TypeAlias = bytearray | memoryview | npt.NDArray[np.uint8]  # uint8_t[::1], written
_Rowids: TypeAlias = npt.NDArray[np.uint32]  # const uint32_t[::1]

class Updates:
    @property
    def width(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def nullable(self) -> bool: ...
    def __init__(
        self,
        rowids: _Rowids,
        values: _Bytes,
        width: int,
        validity: _Bytes | None = None,
        *,
        positions: ChangePositions | None = None,
        ascending: bool = False,
    ) -> None: ...
    def __len__(self) -> int: ...

def replay(
    updates: list[Updates],
    out: _MutableBytes,
    width: int,
    first_row: int,
    rows: int,
    validity: _MutableBytes | None = None,
) -> None: ...
def replay_at(
    updates: list[Updates],
    out: _MutableBytes,
    width: int,
    rows: npt.NDArray[np.int64],  # const int64_t[::1]
    validity: _MutableBytes | None = None,
) -> None: ...
