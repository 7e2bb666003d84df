"""docs/alter.md: its examples run, in its order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kudu_core.table.lifecycle.altering.altered_options import AT_NEXT_OPEN, AT_ONCE

PAGE = Path(__file__).resolve().parents[4] / "docs" / "alter.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) == 7
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)


@pytest.mark.parametrize(("row", "names"), [("at once", AT_ONCE), ("at the next open", AT_NEXT_OPEN)])
def test_the_page_says_when_each_option_changes(row: str, names: frozenset[str]) -> None:
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {row}"))
    assert set(re.findall(r"`(\w+)`", line)) == names
