import numpy as np
import numpy.typing as npt

def choose(
    low: npt.NDArray[np.float64],  # const double[::1]
    high: npt.NDArray[np.float64],  # const double[::1]
    value: npt.NDArray[np.float64],  # const double[::1]
    weight: npt.NDArray[np.int64],  # const int64_t[::1]
    budget: int,
    adjust: float,
    floor: float,
    tolerance: float,
    work: int,
) -> tuple[float, npt.NDArray[np.int64], bool]: ...
