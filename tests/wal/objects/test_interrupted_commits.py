"""Ctrl-C at every place of a commit: the log stays whole, and has what was acknowledged after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kudu_core.errors import Poisoned
from kudu_core.wal.objects.object_log import ObjectLog
from tests.support.interrupts import interrupted, places_of
from tests.wal.objects.test_object_log import World, commit, write

WAYS: dict[str, Callable[[ObjectLog], object]] = {
    "commit": lambda log: commit(log, b"interrupted"),
    "wait": lambda log: log.wait_durable(log.cut()),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_at_every_place(way: str) -> None:
    """A record whose call was interrupted is there whole or not at all; the next puts both, or the log is
    poisoned and says so."""

    def prepared() -> tuple[World, ObjectLog]:
        world = World()
        log = world.open()
        commit(log, b"before")
        if way == "wait":
            write(log, b"interrupted")
        return world, log

    _, log = prepared()
    places, _ = places_of(lambda: WAYS[way](log))
    assert places > 10
    there = set()
    for at in range(1, places + 1):
        world, log = prepared()
        done, found = interrupted(lambda log=log: WAYS[way](log), at)  # type: ignore[misc]
        after = [b"after"]
        try:
            commit(log, b"after")
        except Poisoned:
            after = []
        told = [b"interrupted"] if done or way == "wait" else []
        payloads = world.payloads()
        ends = [b"before", *told, *after], [b"before", b"interrupted", *after]
        assert payloads in ends, f"place {at} of {places}, {found.where}"
        there.add(b"interrupted" in payloads)
    assert there == ({True, False} if way == "commit" else {True})
