"""examples/counter.py: no step of four processes is lost, and none is counted twice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import kudu_core as kc
from tests.support.processes import ROOT

SCRIPT = ROOT / "examples" / "counter.py"
PROCESSES, EACH, LONG_EACH = 4, 20, 200


def test_every_step_counts_once(tmp_path: Path, long: bool) -> None:
    each = LONG_EACH if long else EACH
    arguments = ["--table", str(tmp_path / "t"), "--processes", str(PROCESSES), "--each", str(each)]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    for turn in (1, 2):
        done = subprocess.run(
            [sys.executable, str(SCRIPT), *arguments],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
        told = re.search(r"(\d+) steps were counted, (\d+) had come before", done.stdout)
        assert told is not None
        assert int(told[1]) == PROCESSES * each and int(told[2]) > 0
        with kc.open_table(tmp_path / "t") as table:
            assert sum(table.scan(["n"]).to_table()["n"].to_pylist()) == turn * PROCESSES * each
