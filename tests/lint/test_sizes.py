"""How large things may be: folders, files, functions, lines.

``too_large.txt`` lists what is larger today, with the size that it may have at most.  It may only shrink:
what has become small enough leaves the list, and nothing new enters it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.lint.package.sources import parsed, walk

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("too_large.txt")

LIMITS = {
    "folder": 15,  # modules in it, ``__init__`` not counted
    "file": 400,  # lines
    "function": 60,  # lines of code: neither blank, nor comment, nor docstring
    "columns": 110,  # of a line; the size of an entry is how many lines are wider
}
CODE = ("kudu_core", "pyspark_kudu_core", "tests", "bench", "ci", "examples")
SUFFIXES = (".py", ".pyx", ".pxd", ".pyi", ".sh")


def code(*suffixes: str) -> list[Path]:
    found = [path for folder in CODE for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return sorted([*found, *(p for p in ROOT.glob("*.py") if p.suffix in suffixes)])


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")])


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# ---- what there is ----


def folders() -> Iterator[tuple[str, int]]:
    for folder in sorted({path.parent for path in code(".py", ".pyx")}):
        if folder != ROOT:
            modules = {p.stem for p in folder.iterdir() if p.suffix in (".py", ".pyx")} - {"__init__"}
            yield named(folder), len(modules)


def files() -> Iterator[tuple[str, int]]:
    for path in [*code(".py", ".pyx", ".pxd"), *documents()]:
        yield named(path), len(path.read_text().splitlines())


def code_lines(text: str) -> set[int]:
    """Numbers of the lines of Python that are neither blank nor comment; those of strings all count."""
    counted: set[int] = set()
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            counted.update(range(token.start[0], token.end[0] + 1))
    return counted


def may_be_large(path: Path) -> bool:
    """Whether a function has so many lines of whatever kind: most files have none, and tokens take time."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LIMITS["function"]
        for node in walk(parsed(path.read_text()))
    )


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    text = path.read_text()
    counted = code_lines(text)

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    assert child.end_lineno is not None
                    own = counted & set(range(child.lineno, child.end_lineno + 1))
                    if ast.get_docstring(child) is not None:
                        told = child.body[0]
                        assert told.end_lineno is not None
                        own -= set(range(told.lineno, told.end_lineno + 1))
                    yield f"{named(path)}::{name}", len(own)
                yield from inside(child, f"{name}.")
            else:
                yield from inside(child, prefix)

    yield from inside(parsed(text), "")


DEFINED = re.compile(r"^( *)(?:def|cdef|cpdef)\b(?!.*\bclass\b)[^(=]*?(\w+)\(")


def cython_functions(path: Path) -> Iterator[tuple[str, int]]:
    """By their indentation; what is shown in the docstring of one counts nothing."""
    lines = re.sub(r'"""(?s:.*?)"""', lambda m: "\n" * m[0].count("\n"), path.read_text()).splitlines()
    for number, line in enumerate(lines):
        found = DEFINED.match(line)
        if found is None:
            continue
        depth, size = len(found[1]), 1
        for below in lines[number + 1 :]:
            bare = below.strip()
            if not bare or bare.startswith("#"):
                continue
            if len(below) - len(below.lstrip()) <= depth and not bare.startswith(")"):
                break
            size += 1
        yield f"{named(path)}::{found[2]}", size


def functions() -> Iterator[tuple[str, int]]:
    largest: dict[str, int] = {}
    for path in filter(may_be_large, code(".py")):
        for name, size in python_functions(path):
            largest[name] = max(size, largest.get(name, 0))
    for path in code(".pyx", ".pxd"):
        for name, size in cython_functions(path):
            largest[name] = max(size, largest.get(name, 0))
    yield from largest.items()


def wide_lines() -> Iterator[tuple[str, int]]:
    """An address cannot be broken.  Documents have their own test (``test_documents``)."""
    for path in code(*SUFFIXES):
        lines = path.read_text().splitlines()
        yield named(path), sum(len(line) > LIMITS["columns"] and "://" not in line for line in lines)


@lru_cache
def sizes(kind: str) -> dict[str, int]:
    """What is larger than its kind may be."""
    if kind == "columns":
        return {name: size for name, size in wide_lines() if size}
    found = {"folder": folders, "file": files, "function": functions}[kind]()
    return {name: size for name, size in found if size > LIMITS[kind]}


def listed() -> dict[str, dict[str, int]]:
    entries: dict[str, dict[str, int]] = {kind: {} for kind in LIMITS}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            kind, size, name = line.split(maxsplit=2)
            entries[kind][name] = int(size)
    return entries


# ---- the law ----


@pytest.mark.parametrize("kind", LIMITS)
def test_nothing_is_larger_than_it_may_be(kind: str) -> None:
    allowed = listed()[kind]
    wrong = [
        f"{kind} {name}: {size}, may be {allowed.get(name, 0 if kind == 'columns' else LIMITS[kind])}"
        for name, size in sizes(kind).items()
        if size > allowed.get(name, 0)
    ]
    assert not wrong, "\n".join(["cut these; too_large.txt takes nothing new:", *wrong])


@pytest.mark.parametrize("kind", LIMITS)
def test_the_list_only_shrinks(kind: str) -> None:
    found = sizes(kind)
    gone = [f"{kind} {size} {name}" for name, size in listed()[kind].items() if name not in found]
    assert not gone, "\n".join(["small enough now; take them out of too_large.txt:", *gone])


PYTHON = '''
class A:
    def b(self):
        """One.

        Two.
        """

        # why
        return (
            1
        )
'''
CYTHON = '''
cdef class C:
    cdef int f(self, int a,
               int b) except -1 nogil:
        """Told."""
        return a

    # why
    def g(self):
        return 1

def h():
    x = 1

    return x
'''


def test_functions_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.lint.test_sizes.ROOT", tmp_path)
    python = tmp_path / "a.py"
    python.write_text(PYTHON)
    assert dict(python_functions(python)) == {"a.py::A.b": 4}
    kernel = tmp_path / "k.pyx"
    kernel.write_text(CYTHON)
    assert dict(cython_functions(kernel)) == {"k.pyx::f": 3, "k.pyx::g": 2, "k.pyx::h": 3}
