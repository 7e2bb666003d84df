"""The lists of codes in docs/format*.md say what the constants are, and kernels have the same numbers."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from kudu_core.common.types import types
from kudu_core.rowset.history import window
from kudu_core.table.changes import change_batches

ROOT = Path(__file__).resolve().parents[3]
FORMAT = "".join((ROOT / f"docs/{name}.md").read_text() for name in ("format", "format-table", "format-log"))
_CODE = re.compile(r"\b(\d+)\s+([A-Za-z_]+)")

LISTS = {
    "CALL_": ("_ext/rules/decide", "Row fingerprint", r"of its operation as 8 bytes: (.*?);"),
    "RECORD_": ("tablet/store/records", "Record section", r"\| `op` \| (.*) \|"),
    "RECORD_KIND_": ("wal/format", "Log record", r"\| `kind` \| (.*) \|"),
    "REDO_": ("cfile/files/delta_codes", "Delta files", r"\(uint8: REDO (.*?);"),
    "UNDO_": ("cfile/files/delta_codes", "Delta files", r"; UNDO (.*?)\)"),
    "CONTAINER_": ("cfile/pages/container", "Header", r"\| `kind` \| (.*) \|"),
}
"""By prefix: the module that has the constants; the section of the document, and where the list is in it."""
IN_NO_FILE = {"REDO_": {"REINSERT": 3}}
"""Of rows in memory alone."""


def codes(text: str) -> dict[str, int]:
    """``1 update, 2 delete`` as names in capitals and numbers."""
    found = [(name.upper(), int(number)) for number, name in _CODE.findall(text)]
    assert len(dict(found)) == len(found)
    return dict(found)


def section(title: str) -> str:
    """What a heading of the documents of formats has below it, up to the next one."""
    [found] = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", FORMAT, re.MULTILINE | re.DOTALL)
    return str(found)


def told(prefix: str) -> dict[str, int]:
    """The codes of a list of the document."""
    _, title, pattern = LISTS[prefix]
    [found] = re.findall(pattern, section(title), re.DOTALL if "?" in pattern else 0)
    return codes(found)


def constants(module: str, prefix: str) -> dict[str, int]:
    """Those of a module whose names begin so, without what has a longer prefix of the lists."""
    longer = tuple(other for other in LISTS if other != prefix and other.startswith(prefix))
    values = vars(importlib.import_module(f"kudu_core.{module.replace('/', '.')}"))
    return {
        name.removeprefix(prefix): value
        for name, value in values.items()
        if name.startswith(prefix) and not (longer and name.startswith(longer)) and type(value) is int
    }


@pytest.mark.parametrize("prefix", LISTS)
def test_a_list_of_codes_is_what_the_constants_say(prefix: str) -> None:
    found = told(prefix)
    assert len(found) > 1
    assert constants(LISTS[prefix][0], prefix) == found | IN_NO_FILE.get(prefix, {})


def test_the_names_of_events_lie_at_their_codes() -> None:
    assert constants("rowset/history/window", "EVENT_").keys() == {"INSERTED", "UPDATED", "DELETED"}
    events = (window.EVENT_INSERTED, window.EVENT_UPDATED, window.EVENT_DELETED)
    assert [change_batches.OP_NAMES[code] for code in events] == ["insert", "update", "delete"]


def defined(pattern: str) -> list[tuple[str, str, int]]:
    """(kernel, name, number) of what kernels define for themselves."""
    found = []
    for path in sorted((ROOT / "kudu_core/_ext").rglob("*.p[yx][xd]")):
        for name, number in re.findall(rf"^ +({pattern}[A-Z_]+) = (-?\d+)\b", path.read_text(), re.MULTILINE):
            found.append((path.name, name, int(number)))
    return found


def test_kernels_have_the_same_codes_of_changes() -> None:
    found = defined("(?:REDO|UNDO)_")
    assert {kernel for kernel, _, _ in found} == {"overlay.pxd"} and len(found) == 3
    for _, name, number in found:
        prefix = name[: name.index("_") + 1]
        assert constants(LISTS[prefix][0], prefix)[name.removeprefix(prefix)] == number


def test_kernels_have_the_same_types() -> None:
    found = defined("TYPE_")
    assert {kernel for kernel, _, _ in found} == {"encode.pyx", "hashing.pyx", "keys.pyx", "route.pyx"}
    assert len(found) == 17
    for kernel, name, number in found:
        assert getattr(types, name) == number, kernel


def test_codes_are_read_as_they_stand() -> None:
    assert codes("1 UPDATE (key columns), 2 DELETE, 3 insert_ignore") == {
        "UPDATE": 1,
        "DELETE": 2,
        "INSERT_IGNORE": 3,
    }
    assert constants("tablet/store/records", "RECORD_KIND_") == {}
