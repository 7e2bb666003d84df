import numpy as np
import numpy.typing as npt

from kudu_core._ext.ordered.rows_of_keys import RowsOfKeys
from kudu_core._ext.row.view import PointView

class LookedUp(RowsOfKeys):
    def look_up(
        self,
        views: list[PointView],
        data: npt.NDArray[np.uint8],  # const uint8_t[::1]
        offsets: npt.NDArray[np.int64],  # const int64_t[::1]
        hashes: npt.NDArray[np.uint64],  # const uint64_t[::1]
        wanted: npt.NDArray[np.int64],  # const int64_t[::1]
        ends: npt.NDArray[np.int64],  # const int64_t[::1]
    ) -> None: ...
