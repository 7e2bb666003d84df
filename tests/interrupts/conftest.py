"""Interrupts come as they do to a user at a terminal, wherever the tests run."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_interrupts() -> Iterator[None]:
    """A shell starts what runs in the background with SIGINT ignored, and then Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def watchdog() -> Iterator[None]:
    """Where an interrupt has left something hanging, the stacks of all threads after twenty minutes."""
    faulthandler.dump_traceback_later(1200, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
