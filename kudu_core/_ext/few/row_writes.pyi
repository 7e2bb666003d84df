from collections.abc import Callable
from typing import Any

from kudu_core._ext.few.log_state import LogState
from kudu_core._ext.few.memory_counts import MemoryCounts

class RowWrites:
    def __init__(
        self,
        engine: Any,
        log: LogState,
        memory: MemoryCounts,
        *,
        ingest_bytes: int,
        ingest_rows: int,
        limit_bytes: int,
        result: type,
        no_memory: Callable[[int], BaseException],
        checks: bool,
    ) -> None: ...
    def write(self, call: int, ignores: bool, row: dict[Any, Any], wait: bool = True) -> Any: ...
