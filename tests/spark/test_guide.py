"""The guide's Python runs, block after block, as a reader would type it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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
