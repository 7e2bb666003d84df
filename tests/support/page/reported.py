"""A table that has some of everything, and reports of as many tablets as one likes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

import kudu_core as kc
from tests.support.tables import Make

HOSTILE = "<script>document.title='taken'</script>"
SPOOFING = "a\u202eb\x01c\"'&"
TAG = "<b>audit</b>"
ROWSETS = 4


def table_of_everything(make: Make, **options: str) -> kc.Table:
    """One tablet: four rowsets that lie over each other, changes in files and in memory, older states, new
    rows, a tag, and names that look like HTML."""
    schema = [
        kc.Column("k", pa.int64()),
        kc.Column(HOSTILE, pa.string(), default="</td>"),
        kc.Column(SPOOFING, pa.float64(), comment=f"</td>{HOSTILE}"),
    ]
    table = make(schema, ("k",), **options)
    for start in range(ROWSETS):
        rows = list(range(start, 400, ROWSETS))
        values = [None if k == 40 else float(k) for k in rows]
        table.insert({"k": rows, HOSTILE: [HOSTILE] * len(rows), SPOOFING: values})
        if start == 1:
            table.update({"k": rows[:10], SPOOFING: [0.0] * 10})  # of rows in memory: older states
        table.flush()
    table.tag(TAG)
    table.update({"k": [0, 4, 8], SPOOFING: [1.0, 2.0, 3.0]})
    table.delete([12])
    table.flush()  # four changes in a file
    table.update({"k": [1, 2], SPOOFING: [5.0, 6.0]})  # and two in memory
    table.insert({"k": [1000, 1001, 1002]})
    return table


def with_tablets(data: kc.ReportData, count: int) -> kc.ReportData:
    """The report of a table whose tablets are all like the first one, in one state or another."""
    one = data.tablets[0]
    tablets = [
        replace(
            one,
            id=n + 1,
            partition=n,
            place=n,
            partition_text=f"hash(k) = {n} of {count}, {HOSTILE}",
            height=one.height * (1 + n % 7) / 3,
            undo_bytes=one.undo_bytes * (n % 11),
            memory_bytes=one.memory_bytes * (n % 5),
        )
        for n in range(count)
    ]
    return replace(data, tablets=tablets)
