"""What takes long is told to the logger ``kudu_core.slow``: what, how long, and how much."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kudu_core as kc

SCHEMA = [("k", "int64"), ("v", "int64")]


@pytest.fixture
def slow(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "kudu_core.slow")
    return caplog


def told(slow: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in slow.records if record.name == "kudu_core.slow"]


def work(table: kc.Table, path: Path) -> None:
    table.insert({"k": np.arange(5000), "v": np.arange(5000)})
    table.flush()
    table.scan().to_table()
    table.get(1)
    table.backup(path.with_name("backups"))


def test_everything_where_the_limit_is_nothing(path: Path, slow: pytest.LogCaptureFixture) -> None:
    options = {"slow_operation_s": 0, "maintenance": "manual"}
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        work(table, path)
    lines = told(slow)
    names = [line.split(" took ")[0] for line in lines]
    assert {"write", "flush", "scan", "get", "backup"} == set(names)
    assert all(re.search(rf" took \d+\.\d{{3}} s.* path={path}$", line) for line in lines)
    assert any(line.startswith("write") and "rows=5000" in line for line in lines)
    assert any(line.startswith("flush") and "rows=5000 tablet=1" in line for line in lines)
    assert any(line.startswith("scan") and "rows=5000" in line for line in lines)


@pytest.mark.parametrize("limit_s", [None, 3600])
def test_nothing_where_nothing_is_slow(
    path: Path, slow: pytest.LogCaptureFixture, limit_s: float | None
) -> None:
    options = {"slow_operation_s": limit_s, "maintenance": "manual"}
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        work(table, path)
        assert told(slow) == []
        table.alter(options={"slow_operation_s": 0})
        slow.clear()
        table.scan().to_table()
        assert [line.split()[0] for line in told(slow)] == ["scan"], "at once"


def test_the_usual_limit_is_a_second() -> None:
    assert kc.Options().slow_operation_s == 1.0
    with pytest.raises(kc.InvalidArgument, match="slow_operation_s"):
        kc.Options(slow_operation_s=-1)


def test_who_has_set_up_no_logging_sees_nothing(path: Path) -> None:
    """Not even what Python writes to standard error for want of anybody who hears."""
    script = (
        "import sys, kudu_core as kc\n"
        "with kc.create_table(sys.argv[1], [('k', 'int64')], 'k', options={'slow_operation_s': 0}) as t:\n"
        "    t.insert([{'k': 1}])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, timeout=300,
        env=os.environ | {"PYTHONPATH": str(Path(kc.__file__).parents[1])},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")
