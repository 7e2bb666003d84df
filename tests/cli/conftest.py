"""What the tests of commands share: a table, and a way to run a command in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import kudu_core as kc
from kudu_core.cli.command_group import kudu_core_command

SCHEMA = pa.schema([
    ("customer", pa.string()), ("number", pa.int64()), ("amount", pa.decimal128(12, 2)),
    ("placed", pa.timestamp("us", "UTC")), ("mark", pa.binary()),
])  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """What a command left: exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def records(self) -> list[Any]:
        """The lines of JSON on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


Call = Callable[..., Ended]


@pytest.fixture
def call() -> Call:
    """Run a command; ``code`` is what it is to end with."""

    def run(*words: object, code: int = 0, stdin: str | bytes | None = None) -> Ended:
        given = [str(word) for word in words]
        done = CliRunner().invoke(kudu_core_command, given, stdin, prog_name="kudu_core")
        ended = Ended(done.exit_code, done.stdout, done.stderr)
        assert ended.code == code, f"{ended.code}\n{ended.out}\n{ended.err}"
        return ended

    return run


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """A closed table of three rows, one of which was changed: rows and history on disk."""
    path = str(tmp_path / "orders")
    placed = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)
    with kc.create_table(path, SCHEMA, ["customer", "number"]) as table:
        table.insert([
            {"customer": "ann", "number": 1, "amount": Decimal("19.90"), "placed": placed, "mark": b"\x00x"},
            {"customer": "ann", "number": 2, "amount": None, "placed": placed, "mark": None},
            {"customer": "bob", "number": 1, "amount": Decimal("7.25"), "placed": None, "mark": b""},
        ])  # fmt: skip
        table.update([{"customer": "ann", "number": 1, "amount": Decimal("3.00")}])
        table.flush()
    return path
