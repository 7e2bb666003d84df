from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]

def find(
    columns: Sequence[tuple[Bytes, Bytes, int, bool]],
    block: npt.NDArray[np.int64],  # const int64_t[::1]
    block_rows: int,
) -> npt.NDArray[np.int64]: ...
