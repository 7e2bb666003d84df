import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
Offsets = npt.NDArray[np.int32]  # const int32_t[::1]

def encode_binary(
    offsets: Offsets, data: Bytes, validity: Bytes | None = None, prefix: bool = False
) -> bytes: ...
