"""How locks are taken, threads wait, things under way are counted and failures are kept: so that no interrupt
leaves them so, or makes them unknown.

The rules and their reasons are in ``kudu_core/common/run/locks.py``.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from kudu_core.wal import Log
from tests.lint.package.sources import over, parsed, walk

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kudu_core"
SOURCES = sorted(PACKAGE.rglob("*.py"))

MADE = {"Lock", "RLock", "allocate_lock"}
WAITED = {"Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "Timer"}
ENTERED = {"enter_context", "push", "_push_cm_exit"}
TAKEN = {"acquire", "try_lock"}
# File -> what it may do of this, and why.
ALLOWED: dict[str, dict[str, str]] = {
    "common/run/locks.py": {"Lock": "makes them", "RLock": "makes them"},
    "common/run/gates.py": {
        "allocate_lock": "gates, of which nothing is guarded",
        "acquire": "at a gate one waits; who is interrupted looks again",
    },
    "common/where/analysis.py": {"Condition": "of a predicate"},
    "fs/piece_cache.py": {"allocate_lock": "locks.py is on its own floor; it waits for nothing"},
    "fs/lease.py": {
        "allocate_lock": "a pause; nobody else knows the lock",
        "acquire": "a pause; nobody else knows the lock",
    },
}
# Functions that wait for a lock, or that other threads' locks hang on: under them no foreign code is called.
FOREIGN = {"listener", "_tell", "tell"}


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def last(node: ast.expr) -> str:
    """The last name of a dotted one."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_lock(node: ast.expr) -> bool:
    """Whether a ``with`` on it takes a lock, by its name: what ``mutex()`` or ``reentrant()`` made."""
    name = last(node.func) if isinstance(node, ast.Call) else last(node)
    words = name.strip("_").split("_")
    locks = {"mutex", "lock", "lane", "short", "altering", "HeldLocks", "opening", "choosing", "relief"}
    return bool(locks & set(words))


def found(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of what the rules speak of."""
    for node in walk(tree):
        if isinstance(node, ast.Call):
            name = last(node.func)
            if name in MADE | WAITED | TAKEN:
                yield node.lineno, name
            if name in ENTERED and isinstance(node.func, ast.Attribute):
                yield node.lineno, name
        elif isinstance(node, ast.ImportFrom) and node.module == "functools":
            for alias in node.names:
                if alias.name == "cached_property":
                    yield node.lineno, alias.name
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "functools.cached_property":
            yield node.lineno, "cached_property"
        elif isinstance(node, ast.FunctionDef) and any(
            last(d) in ("contextmanager", "asynccontextmanager") for d in node.decorator_list
        ):
            for inner in walk(node):
                if isinstance(inner, ast.With) and any(is_lock(item.context_expr) for item in inner.items):
                    if any(isinstance(deep, ast.Yield | ast.YieldFrom) for deep in walk(inner)):
                        yield inner.lineno, "a contextmanager that yields under a lock"


def unallowed(path: Path, tree: ast.AST) -> list[str]:
    allowed = ALLOWED.get(named(path), {})
    return [f"{named(path)}:{line}: {name}" for line, name in found(tree) if name not in allowed]


@over(SOURCES)
def test_locks_are_taken_by_with_alone(path: Path) -> None:
    wrong = unallowed(path, parsed(path.read_text()))
    assert not wrong, "see kudu_core/common/run/locks.py (or give the reason in ALLOWED):\n" + "\n".join(
        wrong
    )


def test_what_is_allowed_is_done() -> None:
    for name, allowed in ALLOWED.items():
        done = {what for _, what in found(parsed((PACKAGE / name).read_text()))}
        assert set(allowed) <= done, f"{name}: no longer needed: {set(allowed) - done}"


@pytest.mark.parametrize(
    "text",
    [
        "import threading\nlock = threading.Lock()",
        "from threading import Event\nflag = Event()",
        "stack.enter_context(self._mutex)",
        "self._mutex.acquire()",
        "from functools import cached_property",
        "import functools\nclass A:\n @functools.cached_property\n def b(self): ...",
        "@contextmanager\ndef held(self):\n with self._mutex:\n  yield",
    ],
)
def test_the_rules_find_what_they_are_for(text: str) -> None:
    assert unallowed(PACKAGE / "table/new.py", parsed(text))


@pytest.mark.parametrize(
    "text",
    ["with self._mutex:\n pass", "@contextmanager\ndef used(self):\n with self._mutex:\n  a = 1\n yield a"],
)
def test_the_rules_leave_the_rest(text: str) -> None:
    assert not unallowed(PACKAGE / "table/new.py", parsed(text))


# ---- a loop at the beginning of a try ----


def first_loops(tree: ast.AST) -> Iterator[int]:
    """Lines of ``try:`` that begin with ``while``.  Where a loop goes back, CPython looks for signals as if
    it were before the loop's first opcode: in 3.13 before the ``try``, whose handlers are passed by."""
    for node in walk(tree):
        if isinstance(node, ast.Try) and node.body and isinstance(node.body[0], ast.While):
            yield node.lineno


@over(SOURCES)
def test_no_try_begins_with_a_while(path: Path) -> None:
    assert not list(first_loops(parsed(path.read_text())))


def test_the_rule_finds_such_a_loop() -> None:
    assert list(first_loops(parsed("try:\n while a():\n  b()\nfinally:\n c()")))


# ---- events are told under no lock ----


def told_under_locks(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, function) where a listener is called in the body of a ``with`` on a lock."""
    for node in walk(tree):
        if isinstance(node, ast.With) and any(is_lock(item.context_expr) for item in node.items):
            for inner in walk(node):
                if isinstance(inner, ast.Call) and last(inner.func) in FOREIGN:
                    yield inner.lineno, last(inner.func)


@over(SOURCES)
def test_listeners_are_called_under_no_lock(path: Path) -> None:
    wrong = [f"{named(path)}:{line}: {name}" for line, name in told_under_locks(parsed(path.read_text()))]
    assert not wrong, wrong


def test_the_rule_finds_such_a_call() -> None:
    assert list(told_under_locks(parsed("with self._mutex:\n self._tell(event)")))


# ---- finalizers ----

FINALIZERS = {
    "rowset/disk/lazy_file.py": "takes the lock of an object that nobody has any more",
}
"""The collector runs where memory is taken, on a thread that may hold any lock: a ``__del__`` that takes a
lock of something else waits for itself."""


@over(SOURCES)
def test_finalizers_are_known(path: Path) -> None:
    tree = parsed(path.read_text())
    made = [n for n in walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__del__"]
    assert not made or named(path) in FINALIZERS, f"say in FINALIZERS why no lock can be held: {named(path)}"


@over(SOURCES)
def test_no_function_inside_another_calls_itself(path: Path) -> None:
    """It would be held by its own closure, and with it whatever the closure holds, until the collector comes:
    views, and so the files of rowsets that were replaced."""
    for outer in walk(parsed(path.read_text())):
        if isinstance(outer, ast.FunctionDef):
            for inner in walk(outer):
                if isinstance(inner, ast.FunctionDef) and inner is not outer:
                    called = [n.func for n in walk(inner) if isinstance(n, ast.Call)]
                    names = {f.id for f in called if isinstance(f, ast.Name)}
                    assert inner.name not in names, f"{named(path)}:{inner.lineno}: {inner.name}"


# ---- failures that poison ----

# CPython runs signal handlers when a Python function begins and after a call.  Between a failing fsync and
# the first call of the ``except`` that catches it there is no such place, and ``poison`` is compiled: so it
# is that first call (protocol W8).  ``tests/interrupts/test_failed_fsyncs.py`` tries it.

POISONS = {"poison", "_poison", "poison_if_owed"}
# File -> where something else than the log's own is handed on to be told of failures, and why.
OTHERS = {
    "table/lifecycle/create.py": "a table that is being made has no log yet, and goes if that fails",
    "table/backup/clone.py": "likewise",
}


def calls_in_order(nodes: list[ast.stmt]) -> list[ast.Call]:
    """As they are made: one among the arguments of another comes first."""
    found = [one for node in nodes for one in walk(node) if isinstance(one, ast.Call)]
    return sorted(found, key=lambda call: (call.end_lineno, call.end_col_offset))


def late(tree: ast.AST) -> Iterator[int]:
    """Lines of handlers that call something else before they poison."""
    for handler in walk(tree):
        if isinstance(handler, ast.ExceptHandler):
            calls = calls_in_order(handler.body)
            if any(last(call.func) in POISONS for call in calls) and last(calls[0].func) not in POISONS:
                yield handler.lineno


def handed_on(tree: ast.AST) -> Iterator[int]:
    """Lines where ``poison=`` is given what is not another's ``poison``."""
    for node in walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "poison" and last(node.value) not in POISONS:
            yield node.value.lineno


@over(SOURCES)
def test_a_handler_that_poisons_does_so_first(path: Path) -> None:
    tree = parsed(path.read_text())
    assert not list(late(tree)), f"{named(path)}: see docs/protocol.md W8"
    assert named(path) in OTHERS or not list(handed_on(tree)), f"{named(path)}: see docs/protocol.md W8"


def test_what_else_is_told_of_failures_is_there() -> None:
    assert all(list(handed_on(parsed((PACKAGE / name).read_text()))) for name in OTHERS)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("try: f()\nexcept OSError as e:\n self.poison(e)\n raise", False),
        ("try: f()\nexcept OSError as e:\n self._replacing = None\n log.poison(e)\n g()", False),
        ("try: f()\nexcept OSError as e:\n if e.errno != EMFILE:\n  log.poison(e)", False),
        ("try: f()\nexcept OSError as e:\n self.poison(copied(e))", True),
        ("try: f()\nexcept OSError as e:\n file.close()\n self.poison(e)", True),
        ("try: f()\nexcept BaseException as e:\n if log.owes():\n  log.poison(e)", True),
    ],
)
def test_the_rule_finds_handlers_that_poison_late(text: str, found: bool) -> None:
    assert bool(list(late(parsed(text)))) == found
    assert list(handed_on(parsed("Manifest(poison=lambda error: None)"))) == [1]


def test_what_poisons_is_compiled() -> None:
    for name in ("poison", "poison_if_owed"):
        assert not inspect.isfunction(inspect.getattr_static(Log, name)), name


# ---- what threads share is replaced under a lock ----

SHARED = [path for path in SOURCES if named(path).startswith(("tablet/maintain/", "table/opened/"))]
"""Objects of which an open table has one, for all of its threads."""


def replaced_without(tree: ast.AST, under: bool = False) -> Iterator[tuple[int, str]]:
    """(line, member) where a member of ``self`` is made anew of itself under no lock: what another thread
    puts there meanwhile is lost."""
    for node in ast.iter_child_nodes(tree):
        entered = node.items if isinstance(node, ast.With) else []
        held = under or any(is_lock(item.context_expr) for item in entered)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            continue
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign):
            targets = [node.target]
        for target in targets if not held else ():
            member = ast.unparse(target)
            if member.startswith("self.") and isinstance(node, ast.Assign | ast.AugAssign):
                read = {ast.unparse(n) for n in walk(node.value) if isinstance(n, ast.Attribute)}
                if member in read or isinstance(node, ast.AugAssign):
                    yield node.lineno, member
        yield from replaced_without(node, held)


@over(SHARED)
def test_what_is_shared_is_replaced_under_a_lock(path: Path) -> None:
    found = replaced_without(parsed(path.read_text()))
    wrong = [f"{named(path)}:{line}: {member}" for line, member in found]
    assert not wrong, wrong


@pytest.mark.parametrize(
    "text", ["self._failed = {k: v for k, v in self._failed.items() if v}", "self.count += 1"]
)
def test_the_rule_finds_such_a_replacement(text: str) -> None:
    assert list(replaced_without(parsed(f"def note(self):\n {text}")))
    assert not list(replaced_without(parsed(f"def note(self):\n with self._mutex:\n  {text}")))
    assert not list(replaced_without(parsed(f"def __init__(self):\n {text}")))
