import numpy as np
import numpy.typing as npt

from kudu_core._ext.codec.lz4 import Lz4Packer

U8 = npt.NDArray[np.uint8]

def write_string_pages(
    offsets: npt.NDArray[np.int32],  # const int32_t[::1]
    data: U8,  # const uint8_t[::1]
    validity: U8 | None,  # const uint8_t[::1]
    first_row: int,
    page_bits: int,
    packer: Lz4Packer,
    offset: int,
    id_crc: int,
    kind: int,
    encoding: int,
    codec: int,
    tried: tuple[int, int, float],
) -> tuple[bytes, bytes, tuple[bytes | None, bool, bytes | None, bool, int]]: ...
