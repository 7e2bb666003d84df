from collections.abc import Callable
from typing import Any

from kudu_core._ext.scan.column import ScanColumn
from kudu_core._ext.scan.selection import Selection

class TooLarge(Exception): ...

def read(
    selection: Selection,
    columns: list[ScanColumn],
    forms: bytes,  # const uint8_t[::1]
    allocate: Callable[[int], Any],
    most_bytes: int = 0x7FFFFFFF,
) -> list[tuple[Any, Any, Any, int] | None]: ...
