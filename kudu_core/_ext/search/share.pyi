import numpy as np
import numpy.typing as npt

def below(
    data: npt.NDArray[np.uint8],  # const uint8_t[::1]
    offsets: npt.NDArray[np.int64],  # const int64_t[::1]
    first: npt.NDArray[np.int64],  # const int64_t[::1]
    last: npt.NDArray[np.int64],  # const int64_t[::1]
    weights: npt.NDArray[np.int64],  # const int64_t[::1]
) -> npt.NDArray[np.float64]: ...
