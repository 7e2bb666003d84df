"""The lease of a table in an object store: for politeness, and so it must be polite (protocol B11)."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from kudu_core.errors import Locked, StoreUnavailable
from kudu_core.fs.processes import this_process
from kudu_core.objects.object_lease import EXPIRES_S, ObjectLease, lease_put_id
from tests.support.clock import ManualClock
from tests.support.inside import given_up_leases, renewed
from tests.support.objects.fates import Fate, Op, Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore, client

ROOT = "s3://bucket/t"
UNKNOWN: tuple[Fate, ...] = ("lost", "late")


class World:
    _numbers = itertools.count(1)
    """No two put ids are equal, in whatever world."""

    def __init__(self, rules: list[Rule] | None = None) -> None:
        self.memory = MemoryObjectStore()
        self.clock = ManualClock()
        self.faulty = FaultyStore(self.memory, rules or [])
        self.store = client(self.faulty, ids=lambda name, data: lease_put_id(data))

    def lease(self) -> ObjectLease:
        return ObjectLease(
            self.store, ROOT, clock=self.clock, new_id=lambda: next(self._numbers).to_bytes(16, "big")
        )

    @contextmanager
    def outage(self, fate: Fate) -> Iterator[None]:
        """No put is answered, but of the first it is not known that it was not applied; at the end it is,
        when its fate is "late"."""
        puts: frozenset[Op] = frozenset({"put"})
        rules = [Rule(fate, ops=puts, after=10**6), Rule("refused", ops=puts, probability=1.0)]
        self.faulty.fates.rules += rules
        yield
        self.faulty.fates.rules.clear()
        assert rules[0].fired and self.faulty.land_late() == (fate == "late")

    @staticmethod
    def text(**members: object) -> bytes:
        value = {"pid": 1, "host": "elsewhere", "boot_id": "b", "nonce": "00" * 16, "released": False}
        return json.dumps({**value, **members}).encode()

    def write(self, **members: object) -> None:
        self.memory.store("LEASE", self.text(**members))


@contextmanager
def as_another_process() -> Iterator[None]:
    """Which does not know what this one has given up."""
    known = set(given_up_leases())
    given_up_leases().clear()
    yield
    given_up_leases().update(known)


def test_one_has_it_and_the_other_is_told_who() -> None:
    world = World()
    one, two = world.lease(), world.lease()
    one.try_acquire()
    assert one.held and one.holder() == two.holder() is not None
    with pytest.raises(Locked, match=r"s3://bucket/t/LEASE is open for writing by process \d+"):
        two.try_acquire()
    one.release()
    one.release()
    assert not one.held and two.holder() is None
    two.try_acquire()
    two.release()


def test_of_many_at_once_one_has_it() -> None:
    world = World()
    leases = [world.lease() for _ in range(8)]

    def take(lease: ObjectLease) -> None:
        try:
            lease.try_acquire()
        except Locked:
            return

    for _ in range(5):
        threads = [threading.Thread(target=take, args=(lease,)) for lease in leases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        held = [lease for lease in leases if lease.held]
        assert len(held) == 1
        held[0].release()
        leases = [lease for lease in leases if lease is not held[0]]


def test_who_is_elsewhere_is_waited_for_until_it_has_not_moved_for_its_time() -> None:
    world = World()
    world.write()
    with pytest.raises(Locked, match="process 1 on elsewhere"):
        world.lease().try_acquire(EXPIRES_S - 2)
    lease = world.lease()
    lease.try_acquire(EXPIRES_S + 2)
    assert lease.held
    lease.release()


def test_who_moves_is_not_taken_over() -> None:
    world = World()
    world.write()
    moved = itertools.count(1 << 100)
    sleep = world.clock.sleep

    def sleep_and_move(seconds: float) -> None:
        sleep(seconds)
        world.write(nonce=f"{next(moved):032x}")

    world.clock.sleep = sleep_and_move  # type: ignore[method-assign]
    with pytest.raises(Locked):
        world.lease().try_acquire(5 * EXPIRES_S)


def test_what_is_no_lease_is_taken_at_once() -> None:
    for text in (b"", b"{}", b"not JSON", b'{"pid": -1}'):
        world = World()
        world.memory.store("LEASE", text)
        lease = world.lease()
        lease.try_acquire()
        assert lease.held
        lease.release()


@pytest.mark.parametrize("fate", ["lost", "late", "refused", "conflict"])
def test_answers_that_are_lost_make_no_second_holder(fate: str) -> None:
    for nth in range(1, 4):
        world = World([Rule(fate, ops=frozenset({"put"}), nth=nth)])  # type: ignore[arg-type]
        one, two = world.lease(), world.lease()
        one.try_acquire()
        with pytest.raises(Locked):
            two.try_acquire()
        one.release()
        two.try_acquire()
        assert two.held and not one.held
        two.release()


def test_a_child_of_a_fork_lets_go_without_a_word() -> None:
    world = World()
    lease = world.lease()
    lease.try_acquire()
    puts = world.memory.counts()["requests_put"]
    lease.abandon()
    lease.release()
    with pytest.raises(Locked):
        world.lease().try_acquire()
    assert not lease.held and world.memory.counts()["requests_put"] == puts


def test_a_process_of_this_machine_that_is_dead_is_not_waited_for() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    me = this_process()
    for other, free in (
        (me._replace(pid=ended.pid), True),
        (me, False),
        (me._replace(pid=ended.pid, boot_id="another boot"), False),
        (me._replace(pid=ended.pid, host="elsewhere"), False),
    ):
        world = World()
        world.write(**other._asdict())
        lease = world.lease()
        if free:
            lease.try_acquire()
            lease.release()
        else:
            with pytest.raises(Locked):
                lease.try_acquire()


@pytest.mark.parametrize("fate", UNKNOWN)
def test_a_renewal_whose_answer_was_lost_is_the_own(fate: Fate) -> None:
    """It is in LEASE in the place of what the holder knows, and no other writer is."""
    known = set(given_up_leases())
    world = World()
    one, two = world.lease(), world.lease()
    one.try_acquire()
    for _ in range(2):
        with world.outage(fate):
            assert renewed(one), "the next time, then"
    assert renewed(one) and one.held
    with pytest.raises(Locked):
        two.try_acquire()
    with world.outage(fate):
        assert renewed(one)
    one.release()
    assert json.loads(world.memory.objects["LEASE"].data)["released"]
    two.try_acquire()
    two.release()
    two.release()
    assert given_up_leases() == known, "which would grow"


def test_who_was_taken_over_is_told_also_after_renewals_without_an_answer() -> None:
    world, known = World(), set(given_up_leases())
    one = world.lease()
    one.try_acquire()
    with world.outage("lost"):
        assert renewed(one)
    world.write()
    assert not renewed(one) and not one.held
    one.release()
    assert json.loads(world.memory.objects["LEASE"].data)["host"] == "elsewhere"
    assert given_up_leases() == known, "which would grow"


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("fate", UNKNOWN)
def test_an_open_that_failed_does_not_lock_its_own_process_out(fate: Fate, is_there: bool) -> None:
    """Others wait: they cannot know that it failed."""
    world = World()
    if is_there:
        world.write(released=True)
    one, two, three = world.lease(), world.lease(), world.lease()
    with world.outage(fate):
        with pytest.raises(StoreUnavailable):
            one.try_acquire()
        one.release()
    with as_another_process(), pytest.raises(Locked):
        two.try_acquire(EXPIRES_S - 2)
    assert three.holder() is None
    three.try_acquire()
    with pytest.raises(Locked):
        two.try_acquire(EXPIRES_S - 2)
    three.release()


def test_an_open_that_goes_on_is_not_taken_over_by_its_own_process() -> None:
    """The put is there, and its sender still asks for the answer."""
    world = World()
    one, two = world.lease(), world.lease()
    with world.outage("lost"), suppress(StoreUnavailable):
        one.try_acquire()
    with pytest.raises(Locked):
        two.try_acquire()
    one.release()
    two.try_acquire()
    two.release()


@pytest.mark.parametrize("fate", UNKNOWN)
def test_an_end_that_could_not_be_told_does_not_lock_the_own_process_out(fate: Fate) -> None:
    world = World()
    one, two, three = world.lease(), world.lease(), world.lease()
    one.try_acquire()
    before = world.memory.objects["LEASE"]
    with world.outage(fate):
        one.release()
    world.memory.objects["LEASE"] = before  # as if it had never come
    with as_another_process(), pytest.raises(Locked):
        two.try_acquire(EXPIRES_S - 2)
    three.try_acquire()
    three.release()


@pytest.mark.parametrize("is_there", [False, True])
def test_who_is_late_is_told_who_was_faster(is_there: bool) -> None:
    world = World([Rule("overtaken", ops=frozenset({"put"}), data=World.text(pid=7))])
    if is_there:
        world.write(released=True)
    with pytest.raises(Locked, match="process 7 on elsewhere"):
        world.lease().try_acquire()
