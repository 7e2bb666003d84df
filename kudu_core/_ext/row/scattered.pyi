from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from kudu_core._ext.row.file import PointFile

U8 = npt.NDArray[np.uint8]

def gather(
    files: list[PointFile | None],
    sources: npt.NDArray[np.int32],  # const int32_t[::1]
    rows: npt.NDArray[np.int64],  # const int64_t[::1]
    column_id: Hashable,
    width: int,
) -> tuple[U8, npt.NDArray[np.int32] | None, U8 | None]: ...
