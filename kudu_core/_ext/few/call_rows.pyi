from typing import Any

from kudu_core._ext.row.shape import Cell

class FewRows:
    @property
    def keys(self) -> list[bytes]: ...
    @property
    def cells(self) -> list[list[Cell]]: ...
    @property
    def tablets(self) -> list[Any]: ...
    @property
    def absent(self) -> list[int]: ...
    @property
    def present(self) -> list[int]: ...
    @property
    def stores(self) -> list[Any]: ...
    def __init__(
        self,
        keys: list[bytes],
        cells: list[list[Cell]],
        tablets: list[Any],
        places: list[list[int]] | None,
    ) -> None: ...
    def locate(self, version: int) -> bool: ...
    def payload(
        self, ids: tuple[int, ...], widths: tuple[int, ...], sections: list[tuple[int, list[int]]]
    ) -> bytes: ...
    def reserve(
        self,
        op: int,
        ids: tuple[int | None, ...],
        widths: tuple[int, ...],
        inserts: bool,
        changes: bool,
    ) -> None: ...
    def put(self, ts: int, op: int, ids: tuple[int | None, ...]) -> None: ...
