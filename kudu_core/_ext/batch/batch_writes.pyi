from collections.abc import Callable
from typing import Any

import numpy as np

from kudu_core._ext.batch.given_batch import GivenBatch
from kudu_core._ext.few.few_writes import FewWrites
from kudu_core._ext.few.log_state import LogState
from kudu_core._ext.few.memory_counts import MemoryCounts

class BatchWrites(FewWrites):
    def __init__(
        self,
        engine: Any,
        log: LogState,
        memory: MemoryCounts,
        *,
        locate: Callable[[Any, GivenBatch, np.ndarray | None], tuple[np.ndarray, np.ndarray, np.ndarray]],
        **rest: Any,
    ) -> None: ...
    def write_batch(self, call: int, ignores: bool, given: Any, wait: bool = True) -> Any: ...
