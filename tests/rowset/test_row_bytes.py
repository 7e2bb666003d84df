"""What a merge reckons that a row takes, in a file and decoded: outputs are cut, and memory held, by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.history.merging import MergeInput, row_bytes
from tests.support.inside import rowsets_of, schema_of

ROWS = 5000
LATER = (1 << 63) - 1
KINDS = {
    "int8": pa.int8(),
    "double": pa.float64(),
    "decimal": pa.decimal128(30, 2),
    "long strings": pa.string(),
    "added width": pa.int64(),
    "added string": pa.string(),
}


def cells(kind: str) -> pa.Array:
    rng = np.random.default_rng(3)
    if kind == "long strings":
        return pa.array(["".join(chr(97 + c) for c in row) for row in rng.integers(0, 26, (ROWS, 200))])
    return pa.array(rng.integers(-100, 100, ROWS)).cast(KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_column_is_reckoned(tmp_path: Path, kind: str) -> None:
    added, dtype = kind.startswith("added"), KINDS[kind]
    fields = [pa.field("k", pa.int64(), nullable=False)]
    columns = {"k": pa.array(range(ROWS))}
    if not added:
        fields.append(pa.field("v", dtype))
        columns["v"] = cells(kind)
    with kc.create_table(tmp_path / "t", pa.schema(fields), ["k"]) as table:
        table.upsert(pa.table(columns))
        table.flush()
        if added:
            table.alter(
                add=[kc.Column("v", dtype, default="d" * 1000 if dtype == pa.string() else 7, nullable=False)]
            )
        (rowset,) = rowsets_of(table)
        source = MergeInput.of(rowset, LATER, 0)
        stored, decoded = row_bytes(schema_of(table), source)
        held = table.scan().to_table()["v"]
        # Of decoded bytes 8 are the key's.  Validity takes an eighth of a byte; an estimate may leave it out.
        assert decoded - 8 == pytest.approx(held.nbytes / ROWS, rel=0.05, abs=0.2)
        assert stored * ROWS == pytest.approx(rowset.meta.base.size, rel=0.1)


def test_changes_are_counted_too(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.float64())])
    with kc.create_table(tmp_path / "t", schema, ["k"]) as table:
        table.upsert({"k": range(ROWS), "v": np.random.default_rng(1).random(ROWS)})
        table.flush()
        (rowset,) = rowsets_of(table)
        _, before = row_bytes(schema_of(table), MergeInput.of(rowset, LATER, 0))
        table.update({"k": range(ROWS), "v": np.random.default_rng(2).random(ROWS)})
        table.flush()
        (rowset,) = rowsets_of(table)
        _, after = row_bytes(schema_of(table), MergeInput.of(rowset, LATER, 0))
        changes = sum(store.file.size for store in (*rowset.meta.redo, *rowset.meta.undo))
        assert changes > 7 * ROWS
        assert after - before == 2 * changes / ROWS
