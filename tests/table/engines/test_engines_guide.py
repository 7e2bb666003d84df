"""Each section of docs/engines.md runs, after the first, as a reader would type it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/engines.md").read_text()
FIRST, *SECTIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ENGINES = ("datafusion", "dask", "ibis")
"""No dependencies of the tests."""


@pytest.mark.parametrize("section", SECTIONS, ids=[section.splitlines()[0] for section in SECTIONS])
def test_a_section_runs(tmp_path: Path, section: str) -> None:
    blocks = BLOCK.findall(section)
    assert blocks
    for engine in ENGINES:
        if f"import {engine}" in section and find_spec(engine) is None:
            pytest.skip(f"{engine} is not installed: not tested with it")
    before = "import duckdb\n" if "duckdb" in section else ""
    program = "\n".join([*BLOCK.findall(FIRST), before, *blocks, "table.close()\n"])
    (tmp_path / "guide.py").write_text(program)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "guide.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{program}\n{done.stdout}\n{done.stderr}"
