from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

def merge(
    parts: Sequence[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]: ...
