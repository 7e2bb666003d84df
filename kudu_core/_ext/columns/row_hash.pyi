import numpy as np
import numpy.typing as npt

def chain_column(
    column_id: int,
    width: int,
    values: npt.NDArray[np.uint8],  # const uint8_t[::1]
    offsets: npt.NDArray[np.int32] | None,  # const int32_t[::1]
    validity: npt.NDArray[np.uint8] | None,  # const uint8_t[::1]
    hashes: npt.NDArray[np.uint64],  # uint64_t[::1], written
) -> None: ...
def sums(hashes: npt.NDArray[np.uint64]) -> tuple[int, int]: ...  # const uint64_t[::1]
