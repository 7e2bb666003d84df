"""Interrupts come as they do to a user at a terminal, wherever the tests run."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_interrupts() -> Iterator[None]:
    """A shell starts what runs in the background with SIGINT ignored, and then Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
