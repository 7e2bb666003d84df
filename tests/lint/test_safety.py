"""Nothing near stored bytes can run code, and files are opened in one place only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lint.package.sources import over, parsed, walk

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kudu_core"
PYTHON = sorted(PACKAGE.rglob("*.py"))
KERNELS = sorted(p for p in PACKAGE.rglob("*") if p.suffix in (".pyx", ".pxd"))

RUNS_CODE = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml", "joblib", "code"}
CALLS = {"eval", "exec", "compile", "__import__", "breakpoint"}
SYSTEM = {"mmap", "shutil", "tempfile", "subprocess", "fcntl", "socket", "glob", "io"}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """(full name as written, call)."""
    for node in walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@over(PYTHON)
def test_no_code_in_data(path: Path) -> None:
    tree = parsed(path.read_text())
    assert not imports(tree) & RUNS_CODE, f"{named(path)} imports {imports(tree) & RUNS_CODE}"
    for name, call in calls(tree):
        where = f"{named(path)}:{call.lineno}: {name}"
        assert name not in CALLS, where
        short = name.rsplit(".", 1)[-1]
        assert not (short in ("load", "loads") and name.split(".")[0] in ("np", "numpy", "torch")), where
        given = {k.arg: ast.unparse(k.value) for k in call.keywords}
        assert given.get("allow_pickle", "False") == "False", where
        assert given.get("dtype") not in ("object", "np.object_", "'O'", "'object'"), f"{where}: object array"


@over(KERNELS)
def test_kernels_hold_no_objects(path: Path) -> None:
    text = path.read_text()
    found = re.search(r"\b(pickle|marshal|object_|PyObject_Call|allow_pickle)\b|dtype\s*=\s*object", text)
    assert not found, f"{named(path)}: {found and found.group()}"


@over([p for p in PYTHON if room(p) not in ("fs", "engines")])
def test_only_fs_touches_files(path: Path) -> None:
    tree = parsed(path.read_text())
    assert not imports(tree) & SYSTEM, f"{named(path)} imports {imports(tree) & SYSTEM}"
    for name, call in calls(tree):
        assert name != "open" and not name.startswith(("os.open", "os.write", "os.unlink", "os.rename")), (
            f"{named(path)}:{call.lineno}: {name}"
        )
        assert name.rsplit(".", 1)[-1] not in {"memory_map", "memmap", "fromfile", "tofile"}, (
            f"{named(path)}:{call.lineno}: {name}"
        )


def test_errors_are_not_swallowed() -> None:
    """An ``except`` of everything says why, in words after its ``noqa``, and does something."""
    for path in PYTHON:
        lines = path.read_text().splitlines()
        for node in walk(parsed("\n".join(lines))):
            if isinstance(node, ast.ExceptHandler):
                wide = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
                raises = any(isinstance(inner, ast.Raise) for inner in walk(node))
                empty = all(isinstance(inner, ast.Pass) for inner in node.body)
                where = f"{named(path)}:{node.lineno}"
                assert not (wide and empty), where
                if wide and not raises:
                    assert "noqa" in lines[node.lineno - 1], f"{where}: say why nothing is raised"


def test_rows_of_arrays_are_not_sorted_as_structures() -> None:
    """``unique(axis=)`` compares rows as structures, which NumPy does in Python: an interrupt amid that comes
    out as a TypeError."""
    for path in PYTHON:
        for name, call in calls(parsed(path.read_text())):
            by_row = name.endswith(".unique") and any(word.arg == "axis" for word in call.keywords)
            assert not by_row, f"{named(path)}:{call.lineno}: pack each row into one value"


@over(PYTHON)
def test_values_that_differ_are_not_hashed(path: Path) -> None:
    """``np.unique`` alone puts them into a hash table since numpy 2.4: up to 45 times the time of a sort."""
    for name, call in calls(parsed(path.read_text())):
        assert not hashes(name, call), f"{named(path)}:{call.lineno}: distinct() of common/run/ordering.py"


def hashes(name: str, call: ast.Call) -> bool:
    return name == "np.unique" and not any(str(word.arg).startswith("return_") for word in call.keywords)


@pytest.mark.parametrize(
    ("text", "found"),
    [("np.unique(rows)", True), ("np.unique(rows, return_inverse=True)", False), ("distinct(rows)", False)],
)
def test_the_rule_finds_such_calls(text: str, found: bool) -> None:
    assert any(hashes(name, call) for name, call in calls(parsed(text))) == found


BLAS = {"dot", "vdot", "inner", "outer", "matmul", "tensordot", "einsum", "linalg", "multi_dot", "cov"}


@over(PYTHON)
def test_nothing_wakes_the_threads_of_blas(path: Path) -> None:
    """After a call they spin for a while, each on a core, and doubled the processor time of a bulk load."""
    for node in walk(parsed(path.read_text())):
        found = isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)
        found |= isinstance(node, ast.Attribute) and node.attr in BLAS
        assert not found, f"{named(path)}:{getattr(node, 'lineno', 0)}: multiply and sum instead"
