from typing import Any

from kudu_core._ext.few.row_writes import RowWrites

class FewWrites(RowWrites):
    def write_few(self, call: int, ignores: bool, given: Any, wait: bool = True) -> Any: ...
