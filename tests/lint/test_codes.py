"""The tables of codes in docs/format.md say what the constants are, and kernels have the same numbers."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from kudu_core.common.types import types
from kudu_core.rowset.history import history
from kudu_core.table.changes import changes

ROOT = Path(__file__).resolve().parents[2]
FORMAT = (ROOT / "docs/format.md").read_text()
_ROW = re.compile(r"^\| `([A-Z_]+_)` \| `([\w/]+)` \| (.*) \|$", re.MULTILINE)
_CODE = re.compile(r"\b(\d+) ([A-Za-z_]+)")


def codes(text: str) -> dict[str, int]:
    """``1 update, 2 delete`` as names in capitals and numbers."""
    found = [(name.upper(), int(number)) for number, name in _CODE.findall(text)]
    assert len(dict(found)) == len(found)
    return dict(found)


def section(title: str) -> str:
    """What a heading of docs/format.md has below it, up to the next one."""
    [found] = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", FORMAT, re.MULTILINE | re.DOTALL)
    return str(found)


TABLES = {prefix: (module, codes(text)) for prefix, module, text in _ROW.findall(section("Codes"))}
"""By prefix, as the document has them."""


def constants(module: str, prefix: str) -> dict[str, int]:
    """Those of a module whose names begin so, without what has a longer prefix of the table."""
    longer = tuple(other for other in TABLES if other != prefix and other.startswith(prefix))
    values = vars(importlib.import_module(f"kudu_core.{module.replace('/', '.')}"))
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix) and not (longer and name.startswith(longer)) and type(value) is int
    }


def test_every_table_is_read() -> None:
    assert set(TABLES) == {"CALL_", "RECORD_", "RECORD_KIND_", "REDO_", "UNDO_", "CONTAINER_"}


@pytest.mark.parametrize("prefix", TABLES)
def test_a_table_of_codes_is_what_the_constants_say(prefix: str) -> None:
    module, told = TABLES[prefix]
    assert constants(module, prefix) == told


@pytest.mark.parametrize(
    ("title", "field", "prefix"),
    [
        ("Header", "kind", "CONTAINER_"),
        ("Record section", "op", "RECORD_"),
        ("Log record", "kind", "RECORD_KIND_"),
    ],
)
def test_a_field_has_the_codes_of_its_table(title: str, field: str, prefix: str) -> None:
    [rule] = re.findall(rf"^\| \d+ \| \d+ \| `{field}` \| (.*) \|$", section(title), re.MULTILINE)
    assert codes(rule) == TABLES[prefix][1]


def test_fingerprints_have_the_codes_of_calls() -> None:
    [told] = re.findall(r"of its operation as 8 bytes: (.*?);", section("Row fingerprint"), re.DOTALL)
    assert codes(told) == TABLES["CALL_"][1]


def test_the_names_of_events_lie_at_their_codes() -> None:
    assert constants("rowset/history/history", "EVENT_").keys() == {"INSERTED", "UPDATED", "DELETED"}
    events = (history.EVENT_INSERTED, history.EVENT_UPDATED, history.EVENT_DELETED)
    assert [changes.OP_NAMES[code] for code in events] == ["insert", "update", "delete"]


def defined(pattern: str) -> list[tuple[str, str, int]]:
    """(kernel, name, number) of what kernels define for themselves."""
    found = []
    for path in sorted((ROOT / "kudu_core/_ext").rglob("*.p[yx][xd]")):
        for name, number in re.findall(rf"^ +({pattern}[A-Z_]+) = (-?\d+)\b", path.read_text(), re.MULTILINE):
            found.append((path.name, name, int(number)))
    return found


def test_kernels_have_the_same_codes_of_changes() -> None:
    found = defined("(?:REDO|UNDO)_")
    assert {kernel for kernel, _, _ in found} == {"changes.pyx"} and len(found) == 3
    for _, name, number in found:
        prefix = name[: name.index("_") + 1]
        assert TABLES[prefix][1][name.removeprefix(prefix)] == number


def test_kernels_have_the_same_types() -> None:
    found = defined("TYPE_")
    assert {kernel for kernel, _, _ in found} == {"blocks.pyx", "hashing.pyx", "keys.pyx", "route.pyx"}
    assert len(found) == 17
    for kernel, name, number in found:
        assert getattr(types, name) == number, kernel


def test_codes_that_differ_are_seen() -> None:
    assert codes("1 UPDATE (key columns), 2 DELETE, 3 insert_ignore") == {
        "UPDATE": 1,
        "DELETE": 2,
        "INSERT_IGNORE": 3,
    }
    assert constants("tablet/store/records", "RECORD_KIND_") == {}
