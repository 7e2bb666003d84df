"""The house: a module imports only from lower floors, and rooms on one floor do not know each other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from kudu_core.cli.registry import COMMANDS
from tests.lint.package.sources import over, parsed, walk

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kudu_core"

FLOORS = [
    {"_ext"},
    {"errors"},
    {"options", "events"},
    {"common", "fs"},
    {"objects", "page", "sql"},
    {"cfile", "wal"},
    {"rowset"},
    {"tablet"},
    {"table"},
    {"engines", "web"},
    {"cli", "spark"},  # spark: what users import, engines/spark under its public name
    {"__init__", "__main__"},
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
        for node in walk(parsed(text)):
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


@over(sources(".py", ".pyx", ".pxd"))
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


OPTIONAL = {"pandas", "polars", "duckdb", "obstore", "opentelemetry", "prometheus_client", "sqlglot"}


def test_optional_packages_are_imported_only_where_they_are_used() -> None:
    """pandas, Polars, DuckDB, obstore and sqlglot are no dependencies: never at the top of a module."""
    for path in sources(".py"):
        for node in parsed(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.split(".")[0] for name in names} & OPTIONAL, named(path)


def test_no_kernel_cimports_numpy() -> None:
    for path in sources(".pyx", ".pxd"):
        assert not re.search(r"cimport\s+numpy|numpy\s+cimport", path.read_text()), named(path)


# What nothing inside the package imports, and why it is there.
ENTRY_POINTS = {
    "kudu_core": "users import it",
    "kudu_core.spark": "users import it",
    "kudu_core.common.types.nested.nested_layout": "nested columns, which no schema has yet",
    "kudu_core.engines.arrow.dataset": "found by its name: table/read/arrow_out.py",
    "kudu_core.engines.arrow.polars_source": "found by its name: table/table_engines.py",
    "kudu_core.engines.statements.run_statement": "likewise",
    "kudu_core.engines.telemetry.otel": "users import it",
    "kudu_core.engines.telemetry.prometheus": "users import it",
    "kudu_core.__main__": "python -m kudu_core",
    **{f"kudu_core.cli.{place.split(':')[0]}": "found by the registry" for place, _ in COMMANDS.values()},
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


# ---- inside a room ----

INSIDE: dict[str, list[set[str]]] = {
    "_ext": [
        {"base"},
        {"columns", "codec", "keys", "changes", "rules"},
        {"pages"},
        {"search", "files"},
        {"index", "scan"},
        {"row"},
        {"few", "ordered"},
        {"batch"},
    ],
    "common": [
        {"types", "format", "run"},
        {"schema"},
        {"rows"},
        {"where"},
        {"partition", "idempotence"},
    ],
    "cfile": [{"pages"}, {"columns"}, {"readers"}, {"files"}],
    "rowset": [{"rows"}, {"memory"}, {"disk"}, {"scan", "history"}],
    "tablet": [{"view"}, {"store"}, {"flush", "compact"}, {"ingest", "maintain"}, {"replay"}],
    "table": [
        {"stored"},
        {"calls"},
        {"opened"},
        {"read", "runs", "lifecycle"},
        {"report", "changes", "ingest"},
        {"write"},
        {"backup", "merge"},
        {"table_reads", "table_writes", "table_engines", "table_manners", "table_administration"},
        {"table"},
        {"entry"},
        {"jobs", "repair"},
    ],
}
"""The packages of a room, lowest floor first; those on one floor do not know each other."""

FLOOR_INSIDE = {
    (room, package): number
    for room, floors in INSIDE.items()
    for number, packages in enumerate(floors)
    for package in packages
}
MOST_MODULES = 15


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path) for path in sources(".py", ".pyx", ".pxd")}


def modules_imported(path: Path) -> set[str]:
    """Modules of ours that a file imports, for types alone too; not itself."""
    found = set()
    for name in imported(path):
        whole = name if name in MODULES else name.rpartition(".")[0]
        found.add(whole)
    return found & MODULES - {module_of(path)}


def inside(module: str) -> tuple[str, str]:
    """(room, package or module in it), empty for what has none."""
    _, room, package, *_ = (*module.split("."), "", "")
    return room, package


@over(sources(".py", ".pyx", ".pxd"))
def test_imports_only_go_down_inside_a_room(path: Path) -> None:
    room, package = inside(module_of(path))
    if room not in INSIDE or not package or package == "_shared":
        return
    assert (room, package) in FLOOR_INSIDE, f"{room}.{package} has no floor: add it to INSIDE"
    for target in modules_imported(path):
        there, other = inside(target)
        if there == room and other not in ("", package):
            assert FLOOR_INSIDE[room, other] < FLOOR_INSIDE[room, package], (
                f"{named(path)}: {room}.{package} imports {target}, which is not below it"
            )


def test_every_floor_has_what_stands_on_it() -> None:
    there = {inside(module) for module in MODULES}
    assert FLOOR_INSIDE.keys() <= there, FLOOR_INSIDE.keys() - there


def circle_in(arrows: dict[str, set[str]]) -> list[str]:
    """Modules that import each other, the way round; empty where there are none."""
    done: set[str] = set()
    for start, targets_of in arrows.items():
        way = [(start, iter(sorted(targets_of)))]
        on_way = [start]
        while way:
            module, targets = way[-1]
            target = next((t for t in targets if t not in done), None)
            if target is None:
                way.pop()
                on_way.pop()
                done.add(module)
            elif target in on_way:
                return [*on_way[on_way.index(target) :], target]
            else:
                way.append((target, iter(sorted(arrows.get(target, ())))))
                on_way.append(target)
    return []


def test_no_circle_of_modules() -> None:
    arrows: dict[str, set[str]] = {}
    for path in sources(".py", ".pyx", ".pxd"):
        arrows.setdefault(module_of(path), set()).update(modules_imported(path))
    assert not circle_in(arrows), " -> ".join(circle_in(arrows))


def test_the_rule_finds_a_circle() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_folders_are_small() -> None:
    folders: dict[Path, set[str]] = {}
    for path in sources(".py", ".pyx", ".pxd"):
        if path.stem not in ("__init__", "_shared"):
            folders.setdefault(path.parent, set()).add(path.stem)
    crowded = {named(folder): len(names) for folder, names in folders.items() if len(names) > MOST_MODULES}
    assert not crowded, f"more than {MOST_MODULES} modules in a folder: {crowded}"
