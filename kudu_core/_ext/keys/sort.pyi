import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
Offsets = npt.NDArray[np.int64]  # const int64_t[::1]

def sort(data: Bytes, offsets: Offsets) -> npt.NDArray[np.int64]: ...
