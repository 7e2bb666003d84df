from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]

UNSIGNED: Final[int]
SIGNED: Final[int]
BINARY: Final[int]
DECIMAL: Final[int]

def murmur3(
    data: Bytes,
    offsets: npt.NDArray[np.int64],  # const int64_t[::1]
) -> npt.NDArray[np.uint64]: ...
def murmur3_one(key: Bytes) -> int: ...
def xxh64_column(
    kind: int,
    width: int,
    values: Bytes,
    offsets: npt.NDArray[np.int32] | None,  # const int32_t[::1]
    hashes: npt.NDArray[np.uint64],  # uint64_t[::1], written
) -> None: ...
def bucket(
    hashes: npt.NDArray[np.uint64],  # const uint64_t[::1]
    buckets: int,
) -> npt.NDArray[np.int32]: ...
