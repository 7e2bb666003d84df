import numpy as np
import numpy.typing as npt

def crc32c(
    data: bytes | bytearray | memoryview | npt.NDArray[np.uint8],  # const uint8_t[::1]
    value: int = 0,
) -> int: ...
def _choose(fast: bool) -> bool: ...
