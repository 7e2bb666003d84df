"""No memory, at any point of a call: as after an interrupt nothing is left held, hanging or half applied, and
the same call works when there is memory again.

Three ways: ``MemoryError`` at the places where an interrupt may come; at every array that numpy is asked for,
by Python or by a kernel that grows; and (``--long``) an address space that has no room.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kudu_core as kc
from tests.support.cases.interrupted import CALLS, ROWS, SCHEMA, World, prepare
from tests.support.inside import engine_of
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
    CALLS[name](w)  # the same once more
    assert w.seen() == {w.number}, f"{name}, {where} {at}"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", WRITES)
def test_at_every_place(tmp_path: Path, name: str, long: bool, seed: int) -> None:
    w = World(tmp_path, {"durability": "none"})
    prepare(w, name)
    places, turns = places_of(lambda: CALLS[name](w), locks_of(engine_of(w.table)))
    for at in chosen(places, turns, long, random.Random(seed)):
        prepare(w, name)

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
    prepare(w, name)
    with scarce.within(None):
        CALLS[name](w)
    count = scarce.count
    assert count or name in ("row", "alter")
    for at in chosen(count, (), long, random.Random(seed)):
        prepare(w, name)

        def attempt(at: int = at) -> None:
            with scarce.within(at):
                CALLS[name](w)

        tries(w, name, at, attempt, "array")
    w.table.close()
    with kc.open_table(tmp_path / "t") as table:
        table.verify()


# ---- calls that write no rows


def _begin(w: World) -> object:
    """A batch up to its first calls, and given up."""
    with suppress(GivenUp), w.table.batch() as batch:
        batch.delete({"k": [0, 1]})
        batch.upsert(w.rows(99))
        raise GivenUp
    with pytest.raises(kc.InvalidArgument, match="has no result"):
        batch.result  # noqa: B018
    return None


class GivenUp(Exception):
    """A caller's own."""


def _backup_again(w: World) -> object:
    return w.table.backup(w.path / "again").timestamp


def _restore_again(w: World) -> object:
    return _closed(kc.restore(w.path / "kept", w.path / "restored"))


def _create_again(w: World) -> object:
    return _closed(kc.create_table(w.path / "made", SCHEMA, "k"))


def _closed(table: kc.Table) -> object:
    """Its rows; a close that had no memory is gone on with by another."""
    try:
        with table:
            return table.count()
    finally:
        table.close()


OTHERS: dict[str, Callable[[World], Any]] = {
    **{name: call for name, call in CALLS.items() if name not in WRITES},
    "begin": _begin,
    "backup": _backup_again,
    "restore": _restore_again,
    "create": _create_again,
}
"""Of each the very same call is made again: into the folder where it failed before."""
WRITING = (
    "ticket", "few rows", "apply", "merge", "bulk merge", "update if", "reading batch", "modify", "spilled",
    "delete where", "compact", "maintain", "gc",
)  # fmt: skip
"""Those that may leave the table to be opened anew, as any write may whose record is in the log."""
ONCE = ("backup", "restore", "create")
"""They make a folder, once."""
MADE = {"restore": "restored", "create": "made"}
"""The folder that then is a table: that is the whole call."""
LATER = ("spilled", "compact", "maintain", "gc", "apply", "delete where", "refresh", "dataset")
"""Not in the short run, which has others of their kind."""
OPENING = ("open", "create", "restore")
"""They take a lease."""
SAME = ("count", "get", "get_many")
"""Their answer is the same each time."""


class Attempt:
    """One call without memory at one point, and what must hold after it."""

    def __init__(self, w: World, name: str, where: str) -> None:
        self.w, self.name, self.where = w, name, where
        self.before = w.number
        self.failed = False
        self.error: BaseException | None = None

    def make(self, within: Any) -> None:
        try:
            with within:
                OTHERS[self.name](self.w)
        except (MemoryError, kc.KuduError) as error:
            self.failed = True
            if self.name in OPENING:
                self.error = error  # with all that its traceback holds: no lease waits for that to go

    def judge(self) -> None:
        w, name = self.w, self.name
        if name == "open":
            if self.failed:
                OTHERS[name](w)
            w.table = w.made.pop()
        elif name == "close":
            w.table.close()
            w.table = kc.open_table(w.path / "t", "rw")
        assert_at_rest(w.table)
        if name not in ("open", "close"):
            assert not staging_left(w.table), self.where
        if poisoned(w.table):
            assert name in WRITING, f"{self.where}: poisoned by a call that writes nothing"
            w.reopen()
        settle(w.table)
        seen = w.seen()
        assert len(seen) == 1 and seen <= {self.before, w.number}, (
            f"{seen}; {self.before} before {self.where}"
        )
        w.number = max(seen)

    def repeat(self) -> object:
        """The same call, which now works."""
        if self.name in ("open", "close") or (self.name in ONCE and not self.failed):
            return None
        made = self.w.path / MADE.get(self.name, "nothing")
        if (made / "TABLE").exists():
            with kc.open_table(made, "rw") as table:
                return table.count()
        return OTHERS[self.name](self.w)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", OTHERS)
def test_every_other_call(
    tmp_path: Path, name: str, long: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a place or for an array: nothing is held, no lease is kept, the data is what it was or what the call
    makes of it, and the very same call works when there is memory again."""
    if name in LATER and not long:
        pytest.skip("--long")
    rng = random.Random(seed)
    options: dict[str, Any] = {"durability": "none"}
    if name == "spilled":
        options["memory_limit_bytes"] = 32 << 20
    w = World(tmp_path, options)

    def ready() -> None:
        for folder in ("again", "restored", "made"):
            shutil.rmtree(tmp_path / folder, ignore_errors=True)
        prepare(w, name)

    def opened() -> None:
        if name == "open":
            w.table = w.made.pop()
        elif name == "close":
            w.table = kc.open_table(tmp_path / "t", "rw")

    ready()
    places, _ = places_of(lambda: OTHERS[name](w))
    opened()
    scarce = Scarce(monkeypatch)
    ready()
    with scarce.within(None):
        wanted = OTHERS[name](w)
    arrays = scarce.count
    opened()
    tried = [("place", at) for at in chosen(places, range(1, places + 1), long, rng, 1)]
    tried += [("array", at) for at in chosen(arrays, (), long, rng)]
    for way, at in tried:
        ready()
        attempt = Attempt(w, name, f"{name}, {way} {at}")
        attempt.make(Interruption(at, MemoryError) if way == "place" else scarce.within(at))
        attempt.judge()
        again = attempt.repeat()
        if name in SAME:
            assert again == wanted, attempt.where
        assert_at_rest(w.table)
    w.table.upsert(w.rows(w.next()))
    assert w.seen() == {w.number}
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
