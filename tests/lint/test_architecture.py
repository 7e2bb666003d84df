"""What docs/ARCHITECTURE.md says of the house is so: its files, its floors, the steps of its walks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.lint.package.sources import parsed, walk
from tests.lint.test_floors import FLOORS, INSIDE

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kudu_core"
TEXT = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
WALKS = ["A write of two rows", "A bulk insert", "A scan with a predicate", "A Spark write", "A flush"]
MOST_STEPS = 10

ROOMS = "|".join(sorted(room for floor in FLOORS for room in floor if (PACKAGE / room).is_dir()))
FILE = re.compile(rf"`((?:{ROOMS})/[\w/]+\.(?:py|pyx))`")
NAME = re.compile(r"`([a-z_]\w*|[A-Z]\w*[a-z]\w*)`")
MEMBER = re.compile(r"`([A-Z]\w+)\.([a-z_]\w*)`")


def section(title: str, level: int = 3, text: str = TEXT) -> str:
    found = re.search(rf"^{'#' * level} {re.escape(title)}\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    assert found, title
    return found[1]


def steps_of(walk: str) -> list[str]:
    """The numbered points of a walk, each as one line."""
    found = re.split(r"^\d+\. ", section(walk), flags=re.M)[1:]
    return [" ".join(step.split("\n\n")[0].split()) for step in found]


def missing_of(step: str) -> list[str]:
    """What a step names that none of its files defines; a table of the house itself is no step."""
    sources = [(PACKAGE / file).read_text() for file in FILE.findall(step)]
    names = NAME.findall(step)
    return [n for n in names if not any(re.search(rf"\b(?:def|class) {n}\b", s) for s in sources)]


@cache
def members() -> dict[str, str]:
    """The text of every class of the package and of those that it is made of, by name; of several with one
    name, of all."""
    found: dict[str, str] = {}
    bases: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        for node in parsed(text).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = found.get(node.name, "") + (ast.get_source_segment(text, node) or "")
                bases.setdefault(node.name, set()).update(b.id for b in node.bases if isinstance(b, ast.Name))
    return {name: text + "".join(found.get(b, "") for b in bases[name]) for name, text in found.items()}


def has(cls: str, member: str) -> bool:
    return bool(re.search(rf"\bdef {member}\(|\bself\.{member}\b", members().get(cls, "")))


def test_files_are_there() -> None:
    named = set(FILE.findall(TEXT))
    assert len(named) > 40
    assert [name for name in sorted(named) if not (PACKAGE / name).exists()] == []


def test_members_are_there() -> None:
    named = set(MEMBER.findall(TEXT))
    assert len(named) > 5
    assert [f"{cls}.{member}" for cls, member in sorted(named) if not has(cls, member)] == []


# ---- locks ----

LOCKS = {"mutex", "reentrant", "Turns"}
"""What makes one."""
METHODS = {"Writers._job_locks": "Writers.job_lock", "Writers._token_locks": "Writers.lock_of"}


def last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def locks_of(file: str, tree: ast.Module) -> Iterator[str]:
    """What has a lock: ``Class.attribute``, or the file of one that is nobody's."""
    for top in tree.body:
        for made in walk(top):
            if not isinstance(made, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
                continue
            if not any(isinstance(node, ast.Call) and last(node.func) in LOCKS for node in walk(made)):
                continue
            held: list[ast.expr] = [made.value] if made.value else []  # such as a dict's setdefault
            if isinstance(made, ast.Assign):
                held = made.targets
            elif isinstance(made, ast.AnnAssign):
                held = [made.target]
            names = [
                node.attr
                for part in held
                for node in walk(part)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            ]
            if isinstance(top, ast.ClassDef):
                yield from (f"{top.name}.{name}" for name in names)
            else:
                yield file


def test_every_lock_has_its_place() -> None:
    """In the order of docs/ARCHITECTURE.md, or with those of ``common/run/locks.py``."""
    text = section("7. Locks", 2) + (PACKAGE / "common/run/locks.py").read_text()
    told = {f"{cls}.{member}" for cls, member in MEMBER.findall(text)} | set(FILE.findall(text))
    # Two kinds are many, and taken by methods that find the one.
    told |= {held for held, method in METHODS.items() if method in told}
    made = {
        lock
        for path in sorted(PACKAGE.rglob("*.py"))
        for lock in locks_of(path.relative_to(PACKAGE).as_posix(), parsed(path.read_text()))
    }
    assert len(made) > 30
    assert sorted(made - told) == [], "say there when it may be taken"


@pytest.mark.parametrize(
    ("text", "lock"),
    [
        ("class A:\n def __init__(self):\n  self._lock = mutex()", "A._lock"),
        ("class A:\n def __init__(self):\n  self._lock: Mutex = mutex()", "A._lock"),
        ("class A:\n def copy(self):\n  other._lock = locks.mutex()", "A._lock"),
        ("class A:\n def f(self):\n  self.locks = [reentrant() for _ in range(3)]", "A.locks"),
        ("class A:\n def f(self):\n  return self.locks.setdefault(1, reentrant())", "A.locks"),
        ("_lock = mutex()", "table/new.py"),
        ("def again():\n global _lock\n _lock = mutex()", "table/new.py"),
    ],
)
def test_locks_are_found(text: str, lock: str) -> None:
    assert set(locks_of("table/new.py", parsed(text))) == {lock}


@pytest.mark.parametrize("walk", WALKS)
def test_steps_name_what_their_files_define(walk: str) -> None:
    steps = steps_of(walk)
    assert 5 < len(steps) <= MOST_STEPS, f"{walk} has {len(steps)} steps"
    for number, step in enumerate(steps, 1):
        assert FILE.search(step), f"{walk}, step {number}, names no file"
        assert missing_of(step) == [], f"{walk}, step {number}"


@pytest.mark.parametrize("room", INSIDE)
def test_floors_are_those_of_the_tests(room: str) -> None:
    table = TEXT.split(f"| floor | `{room}/` |")[1].split("\n\n")[0]
    told = re.findall(r"^\| (\d+) \| `(\w+)(?:/|\.py)` \|", table, re.M)
    floors = {package: number for number, packages in enumerate(INSIDE[room], 1) for package in packages}
    assert {package: int(number) for number, package in told} == floors


def test_every_room_is_told() -> None:
    told = re.findall(r"^\| (\d+) \| (`.+?)\|", TEXT.split("| floor | room |")[1].split("\n\n")[0], re.M)
    rooms = {name: int(floor) for floor, names in told for name in re.findall(r"`(\w+)(?:/|\.py)", names)}
    engines = {"spark", "__init__", "__main__"}  # what users import or run, above all rooms
    below = {room: number for number, floor in enumerate(FLOORS) for room in floor}
    assert rooms.keys() == below.keys() - engines
    for room, floor in rooms.items():
        assert floor == below[room], room


def test_the_rules_find_what_they_are_for() -> None:
    assert missing_of("`table/table.py`: `no_such_thing` does it") == ["no_such_thing"]
    assert missing_of("`wal/appending.py`: `append`") == []
    assert not has("Tablet", "no_such_thing")
    assert not has("NoSuchClass", "close")
