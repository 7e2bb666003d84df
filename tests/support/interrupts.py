"""``KeyboardInterrupt`` at every place where CPython may run a signal handler, and what must hold after it.

A handler runs in the main thread: when a function begins or a generator goes on, after a call, and when a
loop goes back (``_PyEval`` looks at its *eval breaker* there and nowhere else; never between a C
``__enter__`` and the body of its ``with``).  ``Interruption`` traces the package's frames by opcode and
raises at the k-th of these places: so all of them can be tried, where real signals meet a few.

After a call of a Python function returns CPython does not look; it is interrupted there all the same, which
asks for more than is needed.  Where the last call of a ``try`` is followed by an opcode outside of it, the
place is left out: the interrupt belongs to the call, inside, and the places in the call stand for it.
"""

from __future__ import annotations

import _thread
import dis
import gc
import operator
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType, FrameType, ModuleType
from typing import Any

import kudu_core as kc
from kudu_core.common.run.gates import Gates
from kudu_core.common.run.pool import Task
from kudu_core.errors import Poisoned
from tests.support.inside import engine_of, log_of, poison_of, work_under_way

CALLS = ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "CALL_INTRINSIC_1")
TRACED = ("/kudu_core/", "/contextlib.py", "/threading.py", "/weakref.py")
UNTRACED = "/tests/"
LATEST_S = 60.0
"""So long what other threads are at may take on a machine that has much else to do."""


class _Places:
    """Of one function: the opcodes before which a handler may run."""

    def __init__(self, code: CodeType) -> None:
        self.handlers: dict[int, int | None] = {}
        entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
        self.after: dict[int, str] = {}
        """Opcode after which it may, by offset."""
        self.before: set[int] = set()
        """Opcodes that follow the beginning of a function or the resumption of a generator."""
        instructions = list(dis.get_instructions(code))
        for place, instruction in enumerate(instructions):
            offset = instruction.offset
            inner = [entry for entry in entries if entry.start <= offset < entry.end]
            self.handlers[offset] = inner[-1].target if inner else None
            if instruction.opname in CALLS or "JUMP_BACKWARD" in instruction.opname:
                self.after[offset] = instruction.opname
            if instruction.opname == "RESUME" and instruction.arg is not None and instruction.arg < 2:
                if place + 1 < len(instructions):
                    self.before.add(instructions[place + 1].offset)


_places: dict[CodeType, _Places] = {}


class Interruption:
    """Raises at the k-th place of what runs in ``with`` it; counts them with ``at=None``."""

    def __init__(
        self,
        at: int | None,
        error: type[BaseException] = KeyboardInterrupt,
        locks: Sequence[Any] = (),
    ) -> None:
        """``locks``: those at whose changes of hands ``turns`` are noted."""
        self.at = at
        self.error = error
        self.count = 0
        self.where = ""
        self.turns: list[int] = []
        """Places that are the first after a lock was taken or let go."""
        self._locks = locks
        self._held: list[bool] = []
        self._last: dict[FrameType, int] = {}

    def __enter__(self) -> Interruption:
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._last.clear()

    def _enter(self, frame: FrameType, event: str, _arg: Any) -> Any:
        code = frame.f_code
        if not any(part in code.co_filename for part in TRACED) or UNTRACED in code.co_filename:
            return None
        if code not in _places:
            _places[code] = _Places(code)
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "return":
            self._last.pop(frame, None)
        if event != "opcode":
            return self._step
        offset = frame.f_lasti
        last, self._last[frame] = self._last.get(frame), offset
        places = _places[frame.f_code]
        if offset in places.before:
            self._place(frame)
        elif last is not None and last in places.after:
            if places.handlers[last] == places.handlers[offset]:
                self._place(frame)
        return self._step

    def _place(self, frame: FrameType) -> None:
        self.count += 1
        if self._locks:
            held = [is_held(lock) for lock in self._locks]
            if held != self._held:
                self.turns.append(self.count)
                self._held = held
        if self.count == self.at:
            code = frame.f_code
            self.where = f"{code.co_filename.rsplit('/', 2)[-1]}:{frame.f_lineno} {code.co_qualname}"
            self._last.clear()
            raise self.error("injected")


# ---- a system call that fails while a signal is pending ----

_NO_DESCRIPTOR = 1 << 30
_BOTH = (_thread.interrupt_main, partial(os.fsync, _NO_DESCRIPTOR))


def fail_with_signal_pending() -> None:
    """Raise ``OSError``, as an fsync does that fails while Ctrl-C is pressed; in the main thread.

    One compiled call does both, so the ``KeyboardInterrupt`` comes where CPython next looks for signals: in
    the ``except`` that catches the ``OSError``, if that calls anything that is written in Python.
    """
    deque(map(operator.call, _BOTH), 0)


# ---- what must hold after it ----


def _reachable(root: object) -> Iterator[object]:
    """The objects of a table, without what threads wait at: such locks are held while they wait."""
    seen: set[int] = set()
    left = [root]
    plain = (str, bytes, int, float, type, ModuleType, CodeType, FrameType, threading.Thread, Gates, Task)
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, plain):
            continue
        seen.add(id(one))
        yield one
        name = type(one).__module__ or ""
        if name.startswith("kudu_core") or isinstance(one, dict | list | tuple | set) or callable(one):
            if getattr(one, "__globals__", None) is None:
                left.extend(gc.get_referents(one))
            else:
                left.extend(cell.cell_contents for cell in getattr(one, "__closure__", None) or ())


_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def is_held(lock: Any) -> bool:
    """By this thread, where it can be told; else by anybody."""
    owned = getattr(lock, "_is_owned", None)
    return bool(lock.locked() if owned is None else owned())


def locks_of(engine: Any) -> list[Any]:
    """The locks of a table that guard something."""
    return [o for o in _reachable(engine) if isinstance(o, _LOCKS) or type(o).__name__ == "Turns"]


def held_locks(engine: Any) -> list[object]:
    """Locks of a table that somebody holds, by their owner."""
    found: list[object] = []
    for one in _reachable(engine):
        if isinstance(one, _LOCKS) or type(one).__name__ == "Turns":
            if "unlocked" not in repr(one) and (not hasattr(one, "locked") or one.locked()):
                owners = [type(o).__name__ for o in gc.get_referrers(one) if not isinstance(o, list)]
                found.append((one, owners))
    return found


def under_way(engine: Any) -> dict[str, Any]:
    """What is recorded as being under way, by name, where it is anything."""
    stated = {"locks": held_locks(engine), **work_under_way(engine)}
    return {name: value for name, value in stated.items() if value}


def assert_at_rest(table: kc.Table, pins: int = 0) -> None:
    """Nothing that a call has begun is left: no lock held, no claim, no pin."""
    engine = engine_of(table)
    until = time.monotonic() + LATEST_S
    while left := under_way(engine):
        if time.monotonic() > until:
            raise AssertionError(f"left behind: {left}")
        time.sleep(0.002)
    gc.collect(0)
    if len(engine.pins) != pins:
        gc.collect()
        assert len(engine.pins) == pins, f"{len(engine.pins)} pins, {pins} wanted"


def settle(table: kc.Table) -> None:
    """What an interrupted write has put into the log becomes visible in a moment, by the log's thread."""
    if not poisoned(table):
        engine_of(table).wait_visible(log_of(table).cut())


def staging_left(table: kc.Table) -> list[str]:
    """Folders of ingests and merges that nobody is at."""
    engine = engine_of(table)
    names: list[str] = engine.fs.listdir(f"{engine.path}/staging")
    return names


def poisoned(table: kc.Table) -> bool:
    return poison_of(table) is not None


def interrupted(call: Callable[[], object], at: int) -> tuple[bool, Interruption]:
    """Make the call with an interrupt at its k-th place: whether it came to its end, and where it was."""
    with Interruption(at) as interruption:
        try:
            call()
        except (KeyboardInterrupt, Poisoned):
            return False, interruption
    return True, interruption


def places_of(call: Callable[[], object], locks: Sequence[Any] = ()) -> tuple[int, list[int]]:
    """How many places a call has, and which of them follow a change of hands of one of the locks."""
    with Interruption(None, locks=locks) as interruption:
        call()
    return interruption.count, interruption.turns


LONG_PLACES = 200
"""Places of a call that the long run tries beside those where locks change hands; others with each seed."""


def chosen(
    places: int, turns: Sequence[int], long: bool, rng: random.Random, most_turns: int = 3
) -> list[int]:
    """The places to try: some where a lock changes hands, or all of them, and some others."""
    others, turned = (LONG_PLACES, len(turns)) if long else (1, most_turns)
    every = range(1, places + 1)
    return sorted({*rng.sample(every, min(places, others)), *rng.sample(turns, min(len(turns), turned))})


__all__ = [
    "Interruption",
    "assert_at_rest",
    "chosen",
    "fail_with_signal_pending",
    "held_locks",
    "interrupted",
    "is_held",
    "locks_of",
    "places_of",
    "poisoned",
    "settle",
    "staging_left",
    "under_way",
]
