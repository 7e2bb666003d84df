"""What tests, benches and examples import is there: found without collecting them, which takes minutes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.lint.package.sources import parsed, walk

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("tests", "bench", "examples", "ci")
OURS = ("kudu_core", "pyspark_kudu_core", "tests")


def source_of(module: str) -> Path | None:
    """The file of a module of ours; a package's is its folder."""
    path = ROOT.joinpath(*module.split("."))
    for found in (path.with_suffix(".py"), path.with_suffix(".pyi"), path.with_suffix(".pyx"), path):
        if found.exists():
            return found
    return None


@lru_cache
def names_of(module: str) -> frozenset[str] | None:
    """What a module of Python gives at its top; None: it says so while it runs.

    That is a module with ``__getattr__`` and without ``__all__``.
    """
    source = source_of(module)
    assert source is not None
    names = set()
    if source.is_dir():
        names = {path.name.split(".")[0] for path in source.iterdir()}
        source = source / "__init__.py"
        if not source.exists():
            return frozenset(names)
    for node in walk(parsed(source.read_text())):
        match node:
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
    return None if "__getattr__" in names and "__all__" not in names else frozenset(names)


def missing(path: Path) -> Iterator[str]:
    for node in walk(parsed(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in OURS and source_of(alias.name) is None:
                    yield f"line {node.lineno}: there is no module {alias.name}"
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            if node.module.split(".")[0] not in OURS:
                continue
            if source_of(node.module) is None:
                yield f"line {node.lineno}: there is no module {node.module}"
                continue
            names = names_of(node.module)
            for alias in node.names:
                if names is not None and alias.name not in names and alias.name != "*":
                    yield f"line {node.lineno}: {node.module} has no {alias.name}"


@pytest.mark.parametrize("room", ROOMS)
def test_imports_lead_somewhere(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    wrong = [f"{path.relative_to(ROOT)}, {what}" for path in files for what in missing(path)]
    assert not wrong, "\n".join(wrong)


def test_a_module_or_a_name_that_is_gone_is_found(tmp_path: Path) -> None:
    program = tmp_path / "test_it.py"
    program.write_text(
        "import kudu_core.table.no_such\n"
        "from kudu_core.table.no_such import something\n"
        "from kudu_core.table.opened.engine import Engine, no_such\n"
        "from kudu_core._ext.base.crc32c import crc32c\n"
        "from kudu_core import open_table, no_such_function\n"
        "from tests.support import inside, no_such_support\n"
    )
    assert [what.split(":")[0] for what in missing(program)] == [
        "line 1",
        "line 2",
        "line 3",
        "line 5",
        "line 6",
    ]
