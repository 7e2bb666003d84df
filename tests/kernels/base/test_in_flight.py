"""A record in flight: noted and applied when its block ends; else the log is poisoned, if it has it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from kudu_core._ext.base.holding import InFlight


class Log:
    """Says what was done with it; fails or is interrupted where it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.said: list[str] = []
        self.fails = fails
        self.in_flight: set[int] = set()
        self.error: BaseException | None = None

    def _say(self, what: str) -> None:
        self.said.append(what)
        if self.fails == f"before {what}":
            raise KeyboardInterrupt(what)

    def _done(self, what: str) -> None:
        if self.fails == f"after {what}":
            raise KeyboardInterrupt(what)

    def append(self, kind: int, schema_version: int, parts: Any) -> int:
        assert (kind, schema_version, parts) == (1, 2, (b"a",))
        self._say("append")
        self.in_flight.add(7)
        self._done("append")
        return 7

    def note(self, ts: int) -> None:
        assert ts == 7
        self._say("note")

    def applied(self, ts: int) -> None:
        self._say("applied")
        self.in_flight.remove(ts)
        self._done("applied")

    def poison(self, error: BaseException) -> None:
        self.error = error

    def poison_if_owed(self, error: BaseException) -> None:
        if self.in_flight:
            self.error = error


def in_flight(log: Log, note: Callable[[int], None] | None = None) -> InFlight:
    return InFlight(log, 1, 2, (b"a",), note)


def test_appended_applied_noted() -> None:
    log = Log()
    with in_flight(log, log.note) as ts:
        assert ts == 7 and log.said == ["append"]
        log.said.append("body")
    assert log.said == ["append", "body", "note", "applied"]
    assert log.error is None and not log.in_flight


@pytest.mark.parametrize(
    ("place", "poisons", "said"),
    [
        ("before append", False, ["append"]),
        ("after append", True, ["append"]),
        ("body", True, ["append", "body"]),
        ("before note", True, ["append", "body", "note"]),
        ("before applied", True, ["append", "body", "note", "applied"]),
        ("after applied", False, ["append", "body", "note", "applied"]),
    ],
)
def test_an_interrupt_at_every_step(place: str, poisons: bool, said: list[str]) -> None:
    """It passes through, and poisons if the record is in the log and not applied."""
    log = Log(place)

    def write() -> None:
        with in_flight(log, log.note):
            log.said.append("body")
            if place == "body":
                raise KeyboardInterrupt("body")

    with pytest.raises(KeyboardInterrupt) as told:
        write()
    assert log.said == said
    assert log.error is (told.value if poisons else None)


def test_what_is_not_noted_is_applied() -> None:
    log = Log()
    with in_flight(log):
        pass
    assert log.said == ["append", "applied"] and log.error is None


def test_an_interrupt_between_enter_and_the_block_poisons() -> None:
    """As CPython 3.14 may have it: the object goes without its ``__exit__``."""
    log = Log()
    record = in_flight(log)
    assert record.__enter__() == 7
    assert log.error is None
    del record
    gc.collect(0)
    assert isinstance(log.error, RuntimeError) and "append" in str(log.error)


def test_one_that_was_not_entered_poisons_nothing() -> None:
    log = Log()
    record = in_flight(log)
    del record
    gc.collect(0)
    assert log.said == [] and log.error is None


def test_the_object_going_after_its_block_poisons_nothing() -> None:
    log = Log("body")
    record = in_flight(log)
    with record:
        pass
    del record
    gc.collect(0)
    assert log.error is None
