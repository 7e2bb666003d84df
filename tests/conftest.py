"""Options, fixtures and markers that every room of the tests shares.

``--long`` runs the full counts, ``--seed`` is where random tests begin (printed at the top, so that a
failure can be repeated), ``--rewrite`` writes golden files anew: read the diff afterwards.  ``--ahead`` sets
the clocks of tables to the year 2100, where a hybrid time is no int64 any more.  A test has its
room, the folder under ``tests/``, as a marker: ``pytest -m kernels``.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests.support import clock
from tests.support.fs.faulty import SimulatedCrash
from tests.support.fs.slow import disk
from tests.support.tables import make, others, path, small_segments, table
from tests.support.threads import dead_are_quiet

__all__ = ["disk", "make", "others", "path", "small_segments", "table"]

HERE = Path(__file__).parent
ROOMS = (
    "kernels", "common", "sql", "cfile", "wal", "fs", "rowset", "tablet", "table", "page", "cli",
    "stories", "crash", "interrupts", "hostile", "compat", "model", "objects", "spark", "lint",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kudu_core")
    group.addoption("--long", action="store_true", help="full counts: minutes to hours instead of seconds")
    group.addoption(
        "--seed",
        type=int,
        default=int(os.environ.get("KUDU_CORE_SEED", "0")),
        help="first seed of the random tests (default: KUDU_CORE_SEED, or 0)",
    )
    group.addoption("--ahead", action="store_true", help="the clock of every table stands in the year 2100")
    group.addoption("--rewrite", action="store_true", help="write golden files anew instead of comparing")


@pytest.hookimpl(trylast=True)  # pytest has its own hook for what threads raise by then
def pytest_configure(config: pytest.Config) -> None:
    dead_are_quiet(SimulatedCrash)
    # Modules that draw their cases while they are collected, and child processes, read the environment.
    os.environ["KUDU_CORE_SEED"] = str(config.getoption("--seed"))
    if config.getoption("--ahead"):
        os.environ[clock.SWITCH] = "1"
        clock.set_clocks()
    for room in ROOMS:
        config.addinivalue_line("markers", f"{room}: tests of tests/{room} (set by the folder)")


def pytest_report_header(config: pytest.Config) -> str:
    length = "long" if config.getoption("--long") else "short"
    return f"kudu_core: {length} run, seed {config.getoption('--seed')}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            room = item.path.relative_to(HERE).parts[0]
            if room in ROOMS:
                item.add_marker(room)


def pytest_collection_finish(session: pytest.Session) -> None:
    """The modules and thousands of items that a room collects stay until it ends: no collection of garbage
    looks at them again.  Rooms whose tests collect garbage took up to a third less time for it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def long(request: pytest.FixtureRequest) -> bool:
    """Whether to run the full counts."""
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """Where random tests begin."""
    return int(request.config.getoption("--seed"))


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are written anew."""
    return bool(request.config.getoption("--rewrite"))
