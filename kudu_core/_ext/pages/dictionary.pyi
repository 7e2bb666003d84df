from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
Offsets = npt.NDArray[np.int32]  # const int32_t[::1]
Codes = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

def dictionary_build(
    offsets: Offsets,
    data: Bytes,
    validity: Bytes | None,
    max_words: int,
    max_bytes: int = 0x7FFFFFFF,
) -> tuple[Codes, npt.NDArray[np.int32], npt.NDArray[np.uint8]] | None: ...
def dictionary_expand(
    codes: Bytes,
    width: int,
    word_offsets: Offsets,
    word_data: Bytes,
    validity: Bytes | None = None,
    allocate: Callable[[int], npt.NDArray[np.uint8]] | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]: ...
