from typing import Any

import numpy.typing as npt
from typing_extensions import Buffer

def crc32c(data: Buffer | npt.NDArray[Any], value: int = 0) -> int: ...
def _choose(fast: bool) -> bool: ...
