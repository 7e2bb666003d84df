"""The mutex that changes hands seldom: one holder at a time, nobody waits for ever, few handovers."""

from __future__ import annotations

import threading
import time

import pytest

from kudu_core._ext.base.holding import Turns
from tests.support.threads import Run, quick_switches


@pytest.mark.parametrize("turn_s", [1e-5, 0.001])
def test_one_at_a_time_and_all_get_a_turn(turn_s: float) -> None:
    turns = Turns(turn_s, time.monotonic)
    inside = 0
    run = Run(0.3, {str(n): 20 for n in range(4)})

    def work(number: int) -> None:
        nonlocal inside
        while run.goes_on():
            with turns:
                inside += 1
                assert inside == 1
                for _ in range(number * 20):
                    pass
                assert inside == 1
                inside -= 1
            run.did(str(number))

    with quick_switches():
        run.all(*(lambda n=n: work(n) for n in range(4)))  # type: ignore[misc]
    assert not turns.waiting
    assert not turns.locked(), "nobody has it"


def test_who_comes_back_goes_on_until_its_turn_is_over() -> None:
    turns = Turns(30, lambda: now_s)
    now_s = 0.0
    entered: list[str] = []
    waiting = threading.Event()

    def other() -> None:
        waiting.set()
        with turns:
            entered.append("other")

    thread = threading.Thread(target=other)
    with turns:
        thread.start()
        waiting.wait()
        while not turns.waiting:
            time.sleep(0.001)
    for _ in range(5):
        with turns:
            entered.append("holder")
    now_s = 60.0  # the turn is over
    with turns:
        entered.append("holder")
    thread.join(20)
    assert entered == ["holder"] * 6 + ["other"], "and it needed no patience"


def test_whoever_waits_looks_again() -> None:
    """The holder lets go before its turn is over, and never comes back."""
    turns = Turns(0.05, time.monotonic)
    held = threading.Event()
    go = threading.Event()

    def holder() -> None:
        with turns:
            held.set()
            go.wait()

    thread = threading.Thread(target=holder)
    thread.start()
    held.wait()
    threading.Timer(0.01, go.set).start()
    with turns:
        pass
    thread.join()


def test_an_exception_lets_go() -> None:
    turns = Turns(1, time.monotonic)
    with pytest.raises(ZeroDivisionError), turns:
        1 / 0  # noqa: B018
    with turns:
        pass


@pytest.mark.parametrize("handed", [False, True])
def test_an_interrupt_while_waiting(monkeypatch: pytest.MonkeyPatch, handed: bool) -> None:
    """Ctrl-C may come while the gate is still closed, or when it has just been opened."""
    turns = Turns(0, time.monotonic)
    turns.acquire()

    class Gate:
        def acquire(self, _blocking: bool = True, timeout: float | None = None) -> bool:
            if timeout is not None:
                if handed:
                    turns.release()  # whoever has the mutex gives it to this gate
                raise KeyboardInterrupt
            return True

        def release(self) -> None:
            pass

    monkeypatch.setattr("kudu_core._ext.base.holding.allocate_lock", Gate)
    with pytest.raises(KeyboardInterrupt), turns:
        pass
    assert not turns.waiting and turns.locked() is not handed
