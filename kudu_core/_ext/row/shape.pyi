from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any

Cell = bytes | None | EllipsisType

TAGS: dict[str, int]
MISSING: EllipsisType

class RowShape:
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def ids(self) -> tuple[int, ...]: ...
    @property
    def count(self) -> int: ...
    def __init__(
        self,
        names: Sequence[str],
        ids: Sequence[int],
        tags: Sequence[int],
        decoders: Sequence[Callable[[bytes], Any]],
        defaults: Sequence[Any],
    ) -> None: ...
    def value(self, i: int, cell: bytes | None) -> Any: ...
    def row(self, cells: Sequence[Cell]) -> dict[str, Any]: ...
