import numpy as np
import numpy.typing as npt

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]

FORMS: tuple[str, ...]

def encode_fixed(
    values: Bytes,
    width: int,
    kind: int,
    validity: Bytes | None = None,
    *,
    allow_delta: bool = True,
    form: str = "auto",
) -> bytes: ...
