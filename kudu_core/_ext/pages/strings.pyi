from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
Offsets = npt.NDArray[np.int32]  # const int32_t[::1]
Allocate = Callable[[int], npt.NDArray[np.uint8]]
Cells = tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8], npt.NDArray[np.uint8] | None]

def decode_binary(payload: Bytes, first: int, count: int, allocate: Allocate | None = None) -> Cells: ...
def cells_binary(
    payload: Bytes,
    rows: npt.NDArray[np.int64],  # const int64_t[::1]
) -> Cells: ...
