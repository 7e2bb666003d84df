from typing import Any, TypeVar

from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.index.hash_index import KeyTable
from kudu_core._ext.row.change_log import ChangePoints
from kudu_core._ext.row.shape import Cell
from kudu_core._ext.row.view import PointView

_T = TypeVar("_T")

def grouped(numbers: list[int]) -> dict[int, list[int]]: ...
def picked(given: list[_T], places: list[int]) -> list[_T]: ...
def locate(
    points: PointView,
    stores: tuple[Any, ...],
    keys: list[bytes],
    places: list[int] | None,
    rowids: list[int],
) -> tuple[list[int], dict[int, list[int]]] | None: ...
def reserve_inserts(
    table: KeyTable,
    inserted: AppendColumn,
    columns: list[AppendColumn],
    keys: list[bytes],
    rows: list[list[Cell]],
) -> None: ...
def put_inserts(
    table: KeyTable,
    inserted: AppendColumn,
    columns: list[AppendColumn],
    ts: int,
    keys: list[bytes],
    rows: list[list[Cell]],
) -> None: ...
def reserve_changes(points: ChangePoints, ids: tuple[int | None, ...], rows: list[list[Cell]]) -> int: ...
def put_changes(
    points: ChangePoints,
    ts: int,
    op: int,
    rowids: list[int],
    ids: tuple[int | None, ...],
    rows: list[list[Cell]],
) -> None: ...
