from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
MutableBytes = bytearray | memoryview | npt.NDArray[np.uint8]  # uint8_t[::1], written

def decode_fixed(
    payload: Bytes,
    width: int,
    out: MutableBytes,
    out_validity: MutableBytes | None,
    first: int,
    count: int,
    out_bit: int = 0,
) -> int: ...
def decode_pages(
    payloads: Iterable[Bytes],
    width: int,
    out: MutableBytes,
    out_validity: MutableBytes | None,
    firsts: npt.NDArray[np.int64],  # const int64_t[::1]
    counts: npt.NDArray[np.int64],  # const int64_t[::1]
) -> int: ...
def cells_fixed(
    payload: Bytes,
    width: int,
    rows: npt.NDArray[np.int64],  # const int64_t[::1]
    out: MutableBytes,
    out_validity: MutableBytes | None = None,
    out_bit: int = 0,
) -> None: ...
