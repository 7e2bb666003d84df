import numpy as np
import numpy.typing as npt

def chain(
    rows: npt.NDArray[np.int64], first_row: int, span: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]: ...
def settled(before: npt.NDArray[np.int32], known: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...
