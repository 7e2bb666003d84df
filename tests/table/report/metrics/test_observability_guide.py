"""docs/observability.md: its examples run, in its order, and its list of metrics is the one there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kudu_core.table.report.metric_names import METRIC_NAMES

ROOT = Path(__file__).resolve().parents[4]
TEXT = (ROOT / "docs/observability.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROW = re.compile(
    r"^\| (`.+?) \| `(\w+)`( by `operation`)? \| (\w+) \| (\w+) \| (.*?)( \(object stores\))? \|$"
)


def test_its_examples_run(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry.sdk")
    program = "\n".join(block[1] for block in BLOCK.finditer(TEXT))
    (tmp_path / "guide.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "guide.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "scan took" in done.stderr and "rows=200000 path=" in done.stderr
    assert "backup: 200,000 rows in" in done.stderr
    assert "was cancelled" in done.stdout and "99% of them within" in done.stdout


def test_it_lists_every_metric_and_no_other() -> None:
    listed = {}
    for line in TEXT.split("### All metrics")[1].split("###")[0].splitlines():
        if found := ROW.match(line):
            keys, name, by, kind, unit, says, in_store = found.groups()
            for key in re.findall(r"`(\w+)`", keys):
                listed[key] = (name, bool(by), kind, unit, says, bool(in_store))
    assert listed == {
        m.key: (m.name, bool(m.labels), m.kind, m.unit, m.help, m.in_store) for m in METRIC_NAMES
    }
