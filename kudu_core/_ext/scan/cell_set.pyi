import numpy as np
import numpy.typing as npt

class CellSet:
    def __init__(
        self,
        kind: int,
        width: int,
        lows: npt.NDArray[np.uint64],
        highs: npt.NDArray[np.uint64],
        nulls: bool,
        words: int = 0,
    ) -> None: ...
    @staticmethod
    def of_strings(
        data: bytes | memoryview | npt.NDArray[np.uint8],  # const uint8_t[::1]
        offsets: npt.NDArray[np.int64],  # const int64_t[::1]
        open_end: bool,
        nulls: bool,
    ) -> CellSet: ...
