import numpy as np
import numpy.typing as npt

def order_of_few(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64] | None: ...  # const uint64_t[::1]
