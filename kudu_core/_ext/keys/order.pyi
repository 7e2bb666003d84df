import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
Offsets = npt.NDArray[np.int64]  # const int64_t[::1]

def order(data: Bytes, offsets: Offsets) -> int: ...
def repeats(data: Bytes, offsets: Offsets, rows: Offsets) -> bool: ...
def same(data: Bytes, offsets: Offsets) -> npt.NDArray[np.uint8]: ...
def lower_bound(
    data: Bytes, offsets: Offsets, probe_data: Bytes, probe_offsets: Offsets, upper: bool = False
) -> npt.NDArray[np.int64]: ...
def group(
    data: Bytes,
    offsets: Offsets,
    hashes: npt.NDArray[np.uint64],  # const uint64_t[::1]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]: ...
