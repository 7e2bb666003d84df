import numpy as np
import numpy.typing as npt

from kudu_core._ext.ordered.row_batch import RowBatch
from kudu_core._ext.row.view import PointView

class LookedUp(RowBatch):
    def look_up(
        self,
        view: PointView,
        data: npt.NDArray[np.uint8],  # const uint8_t[::1]
        offsets: npt.NDArray[np.int64],  # const int64_t[::1]
        hashes: npt.NDArray[np.uint64],  # const uint64_t[::1]
        wanted: npt.NDArray[np.int64],  # const int64_t[::1]
    ) -> npt.NDArray[np.int64]: ...
