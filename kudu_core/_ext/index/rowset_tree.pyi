import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

class BoundsTree:
    overlap_ns: int
    @property
    def count(self) -> int: ...
    def __init__(self, first: tuple[U8, I64], last: tuple[U8, I64]) -> None: ...
    def point(self, key: bytes) -> I64: ...
    def range(self, lower: bytes | None, upper: bytes | None) -> I64: ...
    def batch(
        self,
        data: U8,  # const uint8_t[::1]
        offsets: I64,  # const int64_t[::1]
    ) -> tuple[I64, I64, I64]: ...
