"""Interrupts where a log begins a segment and lets go of some: what is acknowledged after them can be read.

``test_interrupts.py`` tries some places of every public call, and in few of them the log changes segments.
Here every place of such a write and of such a checkpoint is tried, at the log itself, and what the disk may
hold after a power cut is read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from kudu_core._ext.base.holding import InFlight
from kudu_core.errors import Poisoned
from kudu_core.wal import RECORD_KIND_WRITE, Log, read_log
from tests.support.cases.wal import SMALL, UUID, commit
from tests.support.clock import ManualClock
from tests.support.fs.memory import MemoryFileSystem
from tests.support.interrupts import Interruption

WAL = "/wal"
OPTIONS = replace(SMALL, segment_bytes=2 << 10, first_fill_bytes=512, fill_bytes=512, file_grace_s=1.0)
CUTS = 3
"""Power cuts that are tried after each interrupt, each with another choice of what survives."""


@dataclass
class World:
    """A log in memory, and what it has acknowledged."""

    memory: MemoryFileSystem = field(default_factory=MemoryFileSystem)
    clock: ManualClock = field(default_factory=ManualClock)
    log: Log = field(init=False)
    acknowledged: list[bytes] = field(default_factory=list)
    covered: int = 0
    """How many of them the log may have let go of."""

    def __post_init__(self) -> None:
        self.memory.mkdir(WAL)
        self.memory.sync_dir("/")
        self.log = Log.create(self.memory, WAL, UUID, 1, clock=self.clock, options=OPTIONS)

    def commit(self, size: int) -> None:
        data = bytes([len(self.acknowledged) % 251]) * size
        commit(self.log, data)
        self.acknowledged.append(data)

    def fill(self, segments: int) -> None:
        """Until the last of so many segments has no room for another large record."""
        while len(self.log.segments) < segments or self.log.segments[-1].end < 1500:
            self.commit(300)

    def checkpoint(self) -> None:
        self.covered = len(self.acknowledged)
        self.log.checkpoint(self.log.committed_ts, {})

    def payloads(self, fs: MemoryFileSystem) -> list[bytes]:
        tail = read_log(fs, WAL, UUID)
        found = [bytes(record.payload) for record in tail.records()]
        tail.close()
        return found

    def assert_readable(self, rng: random.Random, at_most: int) -> None:
        """In the files as they are, and in what power cuts leave: what was acknowledged and not let go of, in
        its order, and beside it no more than ``at_most`` records, which were being written."""
        for disk in (self.memory, *(self.memory.crash_clone(rng) for _ in range(CUTS))):
            found = self.payloads(disk)
            others = [data for data in found if data not in self.acknowledged]
            kept = [data for data in found if data in self.acknowledged]
            assert len(others) <= at_most
            assert kept == self.acknowledged[len(self.acknowledged) - len(kept) :]
            assert len(kept) >= len(self.acknowledged) - self.covered


def plain(world: World) -> None:
    world.fill(1)


def with_spares(world: World) -> None:
    """The next segment is one that was dropped and has waited long enough."""
    world.fill(4)
    world.checkpoint()
    world.clock.advance(us=2_000_000)
    world.fill(1)
    assert world.log.spare_bytes


def large(world: World) -> None:
    """A record that does not fit, written as ``table/opened/record.py`` does it."""
    with InFlight(world.log, RECORD_KIND_WRITE, 1, [b"\xff" * 900]):
        pass


def places(prepare: Callable[[World], None], call: Callable[[World], object]) -> int:
    world = World()
    prepare(world)
    with Interruption(None) as interruption:
        call(world)
    return interruption.count


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("prepare", [plain, with_spares])
def test_l2_an_interrupted_beginning_of_a_segment_is_gone_on_with(
    prepare: Callable[[World], None], error: type[BaseException], seed: int
) -> None:
    """What fits into the old segment may not go there once the next may have its header."""
    rng = random.Random(seed)
    poisoned = begun = 0
    total = places(prepare, large)
    for at in range(1, total + 1):
        world = World()
        prepare(world)
        before = len(world.log.segments)
        with suppress(error, Poisoned), Interruption(at, error) as interruption:
            large(world)
        if world.log.poisoned is None:
            begun += len(world.log.segments) == before
            for size in (20, 20, 900):
                world.commit(size)
        else:
            poisoned += 1
        try:
            world.assert_readable(rng, at_most=1)
        except Exception as exc:
            raise AssertionError(f"place {at} of {total}: {interruption.where}") from exc
    assert begun > 10, "interrupts before the segment was begun"
    assert poisoned < total // 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_checkpoint_leaves_a_log_that_can_be_shortened(
    error: type[BaseException], seed: int
) -> None:
    """No place leaves a segment that can never be dropped, nor one file in two places."""
    rng = random.Random(seed)

    def three(world: World) -> None:
        world.fill(4)

    total = places(three, World.checkpoint)
    for at in range(1, total + 1):
        world = World()
        three(world)
        with suppress(error, Poisoned), Interruption(at, error) as interruption:
            world.checkpoint()
        where = f"place {at} of {total}: {interruption.where}"
        if world.log.poisoned is None:
            for _ in range(3):
                world.clock.advance(us=2_000_000)  # spares may be used again
                world.fill(4)
                world.checkpoint()
                assert len(world.log.segments) == 1, where
                spares = {name for name in world.memory.listdir(WAL) if name.startswith("spare")}
                assert len(spares) <= 3, where  # one that an interrupt has left goes with the next open
            world.commit(20)
        world.assert_readable(rng, at_most=0)
