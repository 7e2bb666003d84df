"""The README's Python runs, block after block, as a reader would type it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPARK = "## With PySpark"
# Small shuffles for small rows; else the test is about 200 tasks at a time that do nothing.
SMALL = "--conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false pyspark-shell"


def run(text: str, folder: Path) -> None:
    """All blocks of ``text`` as one program, in a process and a directory of their own.

    Lines keep their numbers, so that a traceback points into the README.
    """
    program = ["\n"] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        for number, line in enumerate(block[1].splitlines(keepends=True)):
            program[first + number] = line
    script = folder / "README.py"
    script.write_text("".join(program))
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", script.name],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": SMALL},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"line numbers are those of README.md\n{done.stdout}\n{done.stderr}"


def test_blocks_run_without_spark(tmp_path: Path) -> None:
    run((ROOT / "README.md").read_text().split(SPARK)[0], tmp_path)


def test_all_blocks_run(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    assert SPARK in text and len(BLOCK.findall(text)) >= 10
    run(text, tmp_path)
