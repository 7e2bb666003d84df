from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from kudu_core._ext.pages.dictionary import dictionary_build as dictionary_build
from kudu_core._ext.pages.dictionary import dictionary_expand as dictionary_expand
from kudu_core._ext.pages.strings import cells_binary as cells_binary
from kudu_core._ext.pages.strings import decode_binary as decode_binary
from kudu_core._ext.pages.strings import encode_binary as encode_binary
from kudu_core._ext.pages.zones import zone_binary as zone_binary
from kudu_core._ext.pages.zones import zone_fixed as zone_fixed

Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]  # const uint8_t[::1]
MutableBytes = bytearray | memoryview | npt.NDArray[np.uint8]  # uint8_t[::1], written

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
def decode_fixed(
    payload: Bytes,
    width: int,
    out: MutableBytes,
    out_validity: MutableBytes | None,
    first: int,
    count: int,
    out_bit: int = 0,
) -> int: ...
def decode_pages(
    payloads: Iterable[Bytes],
    width: int,
    out: MutableBytes,
    out_validity: MutableBytes | None,
    firsts: npt.NDArray[np.int64],  # const int64_t[::1]
    counts: npt.NDArray[np.int64],  # const int64_t[::1]
) -> int: ...
def cells_fixed(
    payload: Bytes,
    width: int,
    rows: npt.NDArray[np.int64],  # const int64_t[::1]
    out: MutableBytes,
    out_validity: MutableBytes | None = None,
    out_bit: int = 0,
) -> None: ...
def describe(payload: Bytes) -> list[tuple[int, int, int, int, int, int]]: ...
