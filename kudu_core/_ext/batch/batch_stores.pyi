from typing import Any

import numpy as np

from kudu_core._ext.batch.given_batch import GivenBatch
from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.index.hash_index import KeyTable
from kudu_core._ext.row.change_log import ChangePoints
from kudu_core._ext.row.view import MemoryPoints

def locate_in_memory(
    memories: list[MemoryPoints], batch: GivenBatch, chosen: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
def parted(store: np.ndarray, ghost: np.ndarray) -> tuple[dict[int, Any], bool]: ...
def reserve_insert_batch(
    table: KeyTable,
    inserted: AppendColumn,
    columns: list[AppendColumn],
    batch: GivenBatch,
    chosen: np.ndarray | None,
) -> None: ...
def put_insert_batch(
    table: KeyTable,
    inserted: AppendColumn,
    columns: list[AppendColumn],
    ts: int,
    batch: GivenBatch,
    chosen: np.ndarray | None,
) -> None: ...
def reserve_change_batch(
    points: ChangePoints, ids: tuple[int | None, ...], batch: GivenBatch, chosen: np.ndarray | None
) -> int: ...
def put_change_batch(
    points: ChangePoints,
    ts: int,
    op: int,
    rowids: np.ndarray,
    ids: tuple[int | None, ...],
    batch: GivenBatch,
    chosen: np.ndarray | None,
) -> None: ...
