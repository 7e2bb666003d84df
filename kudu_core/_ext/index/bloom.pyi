import numpy as np
import numpy.typing as npt

MAX_BITS_PER_KEY: int

def bits_per_key(false_positive_rate: float) -> int: ...
def build(
    hashes: npt.NDArray[np.uint64],  # const uint64_t[::1]
    bits_per_key: int,
) -> npt.NDArray[np.uint8]: ...
def probe(
    filter: bytes | memoryview | npt.NDArray[np.uint8],  # const uint8_t[::1]
    hashes: npt.NDArray[np.uint64],  # const uint64_t[::1]
    rows: npt.NDArray[np.int64] | None = None,  # const int64_t[::1]
) -> npt.NDArray[np.uint8]: ...
def _choose(fast: bool) -> bool: ...
