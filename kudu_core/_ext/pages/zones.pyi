import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]

def zone_fixed(
    values: Bytes, width: int, kind: int, validity: Bytes | None = None
) -> tuple[bytes | None, bytes | None, int, int]: ...
def zone_binary(
    offsets: npt.NDArray[np.int32],  # const int32_t[::1]
    data: Bytes,
    validity: Bytes | None = None,
    most_bytes: int = ...,
) -> tuple[bytes | None, bytes | None, int]: ...
def strings_meet(
    low: npt.NDArray[np.uint8],  # const uint8_t[:, ::1]
    high: npt.NDArray[np.uint8],  # const uint8_t[:, ::1]
    open_ended: npt.NDArray[np.uint8],  # const uint8_t[::1]
    first: bytes,
    beyond: bytes | None,
) -> npt.NDArray[np.uint8]: ...
