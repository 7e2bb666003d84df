"""Print a run of the comparison as the table of bench/README.md.

python -m bench.compare.report build/bench/<time>.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

ORDER = ("kudu_core", "DuckDB", "Delta Lake", "Parquet", "Polars on Parquet", "SQLite", "RocksDB")


def table(run: dict[str, Any]) -> str:
    works: dict[str, dict[str, str]] = {}
    notes = []
    for bench in run["benchmarks"]:
        info = bench["extra_info"]
        if "work" not in info:
            continue
        if "bytes" in info:
            sizes = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in info["bytes"].items())
            notes.append(f"Size on disk: {sizes}.")
            continue
        if "growth" in info:
            sizes = ", ".join(f"{state} {size / 1e6:.1f} MB" for state, size in info["growth"].items())
            notes.append(f"Disk of {info['engine']}: {sizes}.")
        median = bench["stats"]["median"]
        scan = info["work"].startswith(("scan", "status", "1%", "one host"))
        text = f"{median * 1e3:,.1f} ms" if scan else f"{info['rows'] / median:,.0f} rows/s"
        works.setdefault(info["work"], {})[info["engine"]] = text
    order = [engine for engine in ORDER if any(engine in figures for figures in works.values())]
    lines = ["| work | " + " | ".join(order) + " |", "| --- |" + " --- |" * len(order)]
    for work, figures in works.items():
        lines.append(f"| {work} | " + " | ".join(figures.get(engine, "") for engine in order) + " |")
    return "\n".join([*lines, "", *notes])


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        run = json.load(file)
    rows = next(b["extra_info"]["table_rows"] for b in run["benchmarks"] if "table_rows" in b["extra_info"])
    sys.stdout.write(f"{rows:,} rows, {run['datetime'][:10]}\n\n{table(run)}\n")


if __name__ == "__main__":
    main()
