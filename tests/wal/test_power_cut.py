"""Protocol N17: the power may go at any step of the log's life, and take any un-synced bytes and names."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from kudu_core.wal import Log, LogOptions, Record, read_log
from tests.support.cases.wal import SMALL, UUID, Tapped, write
from tests.support.clock import ManualClock
from tests.support.fs.memory import MemoryFileSystem

WAL = "/wal"
OPTIONS = replace(SMALL, segment_bytes=3 << 10, file_grace_s=0.0, first_fill_bytes=512)


@dataclass
class Promise:
    """What a power cut at this moment must leave."""

    written: list[tuple[int, bytes]]
    durable_ts: int
    through_before: int
    through_asked: int


class World:
    """A log on a disk that forgets.  Now and then a step leaves a photograph: a power cut there."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.memory = MemoryFileSystem()
        self.memory.mkdir(WAL)
        self.memory.sync_dir("/")
        self.clock = ManualClock()
        self.written: list[tuple[int, bytes]] = []
        self.durable_ts = self.through = self.asked = 0
        self.photographs: list[tuple[MemoryFileSystem, Promise]] = []
        self.log: Log | None = None

    def tap(self, operation: str, path: str) -> None:
        if self.rng.random() < 0.02:
            # A batch that is being written may be there or not; it is not acknowledged.
            durable = max(self.durable_ts, self.log.durable_ts) if self.log is not None else self.durable_ts
            promise = Promise(list(self.written), durable, self.through, self.asked)
            self.photographs.append((self.memory.crash_clone(self.rng), promise))

    def run(self, log: Log, steps: int) -> None:
        self.log = log
        for _ in range(steps):
            if self.rng.random() < 0.9:
                data = self.rng.randbytes(self.rng.randrange(700))
                self.written.append((write(log, data), data))
            if self.rng.random() < 0.3:
                log.wait_durable(self.written[-1][0] if self.written else 0)
            if self.rng.random() < 0.08 and log.committed_ts > self.asked:
                self.asked = self.rng.choice([ts for ts, _ in self.written if ts <= log.committed_ts])
                self.asked = max(self.asked, self.through)
                log.checkpoint(self.asked, {1: len(self.written)})
                self.through = self.asked
            self.clock.advance(us=self.rng.randrange(3))


def check(records: list[Record], through: int, promise: Promise) -> list[tuple[int, bytes]]:
    assert through in (promise.through_before, promise.through_asked)
    got = [(r.ts, bytes(r.payload)) for r in records]
    wanted = [(ts, data) for ts, data in promise.written if ts > through]
    known, new = got[: len(wanted)], got[len(wanted) :]
    assert known == wanted[: len(known)]
    assert len(new) <= 1, "only the batch that was being written"
    lost = wanted[len(got) :]
    assert all(ts > promise.durable_ts for ts, _ in lost), "a durable record is lost"
    return got


@pytest.mark.parametrize("durability", ["none", "sync"])
@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_at_any_step_takes_nothing_durable(seed: int, durability: str) -> None:
    world = World(seed)
    options: LogOptions = replace(OPTIONS, durability=durability)  # type: ignore[arg-type]
    log = Log.create(world.memory, WAL, UUID, 1, clock=world.clock, options=options)
    fs = Tapped(world.memory, world.tap)
    log.abandon()
    for epoch in range(2, 5):
        tail = read_log(fs, WAL, UUID)
        world.log = None
        world.durable_ts = tail.last_ts if epoch == 2 else world.durable_ts
        log = Log.resume(fs, WAL, UUID, epoch, tail, clock=world.clock, options=options)
        world.durable_ts = tail.last_ts
        tail.close()
        world.run(log, 60)
        world.durable_ts = log.durable_ts
        log.abandon()
    assert len(world.photographs) > 5
    for disk, promise in world.photographs:
        tail = read_log(disk, WAL, UUID)
        got = check(list(tail.records()), tail.through, promise)
        tail.close()
        # The power goes again while the log is taken over; then it is taken over and used.
        again: list[MemoryFileSystem] = []
        tapped = Tapped(disk, lambda *_, disk=disk, again=again: again.append(disk.crash_clone(world.rng)))
        tail = read_log(tapped, WAL, UUID)
        log = Log.resume(tapped, WAL, UUID, 9, tail, clock=world.clock, options=options)
        more = write(log, b"more")
        log.wait_durable(more)
        log.abandon()
        for state in [world.rng.choice(again), disk.crash_clone(world.rng, keep="none")]:
            tail = read_log(state, WAL, UUID)
            found = [(r.ts, bytes(r.payload)) for r in tail.records()]
            tail.close()
            lost = [item for item in got if item not in found]
            assert all(ts > promise.durable_ts for ts, _ in lost)
        assert found == [*got, (more, b"more")]


@pytest.mark.parametrize("keep", ["none", "random", "all"])
def test_a_power_cut_while_a_segment_is_written_again(keep: str) -> None:
    """At every call between the life that a recycled segment had and the one that it begins.

    Its first name is durable and the others may not be: a header of the new life under the name of the old
    one would be a log that nobody can read.
    """
    rng = random.Random(7)
    memory = MemoryFileSystem()
    memory.mkdir(WAL)
    memory.sync_dir("/")
    clock = ManualClock()
    disks: list[MemoryFileSystem] = []
    recycled: list[str] = []
    durable = 0

    def tap(operation: str, path: str) -> None:
        recycled.extend([path] if operation == "rename" and "spare-" in path else [])
        disks.append(memory.crash_clone(rng, keep=keep))  # type: ignore[arg-type]
        promises.append((durable, len(written)))

    written: list[tuple[int, bytes]] = []
    promises: list[tuple[int, int]] = []
    options = replace(OPTIONS, durability="sync")
    log = Log.create(Tapped(memory, tap), WAL, UUID, 1, clock=clock, options=options)
    for _ in range(24):
        data = rng.randbytes(700)
        written.append((write(log, data), data))
        log.wait_durable(written[-1][0])
        durable = written[-1][0]
        if len(written) % 6 == 0:
            log.checkpoint(durable, {})
        clock.advance(us=1)
    log.abandon()
    assert len(recycled) >= 2, "no segment was written again"
    for disk, (through_ts, count) in zip(disks, promises, strict=True):
        if not disk.exists(f"{WAL}/COMMITTED"):
            continue  # the log was being made
        tail = read_log(disk, WAL, UUID)
        found = [(r.ts, bytes(r.payload)) for r in tail.records()]
        for ts, data in written[:count]:
            assert ts > through_ts or ts <= tail.through or (ts, data) in found
        tail.close()
