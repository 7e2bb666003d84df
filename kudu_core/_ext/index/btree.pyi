from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

class BTree:
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def lock(self) -> AbstractContextManager[bool]: ...
    def insert_sorted(
        self,
        arena_data: bytes | memoryview | npt.NDArray[np.uint8],  # const uint8_t[::1]
        arena_offsets: npt.NDArray[np.int64],  # const int64_t[::1]
        ordinals: npt.NDArray[np.uint32],  # const uint32_t[::1]
    ) -> None: ...
    def range(
        self,
        arena_data: bytes | memoryview | npt.NDArray[np.uint8],  # const uint8_t[::1]
        arena_offsets: npt.NDArray[np.int64],  # const int64_t[::1]
        lower: bytes | None,
        upper: bytes | None,
        limit: int,
        most: int | None = None,
    ) -> npt.NDArray[np.uint32]: ...
