from collections.abc import Callable
from typing import Any

from kudu_core._ext.changes.patch import Patch
from kudu_core._ext.scan.column import ScanColumn
from kudu_core._ext.scan.selection import Selection

class TooLarge(Exception): ...

def read(
    selection: Selection,
    columns: list[ScanColumn],
    forms: bytes,  # const uint8_t[::1]
    allocate: Callable[[int], Any],
    most_bytes: int = 0x7FFFFFFF,
    patches: list[Patch | None] | None = None,
) -> list[tuple[Any, Any, Any, int] | None]: ...
