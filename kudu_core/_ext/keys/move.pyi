from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
Offsets = npt.NDArray[np.int64]  # const int64_t[::1]
Encoded = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]

def take(
    data: Bytes,
    offsets: Offsets,
    rows: npt.NDArray[np.int64],  # const int64_t[::1]
) -> Encoded: ...
def concat(parts: Sequence[tuple[Bytes, Offsets]]) -> Encoded: ...
def interleave(
    parts: Sequence[tuple[Bytes, Offsets]],
    source: npt.NDArray[np.int32],  # const int32_t[::1]
    position: npt.NDArray[np.int64],  # const int64_t[::1]
) -> Encoded: ...
