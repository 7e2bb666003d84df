"""Delta Lake as a peer of the history table: deltalake (Rust), its change data feed on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from bench.compare import data


class DeltaLake:
    name = "Delta Lake"

    def __init__(self, path: Path) -> None:
        self.path = path
        shutil.rmtree(path, ignore_errors=True)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def load(self, rows: pa.Table) -> None:
        write_deltalake(str(self.path), rows, configuration={"delta.enableChangeDataFeed": "true"})

    def _merge(self, rows: pa.Table, columns: list[str], *, insert: bool) -> None:
        on = " and ".join(f"t.{name} = s.{name}" for name in data.KEY)
        merge = self.table.merge(rows, on, source_alias="s", target_alias="t").when_matched_update(
            {name: f"s.{name}" for name in columns}
        )
        if insert:
            merge = merge.when_not_matched_insert_all()
        merge.execute()

    def update(self, rows: pa.Table) -> None:
        self._merge(rows.select([*data.KEY, "load"]), ["load"], insert=False)

    def upsert(self, rows: pa.Table) -> None:
        self._merge(rows, [n for n in rows.column_names if n not in data.KEY], insert=True)

    def now(self) -> int:
        return int(self.table.version())

    def scan(self, columns: list[str] | None, at: int | None = None) -> pa.Table:
        return DeltaTable(str(self.path), version=at).to_pyarrow_table(columns=columns)

    def changes(self, since: int) -> int:
        feed = self.table.load_cdf(starting_version=since + 1)
        found = pa.table(feed.read_all())
        return sum(kind == "update_postimage" for kind in found["_change_type"].to_pylist())

    def count(self) -> int:
        return int(self.table.to_pyarrow_dataset().count_rows())

    def size(self) -> int:
        return sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file())

    def forget(self) -> None:
        """Files of past versions go."""
        self.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def close(self) -> None:
        pass
