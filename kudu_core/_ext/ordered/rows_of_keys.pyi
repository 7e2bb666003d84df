import numpy as np
import numpy.typing as npt

from kudu_core._ext.ordered.arrow_batch import ArrowBatch
from kudu_core._ext.row.shape import RowShape

class RowsOfKeys:
    @property
    def snapshot(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def found(self) -> npt.NDArray[np.bool_]: ...
    def __init__(
        self, snapshot: int, shape: RowShape, widths: tuple[int, ...], bits: tuple[bool, ...], keys: int
    ) -> None: ...
    def batch(
        self,
        most_bytes: int,
        places: tuple[int, ...],
        keys: list[tuple[int, int, bool, npt.NDArray[np.uint8], npt.NDArray[np.int32] | None]],
    ) -> ArrowBatch: ...
