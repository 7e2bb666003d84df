from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Bytes: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
_MutableBytes: TypeAlias = bytearray | memoryview | npt.NDArray[np.uint8]  # uint8_t[::1], written
_Rowids: TypeAlias = npt.NDArray[np.uint32]  # const uint32_t[::1]
_Offsets: TypeAlias = npt.NDArray[np.int32]  # const int32_t[::1]
_Positions: TypeAlias = npt.NDArray[np.int64]  # const int64_t[::1]

def apply_fixed(
    values: _MutableBytes,
    width: int,
    first_row: int,
    rowids: _Rowids,
    new_values: _Bytes,
    order: _Positions | None = None,
) -> None: ...
def last_per_row(rowids: _Rowids, first_row: int, n: int, order: _Positions | None = None) -> _Positions: ...
def overlay_var(
    offsets: _Offsets,
    data: _Bytes,
    first_row: int,
    rowids: _Rowids,
    new_offsets: _Offsets,
    new_data: _Bytes,
    order: _Positions | None = None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]: ...
def apply_bits(
    bits: _MutableBytes,
    rows: int,
    first_row: int,
    rowids: _Rowids,
    new_bits: _Bytes | None,
    order: _Positions | None = None,
) -> None: ...
def set_live(
    live: _MutableBytes, first_row: int, rowids: _Rowids, flags: _Bytes, order: _Positions | None = None
) -> None: ...
