"""A table made of what has a schema: its columns, and none of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import kudu_core as kc

TABLE = pa.table({"k": [1, 2], "v": [0.5, None]})


@pytest.mark.parametrize(
    "given",
    [TABLE, TABLE.to_pandas(), TABLE.to_pandas().set_index("k"), pl.DataFrame({"k": [1], "v": [0.5]})],
    ids=["Arrow", "pandas", "pandas with its key as index", "Polars"],
)
def test_its_rows_are_written_by_a_second_call(tmp_path: Path, given: Any) -> None:
    with kc.create_table(tmp_path / "t", given, "k") as table:
        assert table.count() == 0 and table.schema.names == ["k", "v"]
        assert table.insert(given).inserted == len(given)
        assert len(table) == len(given)


def test_a_table_like_another(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "a", {"k": "int64", "s": "string"}, "k") as one:
        one.insert([{"k": 1, "s": "a"}])
        for given in (one, one.scan(), one.to_dataset()):
            with kc.create_table(tmp_path / type(given).__name__, given, "k") as other:
                assert other.schema == one.schema and other.insert(given).inserted == 1


def test_what_is_there_is_opened_by_the_same_schema(tmp_path: Path) -> None:
    frame = pd.DataFrame({"k": [1], "v": [0.5]})
    kc.create_table(tmp_path / "t", frame, "k").close()
    kc.create_table(tmp_path / "t", list({"k": "int64", "v": "float64"}.items()), "k", exist_ok=True).close()
    with pytest.raises(kc.TableExists, match="another schema"):
        kc.create_table(tmp_path / "t", {"k": "int64"}, "k", exist_ok=True)
