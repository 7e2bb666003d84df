"""A log of objects beside what stores do to requests: acknowledged records stay, once and in order."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from kudu_core.errors import Closed, Fenced, Poisoned, StoreError
from kudu_core.objects.repeating import RepeatingStore
from kudu_core.wal import RECORD_KIND_EDIT, RECORD_KIND_WRITE, LogChanged, LogOptions
from kudu_core.wal.objects import object_log
from kudu_core.wal.objects.log_object import LogEnd, LogPlace, log_name, log_put_id
from kudu_core.wal.objects.object_fence import put_fence
from kudu_core.wal.objects.object_log import ObjectLog
from kudu_core.wal.objects.object_tail import ObjectTail
from tests.support.clock import Clock, ManualClock
from tests.support.fs.faulty import SimulatedCrash
from tests.support.objects.fates import OF_READS, OF_WRITES, Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore, StepClock

UUID = bytes(range(16))
ROOT = "s3://bucket/t"
START = LogPlace(1, LogEnd(), 0)


class World:
    """A store, and logs in it."""

    def __init__(
        self, rules: list[Rule] | None = None, seed: int = 0, deadline_s: float = 20.0
    ) -> None:
        self.memory = MemoryObjectStore()
        self.faulty = FaultyStore(self.memory, rules or [], seed=seed)
        self.store = RepeatingStore(
            self.faulty, lambda name, data: log_put_id(data), StepClock(), deadline_s=deadline_s
        )
        self.ids = random.Random(seed)
        self.epoch = 1
        self.place = START

    def tail(self, place: LogPlace | None = None) -> ObjectTail:
        found = ObjectTail(self.store, UUID, place or self.place, root=ROOT, alters=lambda record: False)
        found.read_on()
        return found

    def open(
        self,
        durability: str = "sync",
        clock: Clock | None = None,
        prove: Callable[[], None] = lambda: None,
        grace_s: float = 0.0,
    ) -> ObjectLog:
        self.epoch += 1
        tail = self.tail()
        put_fence(self.store, tail, UUID, self.epoch, self.new_id)

        def put_checkpoint(place: LogPlace) -> None:
            self.place = place

        return ObjectLog.resume(
            self.store,
            UUID,
            self.epoch,
            tail,
            root=ROOT,
            clock=clock or Clock(),
            new_id=self.new_id,
            options=LogOptions(durability, file_grace_s=grace_s),  # type: ignore[arg-type]
            prove=prove,
            put_checkpoint=put_checkpoint,
        )

    def new_id(self) -> bytes:
        return self.ids.randbytes(16)

    def payloads(self) -> list[bytes]:
        return [bytes(record.payload) for record in self.tail().records()]


def write(log: ObjectLog, payload: bytes, kind: int = RECORD_KIND_WRITE) -> int:
    ts = log.append(kind, 1, [payload])
    log.applied(ts)
    return ts


def commit(log: ObjectLog, payload: bytes) -> int:
    ts = write(log, payload)
    log.wait_visible(ts)
    return ts


def test_what_is_committed_is_read_in_order() -> None:
    world = World()
    log = world.open()
    for n in range(20):
        commit(log, b"%d" % n)
    assert log.close() == 22
    assert world.payloads() == [b"%d" % n for n in range(20)]
    log = world.open()
    commit(log, b"after")
    log.close()
    assert world.payloads()[-1] == b"after" and len(world.payloads()) == 21
    tail = world.tail()
    assert [one.is_fence for one in tail.objects] == [True, *[False] * 20, True, False]
    assert tail.epoch == 3 and tail.next_number == 24


def test_edits_are_kept_apart() -> None:
    world = World()
    log = world.open()
    write(log, b"rows")
    write(log, b"edit", RECORD_KIND_EDIT)
    log.close()
    tail = world.tail()
    assert [bytes(record.payload) for record in tail.edit_records] == [b"edit"]
    assert [bytes(record.payload) for record in tail.records()] == [b"rows"]
    assert list(tail.records()) == [], "handed out once"


def test_buffers_that_change_after_the_append_change_nothing() -> None:
    world = World()
    log = world.open("none")
    buffer = bytearray(b"before")
    ts = log.append(RECORD_KIND_WRITE, 1, [buffer, memoryview(buffer)])
    buffer[:] = b"after!"
    log.applied(ts)
    log.close()
    assert world.payloads() == [b"beforebefore"]


def test_many_small_records_share_an_object_and_large_ones_have_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(object_log, "BUFFER_BYTES", 1000)
    world = World()
    log = world.open("none")
    small = [b"s%d" % n for n in range(10)]
    for payload in small:
        write(log, payload)
    write(log, bytes(5000))
    write(log, b"behind")
    log.close()
    assert world.payloads() == [*small, bytes(5000), b"behind"]
    sizes = [one.size for one in world.tail().objects]
    assert len(sizes) == 4 and sizes[1] < 1000 and sizes[2] > 5000


@pytest.mark.parametrize("seed", range(12))
def test_random_threads_and_fates(seed: int) -> None:
    """Every record that was acknowledged is there once, and those of one thread in their order."""
    odds = (0.0, 0.05, 0.2)[seed % 3]
    rules = [Rule(fate, ops=frozenset({"put"}), probability=odds, after=3) for fate in OF_WRITES]
    rules += [Rule(fate, ops=frozenset({"get"}), probability=odds) for fate in OF_READS]
    rules += [Rule("conflict", ops=frozenset({"put"}), probability=odds)]
    world = World(rules if odds else [], seed, deadline_s=1e6)
    acknowledged: list[bytes] = []

    for life in range(3):
        log = world.open(("sync", "group")[life % 2])

        def writer(number: int, log: ObjectLog = log, life: int = life) -> None:
            for n in range(15):
                payload = b"%d-%d-%03d" % (life, number, n)
                try:
                    ts = write(log, payload)
                    log.wait_committed(ts)
                except StoreError:
                    continue
                acknowledged.append(payload)

        threads = [threading.Thread(target=writer, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if life == 1:
            log.abandon()
        else:
            with suppress(StoreError):
                log.close()
    found = world.payloads()
    assert len(found) == len(set(found)), "nothing twice"
    assert set(acknowledged) <= set(found), "nothing lost"
    for life in range(3):
        for number in range(4):
            mine = [payload for payload in found if payload.startswith(b"%d-%d-" % (life, number))]
            assert mine == sorted(mine)


def test_a_store_that_does_not_answer_is_waited_for_and_nothing_is_lost() -> None:
    """The call is told; the same bytes go under the same number when the store is back (protocol B3)."""
    rule = Rule("refused", ops=frozenset({"put"}), path_glob="log/*", nth=3, times=10**9)
    world = World([rule])
    log = world.open()
    commit(log, b"one")
    with pytest.raises(StoreError, match="may or may not be there; the next call") as told:
        commit(log, b"two")
    assert told.value.unknown
    assert log.poisoned is None and log.committed_ts < log.last_ts
    rule.left = rule.times = 0
    commit(log, b"three")
    log.close()
    assert world.payloads() == [b"one", b"two", b"three"]


def test_memory_is_bounded_while_the_store_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_log, "BUFFER_BYTES", 2000)
    rule = Rule("refused", ops=frozenset({"put"}), path_glob="log/*", nth=2, times=10**9)
    world = World([rule])
    log = world.open("none")
    taken = []
    with pytest.raises(StoreError):
        for n in range(1000):
            write(log, b"%0100d" % n)
            taken.append(b"%0100d" % n)
    assert 10 < len(taken) < 60
    rule.left = rule.times = 0
    write(log, b"after")
    log.close()
    assert world.payloads() == [*taken, b"after"], "what was refused is not there"


def test_who_was_replaced_is_fenced_whatever_it_puts() -> None:
    world = World()
    old = world.open()
    commit(old, b"old")
    new = world.open()
    commit(new, b"new")
    with pytest.raises(Fenced):
        commit(old, b"lost")
    with pytest.raises(Fenced):
        old.append(RECORD_KIND_WRITE, 1, [b"again"])
    assert old.close() is None
    commit(new, b"newer")
    new.close()
    assert world.payloads() == [b"old", b"new", b"newer"]


def test_an_opener_takes_in_what_its_predecessor_puts_meanwhile() -> None:
    """Its fence meets an object of a smaller epoch: that was committed first."""
    world = World()
    old = world.open()
    world.epoch += 1
    tail = world.tail()
    commit(old, b"between")
    put_fence(world.store, tail, UUID, world.epoch, world.new_id)
    assert [bytes(record.payload) for record in tail.records()] == [b"between"]
    with pytest.raises(Fenced):
        commit(old, b"late")


def test_an_opener_of_an_epoch_that_is_over_is_fenced() -> None:
    world = World()
    world.open()
    epoch = world.epoch
    tail = world.tail()
    world.open()
    with pytest.raises(Fenced, match="another writer has taken the table over"):
        put_fence(world.store, tail, UUID, epoch, world.new_id)


def test_a_proof_that_is_old_is_renewed_before_anything_is_acknowledged() -> None:
    world = World()
    clock = ManualClock()
    proofs: list[int] = []

    def prove() -> None:
        proofs.append(1)
        if len(proofs) == 2:
            raise Fenced("another one has it")

    log = world.open(clock=clock, prove=prove)
    commit(log, b"a")
    clock.advance(3000)
    commit(log, b"b")
    assert proofs == []
    clock.advance(3601)
    commit(log, b"c")
    assert len(proofs) == 1
    clock.set_us(clock.now_us() + 4_000_000_000)  # the wall clock alone
    with pytest.raises(Fenced):
        commit(log, b"d")
    assert log.poisoned is not None


def test_a_crash_at_every_request_loses_nothing_that_was_acknowledged() -> None:
    for nth in range(1, 40):
        for fate in ("crash before", "crash after"):
            world = World([Rule(fate, nth=nth)])
            acknowledged: list[bytes] = []
            log: ObjectLog | None = None
            try:
                log = world.open()
                for n in range(6):
                    commit(log, b"%d" % n)
                    acknowledged.append(b"%d" % n)
                log.checkpoint(log.committed_ts, {})
                log.drop_spares()
                for n in range(6, 9):
                    commit(log, b"%d" % n)
                    acknowledged.append(b"%d" % n)
                log.close()
            except SimulatedCrash:
                if log is not None:
                    log.abandon()
            after = World()
            after.memory, after.place, after.epoch = world.memory.clone(), world.place, world.epoch
            after.store = RepeatingStore(after.memory, lambda name, data: log_put_id(data), StepClock())
            log = after.open()
            commit(log, b"new life")
            log.close()
            dropped = after.tail().place.prev.lsn  # records before the place of the checkpoint
            found = after.payloads()
            assert found[-1] == b"new life"
            assert set(acknowledged[dropped:]) <= set(found), (nth, fate)
            if not world.faulty.crashed:
                return
    raise AssertionError("it had still not come to its end")


def test_a_checkpoint_moves_the_beginning_and_retires_what_lies_before() -> None:
    world = World()
    clock = ManualClock()
    log = world.open(clock=clock, grace_s=60.0)
    stamps = [commit(log, b"%d" % n) for n in range(10)]
    assert not log.is_due(stamps[-1])
    log.checkpoint(stamps[4], {})
    assert world.place.first == 7 and world.place.through == stamps[4]
    assert world.payloads() == [b"%d" % n for n in range(5, 10)]
    assert log.drop_spares() == 0 and log_name(2) in world.memory.objects, "readers may be under way"
    clock.advance(61)
    assert log.spare_bytes > 0 and log.drop_spares() > 0
    assert [n for n in range(1, 12) if log_name(n) in world.memory.objects] == [1, *range(7, 12)], (
        "the fence stays"
    )
    commit(log, b"on")
    assert log.close() == 13
    log = world.open()
    assert log.place.first == 7
    log.close()
    assert world.payloads() == [*[b"%d" % n for n in range(5, 10)], b"on"]


def test_a_gap_is_never_read_over() -> None:
    world = World()
    log = world.open()
    for n in range(20):
        commit(log, b"%d" % n)
    log.close()
    del world.memory.objects[log_name(6)]
    with pytest.raises(LogChanged):
        world.tail()


def test_an_object_that_was_overwritten_does_not_follow() -> None:
    """A store that breaks its promises becomes loud (protocol B9)."""
    first, second = World(seed=1), World(seed=2)
    for world in (first, second):
        log = world.open()
        commit(log, b"a")
        commit(log, b"b")
        log.close()
    first.memory.objects[log_name(2)] = second.memory.objects[log_name(2)]
    with pytest.raises(LogChanged):
        first.tail()


def test_after_close_and_after_a_fork_nothing_is_taken() -> None:
    world = World()
    log = world.open()
    log.close()
    with pytest.raises(Closed):
        log.append(RECORD_KIND_WRITE, 1, [b"x"])
    other = world.open()
    other.abandon()
    with pytest.raises((Closed, Poisoned)):
        other.append(RECORD_KIND_WRITE, 1, [b"x"])
