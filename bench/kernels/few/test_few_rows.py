"""The record of some rows of six columns, and room for them in columns in memory."""

from __future__ import annotations

import pytest

from kudu_core._ext.columns.growing import AppendColumn
from kudu_core._ext.few.few_rows import put_inserts, reserve_inserts
from kudu_core._ext.few.payload import payload_of_rows
from kudu_core._ext.index.hash_index import KeyTable

WIDTHS = (8, 0, 8, 8, 8, 0)
IDS = tuple(range(6))


def rows_of(count):
    return [[b"12345678" if width else b"some text" for width in WIDTHS] for _ in range(count)]


@pytest.mark.benchmark(group="kernel: record of few rows")
@pytest.mark.parametrize("rows", [10, 100])
def test_payload(benchmark, rows):
    given = rows_of(rows)
    benchmark.extra_info |= {"rows": rows}
    payload = benchmark(payload_of_rows, IDS, WIDTHS, (1,), [(3, given, [0] * rows)])
    assert payload.count(b"some text") == 2 * rows


@pytest.mark.benchmark(group="kernel: few rows laid")
@pytest.mark.parametrize("rows", [10, 100])
def test_inserts(benchmark, rows):
    given = rows_of(rows)
    keys = [b"%08d" % i for i in range(rows)]
    benchmark.extra_info |= {"rows": rows}

    def lay():
        table, inserted, columns = KeyTable(1), AppendColumn(8), [AppendColumn(width) for width in WIDTHS]
        reserve_inserts(table, inserted, columns, keys, given)
        put_inserts(table, inserted, columns, 7, keys, given)
        return columns[0]

    assert len(benchmark(lay)) == rows
