from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
Offsets = npt.NDArray[np.int64]  # const int64_t[::1]
Encoded = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]

UNSIGNED: Final[int]
SIGNED: Final[int]
BINARY: Final[int]
DECIMAL: Final[int]

def encode(
    columns: Sequence[tuple[int, int, Bytes, npt.NDArray[np.int32] | None]],
    n: int,
) -> Encoded: ...
def decode(
    data: Bytes, offsets: Offsets, types: Sequence[tuple[int, int]]
) -> list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32] | None]]: ...
def order(data: Bytes, offsets: Offsets) -> int: ...
def sort(data: Bytes, offsets: Offsets) -> npt.NDArray[np.int64]: ...
def group(
    data: Bytes,
    offsets: Offsets,
    hashes: npt.NDArray[np.uint64],  # const uint64_t[::1]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]: ...
def lower_bound(
    data: Bytes, offsets: Offsets, probe_data: Bytes, probe_offsets: Offsets, upper: bool = False
) -> npt.NDArray[np.int64]: ...
def take(
    data: Bytes,
    offsets: Offsets,
    rows: npt.NDArray[np.int64],  # const int64_t[::1]
) -> Encoded: ...
def concat(parts: Sequence[tuple[Bytes, Offsets]]) -> Encoded: ...
