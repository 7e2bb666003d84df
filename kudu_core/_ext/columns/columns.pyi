from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
_Offsets: TypeAlias = npt.NDArray[np.int32]  # const int32_t[::1]
_Rows: TypeAlias = npt.NDArray[np.int64]  # const int64_t[::1]
_Sources: TypeAlias = npt.NDArray[np.int32]  # const int32_t[::1]

def take_fixed(
    values: _Bytes, width: int, rows: _Rows, out: npt.NDArray[np.uint8] | None = None
) -> npt.NDArray[np.uint8]: ...
def interleave_fixed(
    parts: Iterable[_Bytes],
    width: int,
    source: _Sources,
    position: _Rows,
    out: npt.NDArray[np.uint8] | None = None,
    target: _Rows | None = None,
) -> npt.NDArray[np.uint8]: ...
def take_var(
    data: _Bytes, offsets: _Offsets, rows: _Rows
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]: ...
def interleave_var(
    parts: Iterable[tuple[_Offsets, _Bytes]], source: _Sources, position: _Rows
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]: ...
