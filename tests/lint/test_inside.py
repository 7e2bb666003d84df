"""Only ``tests/support/inside.py`` knows by which private names a table leads to what is inside it.

A test of one class may look into it: the private names that tests ask for are in ``LOOKED_INTO``, which
may only shrink.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

from tests.lint.package.sources import parsed, walk

ROOT = Path(__file__).resolve().parents[2]
DOOR = "tests/support/inside.py"
ROOMS = ("tests", "bench", "examples")

LOOKED_INTO = {
    "ChangeLog": ("_in_tree",),
    "CompactionLane": ("_check_going_on", "_merges", "_operations", "_settled"),
    "DeltaFile and RowsFile": ("_keys", "_values"),
    "Laying": ("_allocated", "_tablet"),
    "Log": ("_fence_check", "_open_committed"),
    "Manifest": ("_checkpoint_size",),
    "MemRowSet": ("_tree",),
    "Pool": ("_workers",),
    "Scan": ("_sources",),
    "alterations": ("_tablets",),
    "files of the system": ("_descriptor",),
    "repair": ("_judged", "_output", "_recent"),
    "Spark: tables of a worker, writers of a stream": ("_forget", "_job"),
    "not of the package: named tuples, pyarrow, file systems of the tests": ("_call", "_read", "_replace"),
}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def defined(tree: ast.AST) -> set[str]:
    """Private names of classes: methods, and what is assigned to their objects."""
    found = set()
    for node in walk(tree):
        if isinstance(node, ast.ClassDef):
            for inner in walk(node):
                if isinstance(inner, ast.FunctionDef):
                    found.add(inner.name)
                elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
                    if ast.unparse(inner.value) == "self":
                        found.add(inner.attr)
                elif isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                    found.add(inner.target.id)
    return {name for name in found if re.fullmatch("_[a-z][a-z_0-9]*", name)}


@lru_cache
def private_names() -> frozenset[str]:
    """Of all classes of the package."""
    files = (ROOT / "kudu_core").rglob("*.py")
    return frozenset().union(*(defined(parsed(path.read_text())) for path in files))


def own_names(path: Path) -> set[str]:
    """Private names of the classes beside a file of ``tests/support``, which are the tests' own."""
    if not named(path).startswith("tests/support/"):
        return set()
    return set().union(*(defined(parsed(beside.read_text())) for beside in path.parent.glob("*.py")))


def looks(text: str, private: frozenset[str]) -> list[tuple[int, str]]:
    """(line, name) of each private name of the package that is asked of another object."""
    tree = parsed(text)
    wanted = private - defined(tree)
    return [
        (node.lineno, node.attr)
        for node in walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in wanted and ast.unparse(node.value) != "self"
    ]


SOURCES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")) if named(path) != DOOR]


def test_nobody_else_asks_a_table_for_its_engine() -> None:
    """Not in code that tests write for other processes either."""
    pattern = re.compile(r"\._(engine|handle)\b")
    found = [
        f"{named(path)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, "\n".join([f"ask {DOOR} for it:", *found])


def test_private_names_are_asked_for_inside_alone() -> None:
    known = {name for names in LOOKED_INTO.values() for name in names}
    asked = [
        (f"{named(path)}:{line}", name)
        for path in SOURCES
        for line, name in looks(path.read_text(), private_names() - own_names(path))
    ]
    new = [f"{where}: {name}" for where, name in asked if name not in known]
    assert not new, "\n".join([f"give {DOOR} a word for it:", *new])
    unused = known - {name for _, name in asked}
    assert not unused, f"no longer asked for, take them out of LOOKED_INTO: {sorted(unused)}"


def test_what_counts_as_looking_inside() -> None:
    text = "class A:\n    def f(self):\n        self._own = 1\n        other._own = other._its = pool._left\n"
    assert looks(text, frozenset({"_own", "_its", "_left"})) == [(4, "_its"), (4, "_left")]
