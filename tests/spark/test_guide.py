"""The guide's Python runs, block after block, as a reader would type it.

So does the example in each docstring of ``kudu_core.spark``; tests/lint/package/test_examples.py says what
examples are.  Here they know ``ks``, ``pc``, ``spark``, ``stock`` (the path of a table of three rows), ``df``
(a frame of one more), ``path`` and ``folder`` (where nothing is yet).
"""

from __future__ import annotations

import doctest
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import kudu_core as kc
from kudu_core import spark as ks

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Small shuffles for small rows; else the test is about 200 tasks at a time that do nothing.
    arguments = "--conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false pyspark-shell"
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": arguments,
    }


def test_all_blocks_of_the_guide_run(tmp_path: Path) -> None:
    text = (ROOT / "docs/spark.md").read_text()
    program = ["\n"] * (text.count("\n") + 1)  # lines keep their numbers
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= 6
    for block in blocks:
        first = text.count("\n", 0, block.start(1))
        for number, line in enumerate(block[1].splitlines(keepends=True)):
            program[first + number] = line
    (tmp_path / "guide.py").write_text("".join(program) + "spark.stop()\n")
    done = subprocess.run(
        [sys.executable, "guide.py"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    told = f"{done.stdout}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, f"line numbers are those of docs/spark.md\n{told}"


# ---- docstrings ----

NONE = {"commit": "what it commits is left by a job that found the table locked: tests/spark/test_jobs.py"}


@pytest.fixture
def known(spark: SparkSession, frame: Callable[[Any], DataFrame], tmp_path: Path) -> dict[str, Any]:
    stock = str(tmp_path / "stock")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
    with kc.create_table(stock, schema, "id") as table:
        table.insert({"id": [1, 2, 3], "name": ["pen", "ink", "pad"], "price": [1.5, 4.0, 2.5]})
    df = frame(pa.table({"id": [4], "name": ["cap"], "price": [0.5]}))
    return {
        "ks": ks, "pc": pc, "spark": spark, "stock": stock, "df": df,
        "path": str(tmp_path / "new"), "folder": str(tmp_path / "backups"),
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(ks.__all__) - NONE.keys()))
def test_an_example_runs(name: str, known: dict[str, Any]) -> None:
    text = inspect.getdoc(getattr(ks, name)) or ""
    example = doctest.DocTestParser().get_doctest(text, known, name, None, 0)
    assert example.examples, f"{name} has no example: what would a user do first with it?"
    told: list[str] = []
    done = doctest.DocTestRunner().run(example, out=told.append)
    assert not done.failed, "".join(told)
