"""No memory, at any point of a call: as after an interrupt nothing is left held, hanging or half applied.

Three ways: ``MemoryError`` at the places where an interrupt may come; at every array that numpy is asked for,
by Python or by a kernel that grows; and (``--long``) an address space that has no room.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kudu_core as kc
from tests.hardening.test_interrupts import CALLS, ROWS, World, _prepare
from tests.support.interrupts import (
    Interruption,
    assert_at_rest,
    chosen,
    locks_of,
    places_of,
    poisoned,
    settle,
    staging_left,
)
from tests.support.processes import python

WRITES = ("upsert", "row", "batch", "where", "bulk", "txn", "alter", "flush", "full compact")
MAKERS = (
    "empty", "zeros", "ones", "full", "arange", "concatenate", "empty_like", "array", "ascontiguousarray",
)  # fmt: skip


class Scarce:
    """The k-th array that numpy is asked for cannot be had."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.count = 0
        self.at: int | None = None

    @contextmanager
    def within(self, at: int | None) -> Iterator[None]:
        self.count, self.at = 0, at
        with self._patch.context() as patched:
            for name in MAKERS:
                patched.setattr(np, name, self._counting(getattr(np, name)))
            yield

    def _counting(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def make(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                raise MemoryError("injected")
            return usual(*args, **kwargs)

        return make


def go_on(w: World, before: int, where: str) -> None:
    assert_at_rest(w.table)
    assert not staging_left(w.table), where
    if poisoned(w.table):
        w.reopen()
    settle(w.table)
    seen = w.seen()
    assert len(seen) == 1 and seen <= {before, w.number}, f"{seen}; {before} before {where}"
    w.number = max(seen)
    w.table.upsert(w.rows(w.next()))
    assert w.seen() == {w.number}, where


def tries(w: World, name: str, at: int, attempt: Callable[[], object], where: str) -> None:
    before = w.number
    with suppress(MemoryError, kc.KuduError):
        attempt()
    go_on(w, before, f"{name}, {where} {at}")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", WRITES)
def test_at_every_place(tmp_path: Path, name: str, long: bool, seed: int) -> None:
    w = World(tmp_path, {"durability": "none"})
    _prepare(w, name)
    places, turns = places_of(lambda: CALLS[name](w), locks_of(w.table._engine))
    for at in chosen(places, turns, long, random.Random(seed)):
        _prepare(w, name)

        def attempt(at: int = at) -> None:
            with Interruption(at, MemoryError):
                CALLS[name](w)

        tries(w, name, at, attempt, "place")
    w.table.close()
    with kc.open_table(tmp_path / "t") as table:
        table.verify()


@pytest.mark.parametrize("name", WRITES)
def test_at_every_array(
    tmp_path: Path, name: str, long: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = World(tmp_path, {"durability": "none"})
    scarce = Scarce(monkeypatch)
    _prepare(w, name)
    with scarce.within(None):
        CALLS[name](w)
    count = scarce.count
    assert count or name in ("row", "alter")
    for at in chosen(count, (), long, random.Random(seed)):
        _prepare(w, name)

        def attempt(at: int = at) -> None:
            with scarce.within(at):
                CALLS[name](w)

        tries(w, name, at, attempt, "array")
    w.table.close()
    with kc.open_table(tmp_path / "t") as table:
        table.verify()


@pytest.mark.parametrize("maintenance", ["manual", "background"])
def test_a_full_address_space(tmp_path: Path, long: bool, maintenance: str) -> None:
    if not long:
        pytest.skip("--long")
    code = f"""
        import sys
        import kudu_core as kc, pyarrow as pa
        from tests.support.guard import at_most
        from tests.support.interrupts import assert_at_rest, poisoned
        path, rows = sys.argv[1], {ROWS * 500}
        schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
        options = {{"maintenance": "{maintenance}", "durability": "none"}}
        table = kc.create_table(path, schema, "k", options=options)
        number = refused = 0
        def data(value): return pa.table([range(rows), [value] * rows, ["x" * 200] * rows], schema=schema)
        table.upsert(data(0))
        for step in range(60):
            given = data(number + 1)
            try:
                with at_most((step * 7919 * 1024) % (48 << 20)):
                    table.upsert(given)
                    table.flush()
                    table.compact(full=True)
            except (MemoryError, kc.KuduError):
                refused += 1
            assert_at_rest(table)
            if poisoned(table):
                table.close()
                table = kc.open_table(path, "rw")
            found = set(table.scan(["v"]).to_table()["v"].to_pylist())
            assert len(found) == 1 and found <= {{number, number + 1}}, (found, number)
            number = max(found)
        table.verify()
        table.close()
        print(refused, "refused")
    """
    done = python(code, tmp_path / "t", within_s=600, warnings="default")
    assert done.returncode == 0, done.stderr[-6000:]
    assert int(done.stdout.split()[0]) > 5
