"""One row: a key to its bytes, cells to a dict, a dict to cells and a record."""

from __future__ import annotations

import pytest

from kudu_core._ext.row.key_encoder import KeyEncoder
from kudu_core._ext.row.row_writer import RowWriter
from kudu_core._ext.row.shape import MISSING, TAGS, RowShape

COLUMNS = [
    ("host", "text", 0),
    ("ts", "signed", 8),
    ("v", "float", 8),
    ("w", "float", 8),
    ("n", "signed", 8),
    ("status", "text", 0),
    ("note", "text", 0),
]
ROW = {"host": "host-00123", "ts": 1_700_000_000, "v": 1.5, "w": 2.25, "n": 7, "status": "ok", "note": None}


def writer() -> RowWriter:
    columns = [(name, i, TAGS[tag], width, True) for i, (name, tag, width) in enumerate(COLUMNS)]
    return RowWriter(columns, [0, 1], [MISSING] * len(columns))


@pytest.mark.benchmark(group="kernel: one row")
def test_encode_a_key(benchmark):
    encoder = KeyEncoder(["host", "ts"], [TAGS["text"], TAGS["signed"]], [0, 8])
    assert len(benchmark(encoder.encode, ("host-00123", 1_700_000_000))) == 20


@pytest.mark.benchmark(group="kernel: one row")
def test_dict_to_cells(benchmark):
    assert len(benchmark(writer().cells, ROW, 1 << 20)) == len(COLUMNS)


@pytest.mark.benchmark(group="kernel: one row")
def test_cells_to_record(benchmark):
    made = writer()
    cells = made.cells(ROW, 1 << 20)
    assert len(benchmark(made.payload, 3, 1, cells)) == 296


@pytest.mark.benchmark(group="kernel: one row")
def test_cells_to_dict(benchmark):
    names, tags = [c[0] for c in COLUMNS], [TAGS[c[1]] for c in COLUMNS]
    shape = RowShape(names, range(len(COLUMNS)), tags, [bytes] * len(COLUMNS), [None] * len(COLUMNS))
    assert benchmark(shape.row, writer().cells(ROW, 1 << 20)) == ROW
