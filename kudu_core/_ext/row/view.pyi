from collections.abc import Callable, Sequence
from typing import Any

from kudu_core._ext.columns.flags import AppendFlags
from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.index.hash_index import KeyTable
from kudu_core._ext.index.rowset_tree import BoundsTree
from kudu_core._ext.row.change_log import ChangePoints
from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.overlay import Store
from kudu_core._ext.row.shape import Cell, RowShape

class MemoryPoints:
    @property
    def changes(self) -> ChangePoints: ...
    @property
    def live(self) -> AppendFlags: ...
    @property
    def version(self) -> int: ...
    @property
    def last_insert_ts(self) -> int: ...
    def begin_insert(self, ts: int) -> None: ...
    def __init__(
        self,
        keys: KeyTable,
        inserted: AppendColumn,
        columns: dict[int, AppendColumn],
        changes: ChangePoints,
        live: AppendFlags,
        version: int,
    ) -> None: ...
    def continue_in(self, changes: ChangePoints) -> None: ...
    def reserve_one(self, key: bytes, cells: list[Cell]) -> None: ...
    def insert_one(self, ts: int, key: bytes, hash: int, cells: list[Cell]) -> None: ...

class RowsetPoints:
    def __init__(
        self,
        open: Callable[[], PointFile],
        stores: Sequence[Store],
        insert_ts: int | None,
        max_insert_ts: int,
        times: int,
    ) -> None: ...
    def let_go(self) -> None: ...

class PointView:
    def __init__(
        self, memories: Sequence[MemoryPoints], rowsets: Sequence[RowsetPoints], bounds: BoundsTree
    ) -> None: ...
    def replaced(self, rowsets: dict[int, RowsetPoints]) -> PointView: ...
    def get(self, key: bytes, snapshot: int, shape: RowShape) -> dict[str, Any] | None: ...
    def find(self, key: bytes, hash: int) -> list[tuple[int, int]]: ...
