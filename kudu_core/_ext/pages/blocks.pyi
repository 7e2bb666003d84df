import numpy as np
import numpy.typing as npt

from kudu_core._ext.pages.dictionary import dictionary_build as dictionary_build
from kudu_core._ext.pages.dictionary import dictionary_expand as dictionary_expand
from kudu_core._ext.pages.encode import FORMS as FORMS
from kudu_core._ext.pages.encode import encode_fixed as encode_fixed
from kudu_core._ext.pages.fixed import cells_fixed as cells_fixed
from kudu_core._ext.pages.fixed import decode_fixed as decode_fixed
from kudu_core._ext.pages.fixed import decode_pages as decode_pages
from kudu_core._ext.pages.strings import cells_binary as cells_binary
from kudu_core._ext.pages.strings import decode_binary as decode_binary
from kudu_core._ext.pages.strings_encode import encode_binary as encode_binary
from kudu_core._ext.pages.zones import zone_binary as zone_binary
from kudu_core._ext.pages.zones import zone_fixed as zone_fixed

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]

def describe(payload: Bytes) -> list[tuple[int, int, int, int, int, int]]: ...
