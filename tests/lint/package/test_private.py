"""No room of the package uses a private name of another: what others need has a public name.

Rooms are the folders of ``kudu_core``; each package of ``table`` and of ``tablet`` is one of its own.  A
private name begins with one underscore: of a module, a function, a class, a constant, an attribute, a method
of a kernel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.lint.package.sources import parsed, walk
from tests.lint.test_floors import PACKAGE, module_of, modules_imported, named, sources

EXCEPTIONS: dict[str, str] = {}
"""``file: name`` -> why it may be used there."""

PRIVATE = re.compile(r"_[A-Za-z]\w*")
PRIVATE_IN_KERNEL = re.compile(r"(?<![\w.])_[A-Za-z]\w*")
ASKED_IN_KERNEL = re.compile(r"(\w+)\.(_[A-Za-z]\w*)")
PATHS = sources(".py", ".pyx", ".pxd")
OWN = ("self", "cls")


def room_of(module: str) -> str:
    _, *parts = module.split(".")
    split = parts[:1] in (["table"], ["tablet"]) and len(parts) > 2
    return ".".join(parts[: 2 if split else 1])


def is_private(name: str) -> bool:
    return PRIVATE.fullmatch(name) is not None


def defined(text: str, *, kernel: bool) -> set[str]:
    """Private names that a file gives to functions, classes, variables and attributes of its objects."""
    if kernel:
        return set(PRIVATE_IN_KERNEL.findall(text)) | {
            name for owner, name in ASKED_IN_KERNEL.findall(text) if owner in OWN
        }
    found = set()
    for node in walk(parsed(text)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.Attribute(ctx=ast.Store(), value=ast.Name(id=owner)) if owner in OWN:
                found.add(node.attr)
    return {name for name in found if is_private(name)}


def asked(text: str, *, kernel: bool) -> Iterator[tuple[str, str]]:
    """(what it is asked of, private name): of an object that is not the own one, or of a module."""
    if kernel:
        yield from ((owner, name) for owner, name in ASKED_IN_KERNEL.findall(text) if owner not in OWN)
        return
    for node in walk(parsed(text)):
        match node:
            case ast.Attribute(value=owner) if is_private(node.attr) and ast.unparse(owner) not in OWN:
                yield ast.unparse(owner), node.attr
            case ast.Call(func=ast.Name(id=called), args=[owner, ast.Constant(value=str(name)), *_]):
                if called in ("getattr", "setattr") and is_private(name) and ast.unparse(owner) not in OWN:
                    yield ast.unparse(owner), name


def imports(text: str, *, kernel: bool) -> Iterator[tuple[str, str]]:
    """(module, private name or module) of what a file imports from the package."""
    if kernel:
        lines = re.findall(r"^from\s+(kudu_core[\w.]*)\s+c?import\s+(\([^)]*\)|.*)$", text, re.MULTILINE)
        taken = [(module, name) for module, names in lines for name in re.findall(r"\w+", names)]
    else:
        found = [node for node in walk(parsed(text)) if isinstance(node, ast.ImportFrom)]
        taken = [(node.module or "", alias.name) for node in found for alias in node.names]
    for module, name in taken:
        if module.split(".")[0] == "kudu_core" and is_private(name) and name != "_ext":
            yield module, name


@lru_cache
def names_of() -> dict[str, set[str]]:
    """Module -> its private names."""
    found: dict[str, set[str]] = {}
    for path in PATHS:
        names = defined(path.read_text(), kernel=path.suffix != ".py")
        found.setdefault(module_of(path), set()).update(names)
    return found


@lru_cache
def arrows() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in PATHS:
        found.setdefault(module_of(path), set()).update(modules_imported(path))
    return found


@lru_cache
def names_of_others(room: str) -> set[str]:
    """Private names of all rooms but one."""
    return set().union(*(names for module, names in names_of().items() if room_of(module) != room))


def known_to(module: str) -> set[str]:
    """Private names of a module and of those of its room that it imports: it may extend their classes."""
    seen, waiting = {module}, [module]
    while waiting:
        for other in arrows()[waiting.pop()] - seen:
            if room_of(other) == room_of(module):
                seen.add(other)
                waiting.append(other)
    return set().union(*(names_of()[one] for one in seen))


def strange(path: Path) -> Iterator[str]:
    """What a file uses of other rooms though it is private there.  Names that no room has are not ours."""
    text, kernel, module = path.read_text(), path.suffix != ".py", module_of(path)
    for source, name in imports(text, kernel=kernel):
        if room_of(source) != room_of(module):
            yield name
    others, known = names_of_others(room_of(module)), known_to(module)
    for owner, name in asked(text, kernel=kernel):
        if name in others - known and owner != "kudu_core":
            yield name


def test_no_room_uses_a_private_name_of_another() -> None:
    found = {f"{named(path)}: {name}" for path in PATHS for name in strange(path)}
    new = found - EXCEPTIONS.keys()
    assert not new, "\n".join(["give it a public name, or move it:", *sorted(new)])
    assert found >= EXCEPTIONS.keys(), f"no longer needed: {EXCEPTIONS.keys() - found}"


def test_rooms() -> None:
    assert room_of("kudu_core.table.read.scan") == "table.read"
    assert room_of("kudu_core.table.table") == "table"
    assert room_of("kudu_core.tablet.store.tablet") == "tablet.store"
    assert room_of("kudu_core._ext.row.view") == "_ext"
    assert room_of("kudu_core.events") == "events"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("import.py", "from kudu_core.wal.log import _private\n"),
        ("attribute.py", "def f(tablet):\n    return tablet.log._append_any\n"),
        ("assigned.py", "def f(log):\n    log._append_any = 1\n"),
        ("by_name.py", "def f(log):\n    return getattr(log, '_append_any')\n"),
        ("kernel.pyx", "from kudu_core.wal.log cimport _private\n"),
        ("asked.pyx", "def f(log):\n    return log._append_any\n"),
    ],
)
def test_the_rule_finds_what_it_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    assert "_append_any" in names_of()["kudu_core.wal.appending"]
    room = tmp_path / "kudu_core" / "fs"
    room.mkdir(parents=True)
    path = room / name
    path.write_text(text)
    monkeypatch.setattr("tests.lint.test_floors.ROOT", tmp_path)
    monkeypatch.setitem(names_of(), module_of(path), set())
    monkeypatch.setitem(arrows(), module_of(path), set())
    assert len(list(strange(path))) == 1


def test_what_is_ones_own_is_free() -> None:
    """Of the same class, of a class of the same file, of one of the same room that the file imports."""
    assert "_uuid" in names_of()["kudu_core.wal.watermarks"] - names_of()["kudu_core.wal.log"]
    assert not list(strange(PACKAGE / "wal" / "log.py"))
