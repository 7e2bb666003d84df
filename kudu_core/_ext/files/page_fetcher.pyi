from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from kudu_core._ext.files.cached_pages import Reader
from kudu_core._ext.files.descriptors import Descriptor

class HasDescriptor(Protocol):
    @property
    def descriptor(self) -> Descriptor | None: ...

class HasText(Protocol):
    @property
    def place(self) -> int: ...
    def text(self) -> bytes: ...

class PageFetcher:
    def __init__(
        self,
        file: HasDescriptor,
        id_crc: int,
        kind: int,
        offsets: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        nulls: npt.NDArray[np.int64],
        rows: int,
        page_bits: int,
        width: int,
        encoding: int,
        decoders: Sequence[Callable[..., Any] | None],
        most_bytes: int,
        text: HasText | None = None,
        reader: Reader | None = None,
    ) -> None: ...
    def fetch(self, number: int) -> Any: ...
    def ask(self, number: int, if_cold: bool) -> bool: ...
    def opened(self, number: int, data: bytes) -> Any: ...
