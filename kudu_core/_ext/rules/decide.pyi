from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

_Flags: TypeAlias = npt.NDArray[np.uint8]  # const uint8_t[::1]

CALL_INSERT: Final[int]
CALL_INSERT_IGNORE: Final[int]
CALL_UPSERT: Final[int]
CALL_UPSERT_IGNORE: Final[int]
CALL_UPDATE: Final[int]
CALL_UPDATE_IGNORE: Final[int]
CALL_DELETE: Final[int]
CALL_DELETE_IGNORE: Final[int]
OK: Final[int]
ALREADY_PRESENT: Final[int]
NOT_FOUND: Final[int]
NULL_IN_REQUIRED: Final[int]
IGNORED: Final[int]
NET_NOTHING: Final[int]
NET_INSERT: Final[int]
NET_UPDATE: Final[int]
NET_DELETE: Final[int]
SOURCE_KEEP: Final[int]
SOURCE_DEFAULT: Final[int]

def decide(
    gid: npt.NDArray[np.int32],  # const int32_t[::1]
    op: int | _Flags,
    row_status: _Flags | None,
    given: _Flags,
    required_missing: bool,
    base: int,
    live: npt.NDArray[np.uint8],  # uint8_t[::1], written
    touched: npt.NDArray[np.uint8],  # uint8_t[::1], written
    source: npt.NDArray[np.int64],  # int64_t[::1], written
    key_row: npt.NDArray[np.int64],  # int64_t[::1], written
    out_code: npt.NDArray[np.uint8],  # uint8_t[::1], written
) -> tuple[int, int, int, int, int]: ...
def net(
    was_live: _Flags,
    live: _Flags,
    touched: _Flags,
    source: npt.NDArray[np.int64],  # const int64_t[::1]
    g: int,
    ncols: int,
) -> npt.NDArray[np.uint8]: ...
def patterns(
    kind: _Flags,
    source: npt.NDArray[np.int64],  # const int64_t[::1]
    g: int,
    ncols: int,
) -> npt.NDArray[np.uint64]: ...
