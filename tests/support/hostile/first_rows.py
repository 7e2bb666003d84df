"""Rows of a damaged file that are found by their keys, and gathered: in files, and as rows of a view."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.index.rowset_tree import BoundsTree
from kudu_core._ext.ordered.few_in_order import RowsOfViews
from kudu_core._ext.ordered.in_order import RowsInOrder
from kudu_core._ext.row.scattered import gather
from kudu_core._ext.row.shape import TAGS, RowShape
from kudu_core._ext.row.view import PointView, RowsetPoints
from kudu_core.cfile import RowsFile
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.types.types import TYPE_BOOL

REFUSALS = (kc.KuduError, PageError, NeedsGeneralPath, ValueError, IndexError, pa.ArrowInvalid)


def first_rows(file: RowsFile) -> None:
    """Rows that are found by their keys where these lie, and their cells."""

    def listed(number: int, row: int) -> Any:
        raise NeedsGeneralPath

    for lower in (None, file.min_key, b"\x80" * 8):
        with contextlib.suppress(*REFUSALS):
            found, rows = RowsInOrder([b""], [file], listed, lower, None).take(300)
            assert ((rows >= 0) & (rows < file.rows)).all()
            for id_, column in file.columns.items():
                with contextlib.suppress(*REFUSALS):
                    gather([file.points], found, rows, id_, column.spec.type.width)
    with contextlib.suppress(*REFUSALS):
        _few_rows(file)


def _few_rows(file: RowsFile) -> None:
    """The same of a view, as an Arrow batch."""
    bounds = [EncodedKeys.from_list([key]) for key in (b"", b"\xff" * 40)]
    tree = BoundsTree(*((k.data, k.offsets) for k in bounds))
    view = PointView([], [RowsetPoints(lambda: file.points, [], None, 0, -1)], tree)
    types = {id_: column.spec.type for id_, column in file.columns.items()}
    names, nothing = [str(id_) for id_ in types], [None] * len(types)
    raw = [TAGS["raw"]] * len(types)
    shape = RowShape(names, list(types), raw, nothing, nothing)  # type: ignore[arg-type]
    widths, bits = tuple(t.width for t in types.values()), tuple(t.kind == TYPE_BOOL for t in types.values())
    for lower, ordered in ((None, True), (None, False), (b"\x80" * 8, True)):
        order = RowsInOrder.of_views([view], 2**64 - 1, lambda view, memory: iter(()), lower, None, ordered)
        rows = RowsOfViews(order, shape, widths, bits)
        rows.take(300, 300)
        fields = [pa.field(name, t.arrow) for name, t in zip(names, types.values(), strict=True)]
        batch = rows.batch(1 << 20)
        made = pa.RecordBatch._import_from_c(batch.address, pa.schema(fields))
        assert made.num_rows == rows.count <= file.rows
