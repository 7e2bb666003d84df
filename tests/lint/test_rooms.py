"""What only one room may do: touch files, ask the time, start threads.  And a few habits."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lint.package.sources import parsed, walk

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kudu_core"

# What nobody may use outside the rooms below: a module, or one name of it.
RESTRICTED = {
    "fcntl", "glob", "io", "mmap", "multiprocessing", "os", "pathlib", "shutil", "signal", "socket",
    "subprocess", "tempfile", "time", "threading.Thread", "threading.Timer", "_thread.start_new_thread",
    "concurrent.futures", "kudu_core.common.run.workers.Worker",
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
}  # fmt: skip
BUILTINS = {"open", "print", "input", "eval", "exec", "breakpoint"}

# Room or file -> what it may use of these, and why.
ALLOWED: dict[str, dict[str, str]] = {
    "fs/": dict.fromkeys(
        ("os", "io", "fcntl", "shutil", "socket", "pathlib", "tempfile", "open"),
        "the only place that touches files",
    ),
    "cli/": dict.fromkeys(("print", "os", "pathlib", "input", "signal"), "talks to a terminal"),
    "common/run/clock.py": {"time": "the only module that asks the time"},
    "common/run/pool.py": {
        "kudu_core.common.run.workers.Worker": "the one pool",
        "os.sched_getaffinity": "how many cores there are",
        "os.cpu_count": "how many cores there are",
        "os.getpid": "threads do not survive a fork",
    },
    "common/run/workers.py": {
        "threading.Thread": "threads that an interrupt cannot leave half started",
        "_thread.start_new_thread": "of which an interrupt leaves either none or one that runs",
    },
    "objects/client.py": {
        "os.environ": "the client takes from it what it is not given",
    },
    "objects/clients/after_fork.py": {"os.register_at_fork": "the clients' threads do not survive a fork"},
    "objects/clients/hdfs_requests.py": {"os.urandom": "names of temporary files"},
    "objects/clients/timed_calls.py": {
        "kudu_core.common.run.workers.Worker": "calls that may wait for ever, and that are given up",
    },
    "objects/cache_options.py": {"os.environ": "where the cache is, of processes that are not told"},
    "objects/object_lease.py": {"kudu_core.common.run.workers.Worker": "a lease that is renewed"},
    "objects/check_store.py": {"os.urandom": "bytes like no others, and a folder that nobody else has"},
    "wal/sync.py": {"kudu_core.common.run.workers.Worker": "the log's writer"},
    "tablet/maintain/lane.py": {"kudu_core.common.run.workers.Worker": "maintenance"},
    "cfile/pages/container_writer.py": {"os.urandom": "file_id is random"},
    "rowset/memory/memrowset.py": {"os.urandom": "the seed of a hash table, which nobody may guess"},
    "table/opened/travel/unheld.py": {
        "os.register_at_fork": "handles refuse to work in the child",
        "kudu_core.common.run.workers.Worker": (
            "a handle collected on a worker cannot be closed by it: that waits for workers"
        ),
    },
    "table/opened/debug.py": {"os.environ": "the debug switch"},
    "table/repair/repair.py": {"os.PathLike": "a type"},
    "table/entry.py": {"os.PathLike": "a type"},
    "table/table.py": {"os.PathLike": "a type"},
    "table/table_administration.py": {"os.PathLike": "a type"},
    "page/report_page.py": {"os.PathLike": "a type", "os.fspath": "text of a path; fs writes the file"},
    "web/": {"os.PathLike": "a type"},
    "table/table_reads.py": {"os.PathLike": "a type"},
    "table/report/gather/gathered.py": {"os.PathLike": "a type"},
    "table/lifecycle/in_store/put_ids.py": {"os.urandom": "ids of puts like no others"},
    "table/lifecycle/": {
        "os.PathLike": "a type",
        "os.fspath": "text of a path; no file is touched",
        "pathlib.Path": "makes a path absolute",
    },
    "engines/spark/": {
        "os.PathLike": "a type",
        "os.fspath": "text of a path; no file is touched",
        "os.path.abspath": "executors have another working directory",
        "os.register_at_fork": "a forked worker opens its own tables",
        "os.urandom": "names of an attempt's files",
        "os.getpid": "one reader per worker process",
        "os.cpu_count": "how many tasks to share a scan out to",
    },
}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def names_used(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every use of an imported module or name, and of builtins that are called."""
    known: dict[str, str] = {}
    modules: set[str] = set()  # names of whole modules: hasattr(os, ...) uses nothing of it
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                known[name] = alias.name if alias.asname else name
                modules.add(name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                known[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    # Of os.path.abspath only the whole is judged, not os and os.path, which it contains.
    halves = {id(node.value) for node in walk(tree) if isinstance(node, ast.Attribute)}
    for node in walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in halves:
            parts: list[str] = []
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                parts.append(inner.attr)
                inner = inner.value
            if isinstance(inner, ast.Name) and inner.id in known and (parts or inner.id not in modules):
                yield node.lineno, ".".join([known[inner.id], *reversed(parts)])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
            yield node.lineno, node.func.id


def covers(rule: str, name: str) -> bool:
    return name == rule or name.startswith(rule + ".")


def test_files_time_and_threads_have_their_rooms() -> None:
    found = []
    for path in sources():
        allowed = [
            rule for where, rules in ALLOWED.items() if place(path).startswith(where) for rule in rules
        ]
        for line, name in names_used(parsed(path.read_text())):
            restricted = name in BUILTINS or any(covers(rule, name) for rule in RESTRICTED)
            if restricted and not any(covers(rule, name) for rule in allowed):
                found.append(f"{place(path)}:{line}: {name}")
    assert not found, "not in this room (or give the reason in ALLOWED):\n" + "\n".join(sorted(set(found)))


@pytest.mark.parametrize("text", ["import os\nos.remove('x')", "open('x')", "from time import time\ntime()"])
def test_the_rule_finds_what_it_is_for(text: str) -> None:
    names = [name for _, name in names_used(parsed(text))]
    assert any(name in BUILTINS or any(covers(rule, name) for rule in RESTRICTED) for name in names)


def test_no_exception_is_swallowed() -> None:
    """``except Exception: pass`` hides what nobody thought of.  Name the exception, or tell somebody."""
    found = []
    for path in sources():
        for node in walk(parsed(path.read_text())):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = (
                {n.id for n in walk(node.type) if isinstance(n, ast.Name)}
                if node.type
                else {"everything"}
            )
            silent = all(isinstance(s, ast.Pass | ast.Continue) for s in node.body)
            if silent and caught & {"Exception", "BaseException", "everything"}:
                found.append(f"{place(path)}:{node.lineno}")
    assert not found


SHIPPED = ("kudu_core", "pyspark_kudu_core", "tests", "bench", "ci", "docs", "examples")
TEXT = {".py", ".pyx", ".pxd", ".pyi", ".md", ".sh", ".txt", ".toml", ".cfg", ""}
# Split, so that this file does not contain them.
MACHINE_PATH = re.compile(
    "|".join(["/ho" + r"me/\w", "/ro" + "ot/", "/wo" + "rk/", "/Use" + r"rs/\w", r"\.\./sha" + "red"])
)


def shipped() -> Iterator[Path]:
    for folder in SHIPPED:
        for path in (ROOT / folder).rglob("*"):
            hidden = any(part.startswith((".", "__")) for part in path.relative_to(ROOT).parts[:-1])
            if path.is_file() and path.suffix in TEXT and not hidden:
                yield path
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "pyproject.toml", "setup.py"))


def test_no_file_knows_a_machine() -> None:
    found = []
    for path in shipped():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found, "\n".join(found)


def test_sources_are_ascii_and_have_a_docstring() -> None:
    found = []
    for path in sources():
        text = path.read_text()
        if not text.isascii():
            found.append(f"{place(path)}: not ASCII")
        if text.strip() and not ast.get_docstring(parsed(text)):
            found.append(f"{place(path)}: no docstring at the top")
    assert not found, "\n".join(found)
