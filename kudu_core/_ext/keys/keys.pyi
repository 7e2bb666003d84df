from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from kudu_core._ext.keys.move import concat as concat
from kudu_core._ext.keys.move import interleave as interleave
from kudu_core._ext.keys.move import take as take
from kudu_core._ext.keys.order import group as group
from kudu_core._ext.keys.order import lower_bound as lower_bound
from kudu_core._ext.keys.order import order as order
from kudu_core._ext.keys.order import repeats as repeats
from kudu_core._ext.keys.order import same as same
from kudu_core._ext.keys.sort import sort as sort

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
Offsets = npt.NDArray[np.int64]  # const int64_t[::1]
Encoded = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]

UNSIGNED: Final[int]
SIGNED: Final[int]
BINARY: Final[int]
DECIMAL: Final[int]

def encode(
    columns: Sequence[tuple[int, int, Bytes, npt.NDArray[np.int32] | None]],
    n: int,
) -> Encoded: ...
def decode(
    data: Bytes, offsets: Offsets, types: Sequence[tuple[int, int]]
) -> list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32] | None]]: ...
