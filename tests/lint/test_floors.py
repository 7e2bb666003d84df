"""The house: a module imports only from lower floors, and rooms on one floor do not know each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kudu_core"

FLOORS = [
    {"_ext"},
    {"errors"},
    {"options", "events"},
    {"common", "fs"},
    {"cfile", "wal"},
    {"rowset"},
    {"tablet"},
    {"table"},
    {"engines"},
    {"cli", "spark"},  # spark: what users import, engines/spark under its public name
    {"__init__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(.+?)|c?import\s+([\w.]+).*)$", re.MULTILINE)


def sources(*suffixes: str) -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*") if path.suffix in suffixes)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports; ``from a import b`` gives ``a.b``."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
    else:
        for module, names, plain in CIMPORT.findall(text):
            if plain:
                yield plain
            else:
                first_line = [name.split()[0] for name in names.strip("() ").split(",") if name.strip()]
                yield from (f"{module}.{name}" for name in first_line or ["*"])


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", sources(".py", ".pyx", ".pxd"), ids=named)
def test_imports_only_go_down(path: Path) -> None:
    room = room_of(path)
    assert room in FLOOR, f"{room} has no floor: add it to the design, docs/ARCHITECTURE.md and this test"
    for name in imported(path):
        if name.split(".")[0] != "kudu_core" or room == "__init__":
            continue
        assert name.count("."), f"{named(path)} imports kudu_core itself; name the module"
        target = name.split(".")[1]
        assert target in FLOOR, f"{named(path)} takes {target} from kudu_core itself; name the module"
        below = FLOOR[target] < FLOOR[room]
        assert target == room or below, (
            f"{named(path)}: {room} (floor {FLOOR[room]}) imports {name} (floor {FLOOR[target]})"
        )


def test_pyspark_is_imported_only_by_its_engine() -> None:
    for path in sources(".py"):
        if room_of(path) not in ("engines", "spark"):
            assert not {name.split(".")[0] for name in imported(path)} & {"pyspark", "py4j"}, named(path)


def test_optional_packages_are_imported_only_where_they_are_used() -> None:
    """pandas, Polars and DuckDB are no dependencies: never at the top of a module."""
    for path in sources(".py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.split(".")[0] for name in names} & {"pandas", "polars", "duckdb"}, named(path)


def test_no_kernel_cimports_numpy() -> None:
    for path in sources(".pyx", ".pxd"):
        assert not re.search(r"cimport\s+numpy|numpy\s+cimport", path.read_text()), named(path)


# What nothing inside the package imports, and why it is there.
ENTRY_POINTS = {
    "kudu_core": "users import it",
    "kudu_core.spark": "users import it",
}


def test_every_module_is_imported_by_something() -> None:
    """Dead modules go."""
    used: set[str] = set()
    outside = [*(ROOT / "pyspark_kudu_core").rglob("*.py")]
    for path in [*sources(".py", ".pyx", ".pxd"), *outside]:
        for name in imported(path):
            parts = name.split(".")
            used.update(".".join(parts[:n]) for n in range(1, len(parts) + 1))
    for path in sources(".py", ".pyx"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        # A package is used when something inside it is; one with nothing inside is a place kept free.
        assert module in used | ENTRY_POINTS.keys() or path.name == "__init__.py", f"nothing imports {module}"
