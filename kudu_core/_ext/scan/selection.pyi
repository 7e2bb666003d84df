import numpy as np
import numpy.typing as npt

from kudu_core._ext.scan.cell_set import CellSet
from kudu_core._ext.scan.column import ScanColumn

class Selection:
    @property
    def rows(self) -> int: ...
    @property
    def file_rows(self) -> int: ...
    @property
    def chosen(self) -> int: ...
    def __init__(
        self,
        ranges: npt.NDArray[np.int64],  # const int64_t[:, ::1]
        file_rows: int,
        live: npt.NDArray[np.uint8] | None = None,
    ) -> None: ...
    def test(
        self, column: ScanColumn, test: CellSet, states: npt.NDArray[np.uint8] | None = None
    ) -> None: ...
    def keep(self, passed: npt.NDArray[np.uint8]) -> None: ...
    def rowids(self) -> npt.NDArray[np.int64]: ...
