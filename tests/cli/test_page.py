"""The examples of docs/cli.md run, and it names every command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kudu_core.cli.registry import COMMANDS
from tests.cli.conftest import Call

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()


def test_examples_run(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [(name, text)] = re.findall(r"^```csv (\S+)\n(.*?)^```", PAGE, re.M | re.S)
    Path(name).write_text(text)
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    assert len(lines) > 30
    said = {}
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "kudu_core"
        said[line] = call(*words).out
    assert "2026-01-05T12:30:00.000000Z" in said["kudu_core get orders ann 1"]
    assert said['kudu_core count orders --where "amount IS NULL"'] == "1\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_named(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE)
