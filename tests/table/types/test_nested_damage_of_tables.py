"""Stored cells that do not go together are damage of the table, whoever reads them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core.common.schema.nested_rows import RowsSeen
from kudu_core.common.types.nested.nested_layout import NestedLayout
from tests.support.tables import Make

READS: dict[str, Callable[[kc.Table], object]] = {
    "scan": lambda table: table.scan().to_table(),
    "get_many": lambda table: table.get_many([1]),
    "get": lambda table: table.get(1),
    "changes": lambda table: table.changes(until=table.timestamp).to_table(),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("state", ["memory", "flushed"])
def test_a_read_says_so(make: Make, monkeypatch: pytest.MonkeyPatch, read: str, state: str) -> None:
    table = make(pa.schema([("k", pa.int64()), ("v", pa.list_(pa.int64()))]))
    table.insert({"k": [1], "v": [[1, 2]]})
    if state == "flushed":
        table.flush()

    def damaged(layout: NestedLayout, leaves: object) -> pa.Array:
        raise PageError("leaf 'v[]' of a nested column, row 0: a cell has no multiple of 8 bytes", 0)

    def undecided(rows: RowsSeen, stored: object) -> None:
        raise NeedsGeneralPath

    monkeypatch.setattr(NestedLayout, "assemble", damaged)
    monkeypatch.setattr(RowsSeen, "row", undecided)
    with pytest.raises(kc.Corruption, match=r"v\[\].*no multiple of 8 bytes") as told:
        READS[read](table)
    assert str(table.path) in str(told.value)
