"""docs/sql.md runs, as a reader would type it, and says nothing of what there is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/sql.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_guide_runs(tmp_path: Path) -> None:
    blocks = BLOCK.findall(TEXT)
    assert len(blocks) > 5
    (tmp_path / "guide.py").write_text("\n".join([*blocks, "table.close()\n"]))
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "guide.py"], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "`SOUNDEX(host)` cannot be computed" in done.stdout and "no column 'hots'" in done.stdout
    assert "AND load > 1" in done.stdout, "the line of the mistake"
