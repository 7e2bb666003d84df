"""Code for nobody: a public function, method, class or constant of the package whose name nothing says.

Names are compared, not what they mean: one that two things have counts as used when either is.  So what is
found here is dead, but not all that is dead is found.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import kudu_core as kc
from tests.lint.package.sources import parsed, walk

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "kudu_core"

# Name -> why it may stay though nothing in the package says it.
STAYS = {
    "seekable": "pyarrow asks a file of Python's for it",
    "open_input_file": "pyarrow asks a file system of Python's for it",
    "check_records": "an invariant of docs/protocol.md; tests see log and manifests together",
    "check_pins": "an invariant of docs/protocol.md; tests ask for it at every step",
    "limit_data": "lets tests fill a column without 2 GiB",
    "murmur3_one": "the hash of one key, by which tests ask kernels for it",
    "append_cell": "a kernel in one cell, by which the tests of columns in memory fill them",
}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
PYX_DEFINITION = re.compile(r"^\s*(?:def|class|cdef\s+class)\s+(\w+)\s*[(:]")


def imported(tree: ast.Module) -> set[str]:
    """Names that a module takes from outside of the package."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and "kudu_core" not in ast.unparse(node):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names - {"ABC", "Protocol", "NamedTuple", "Enum", "IntEnum"}


def defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(name, line) of functions and classes, of constants, and of methods of classes; not of those whose
    base is another library's, which calls them."""
    foreign = imported(tree)
    for node in tree.body:
        if isinstance(node, Definition):
            yield node.name, node.lineno
        if isinstance(node, ast.ClassDef) and not any(
            ast.unparse(base).split(".")[0] in foreign for base in node.bases
        ):
            for inner in node.body:
                if isinstance(inner, Definition):
                    yield inner.name, inner.lineno
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, node.lineno


def said(tree: ast.Module) -> Iterator[str]:
    """Names that a module uses: not those that it defines, lists in ``__all__`` or only imports."""
    listed: set[int] = set()
    for node in walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            listed |= {id(inner) for inner in walk(node)}
        if isinstance(node, Definition | ast.Module) and ast.get_docstring(node, clean=False) is not None:
            listed.add(id(node.body[0].value))  # type: ignore[attr-defined]
    for node in walk(tree):
        if id(node) in listed:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from WORD.findall(node.value)  # an annotation, a name for getattr


def written() -> Iterator[str]:
    """Names in documents, in examples, and in the package by whose name Spark finds this one."""
    folders = [ROOT / "docs", ROOT / "examples", ROOT / "pyspark_kudu_core"]
    for path in [*ROOT.glob("*.md"), *(found for folder in folders for found in folder.rglob("*"))]:
        if path.suffix in (".md", ".py") and path.name != "CHANGELOG.md":
            yield from WORD.findall(path.read_text())
    for name in kc.__all__:
        yield name
        if inspect.isclass(thing := getattr(kc, name)):
            yield from dir(thing)


def unused() -> dict[str, list[str]]:
    """Name -> where it is defined."""
    places: dict[str, list[str]] = {}
    uses = set(written())
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = parsed(path.read_text())
        uses.update(said(tree))
        for name, line in defined(tree):
            places.setdefault(name, []).append(f"{path.relative_to(ROOT)}:{line}")
    for path in sorted([*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxd")]):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            made = PYX_DEFINITION.match(line) if path.suffix == ".pyx" else None
            if made:
                places.setdefault(made[1], []).append(f"{path.relative_to(ROOT)}:{number}")
            uses.update(WORD.findall((line[made.end() :] if made else line).split("#")[0]))
    return {n: where for n, where in places.items() if n not in uses and not n.startswith("_")}


def test_nothing_is_there_for_nobody() -> None:
    found = [f"{', '.join(places)}: {name}" for name, places in unused().items() if name not in STAYS]
    head = "nothing uses these: delete them; what only tests use belongs to tests/support:"
    assert not found, "\n".join([head, *found])


def test_what_may_stay_is_there_and_still_unused() -> None:
    assert STAYS.keys() - unused().keys() == set(), "take these from the list above"


def test_a_name_that_nothing_says_is_found() -> None:
    tree = parsed("""
from abc import ABC
from elsewhere import Base
__all__ = ["listed"]
LIMIT = 3
def listed(): return called()
def called(): "A docstring says listed."
class Ours(ABC):
    def lonely(self): ...
class Theirs(Base):
    def called_by_them(self): ...
""")
    names = {name for name, _ in defined(tree)} - set(said(tree))
    assert names == {"LIMIT", "listed", "Ours", "lonely", "Theirs", "__all__"}
