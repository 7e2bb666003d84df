"""Memory for the cells of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt

_ARROW_POOL_FROM_BYTES = 1 << 14


def allocate(nbytes: int) -> npt.NDArray[np.uint8]:
    """Uninitialised bytes.  Large ones come from Arrow's pool, which reuses touched memory:
    the first touch of fresh pages costs ten times what decoding does."""
    if nbytes < _ARROW_POOL_FROM_BYTES:
        return np.empty(nbytes, np.uint8)
    return np.frombuffer(pa.allocate_buffer(nbytes), np.uint8)


__all__ = ["allocate"]
