"""One name is one thing: no two classes of the package have one name, and no two modules.

A module may have the name of a lower one that it imports: it brings the same subject to its own floor, as
``table/calls/decide.py`` does with the kernel ``_ext/rules/decide.pyx``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lint.package.sources import parsed, walk
from tests.lint.test_floors import module_of, modules_imported, sources

SAME_CLASS = {"Merge": "of rows that are given into a table; of runs of keys, in `_ext/keys`"}
SAME_MODULE = {
    "column": "one stored column: as look-ups of rows hold it, as scans hold it",
    "few_rows": "the way of a few rows, and in `_ext/few` the loops of it",
    "fixed": "in each package of `_ext`, what it does with columns of fixed width",
    "options": "settings, and in `engines/spark` the same as Spark hands them over",
    "salvage": "in each room, what can still be read of its damaged files",
    "scan": "of a rowset, of a table, of a table by Spark",
    "strings": "in each package of `_ext`, what it does with columns of strings",
    "words": "in each package of `_ext`, what it does with the words of a dictionary",
}
"""Deliberate exceptions.  What no longer needs to be here is taken out: the tests say so."""

DECLARED = re.compile(
    r"^[ ]*(?:cdef[ ]|cpdef[ ])?class[ ](\w+)"
    r"|^[ ]*(?:ctypedef|cdef)[ ](?:packed[ ])?(?:struct|union|enum)[ ](\w+)",
    re.MULTILINE,
)


def classes(path: Path) -> Iterator[str]:
    """Classes of a Python module; classes, structs and enumerations of a kernel."""
    text = path.read_text()
    if path.suffix == ".py":
        yield from (node.name for node in walk(parsed(text)) if isinstance(node, ast.ClassDef))
    else:
        yield from (name or struct for name, struct in DECLARED.findall(text))


def places_of_classes(paths: list[Path]) -> dict[str, set[str]]:
    """Name of each class -> where there is one.  A kernel's .pxd and .pyx are one place."""
    found: dict[str, set[str]] = {}
    for path in paths:
        for name in classes(path):
            found.setdefault(name, set()).add(module_of(path))
    return found


def places_of_modules(paths: list[Path]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in paths:
        if path.stem != "__init__":
            found.setdefault(path.stem, set()).add(module_of(path))
    return found


def strangers(modules: set[str], imports: dict[str, set[str]]) -> bool:
    """Whether one of some modules neither imports another of them nor is imported by one."""
    return any(
        not any(other in imports[module] or module in imports[other] for other in modules - {module})
        for module in modules
    )


PATHS = sources(".py", ".pyx", ".pxd")


def twice(places: dict[str, set[str]]) -> dict[str, set[str]]:
    return {name: where for name, where in places.items() if len(where) > 1}


def test_no_two_classes_have_one_name() -> None:
    found = twice(places_of_classes(PATHS))
    new = [f"{name}: {', '.join(sorted(found[name]))}" for name in sorted(found.keys() - SAME_CLASS.keys())]
    assert not new, "\n".join(["call one of them what it is:", *new])
    assert SAME_CLASS.keys() <= found.keys(), f"no longer needed: {SAME_CLASS.keys() - found.keys()}"


def test_no_two_modules_have_one_name() -> None:
    imports: dict[str, set[str]] = {}
    for path in PATHS:
        imports.setdefault(module_of(path), set()).update(modules_imported(path))
    places = twice(places_of_modules(PATHS))
    found = {name: where for name, where in places.items() if strangers(where, imports)}
    new = [f"{name}: {', '.join(sorted(found[name]))}" for name in sorted(found.keys() - SAME_MODULE.keys())]
    assert not new, "\n".join(["call one of them what it is:", *new])
    assert SAME_MODULE.keys() <= found.keys(), f"no longer needed: {SAME_MODULE.keys() - found.keys()}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "if 1:\n    class Found:\n        pass\n"),
        ("a.pyx", "@cython.final\ncdef class Found:\n    pass\n"),
        ("a.pyx", "class Found:\n    pass\n"),
        ("a.pxd", "cdef packed struct Found:\n    int a\n"),
        ("a.pxd", "ctypedef enum Found:\n    A = 1\n"),
    ],
)
def test_classes_are_found(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert list(classes(path)) == ["Found"]


def test_modules_that_have_nothing_to_do_with_each_other_are_found() -> None:
    imports = {"a.x": {"b.x"}, "b.x": set(), "c.x": set()}
    assert not strangers({"a.x", "b.x"}, imports)
    assert strangers({"a.x", "c.x"}, imports)
    assert strangers({"a.x", "b.x", "c.x"}, imports)


def test_the_package_has_classes_and_modules() -> None:
    assert places_of_classes(PATHS)["Table"] == {"kudu_core.table.table"}
    assert places_of_classes(PATHS)["Output"] == {"kudu_core._ext.scan.output"}
    assert places_of_modules(PATHS)["table"] == {"kudu_core.table.table"}
