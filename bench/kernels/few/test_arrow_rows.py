"""The cells of a record batch of some rows of six columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kudu_core._ext.few.arrow_rows import cells_of_batch, format_of
from kudu_core._ext.row.row_writer import RowWriter
from kudu_core._ext.row.shape import MISSING, TAGS
from kudu_core._ext.rules.decide import CALL_UPSERT

TYPES = {"k": "signed", "a": "text", "b": "signed", "c": "signed", "d": "signed", "e": "text"}


@pytest.mark.benchmark(group="kernel: few rows of Arrow")
@pytest.mark.parametrize("rows", [1, 10, 100])
def test_cells(benchmark, rows):
    columns = [
        (name, i, TAGS[kind], 0 if kind == "text" else 8, i > 0)
        for i, (name, kind) in enumerate(TYPES.items())
    ]
    writer = RowWriter(columns, [0], [MISSING, *[None] * 5])
    arrays = [pa.array(["some text"] * rows if kind == "text" else range(rows)) for kind in TYPES.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(TYPES))
    formats = tuple(format_of(array.type.__arrow_c_schema__()) for array in arrays)
    benchmark.extra_info |= {"rows": rows}
    keys, cells = benchmark(
        lambda: cells_of_batch(writer, formats, *batch.__arrow_c_array__(), CALL_UPSERT, 1 << 20)
    )
    assert len(set(keys)) == rows and cells[-1][5] == b"some text"
