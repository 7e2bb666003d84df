"""Protocol B3: whatever becomes of a request, no call says of our own object that it is another's."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence

import pytest

import kudu_core as kc
from kudu_core.objects.api import Existing, Replaced
from kudu_core.objects.repeating import FIRST_PAUSE_S, LONGEST_PAUSE_S
from tests.objects.test_contract import body, id_of
from tests.support.fs.faulty import SimulatedCrash
from tests.support.objects.fates import OF_WRITES, Fate, Rule, by_chance
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore, StepClock, client

PUT = frozenset({"put"})
GET = frozenset({"get"})
BORNE: tuple[Fate, ...] = (*OF_WRITES, "conflict", "slow")


@pytest.fixture(params=["etag", "generation"])
def memory(request: pytest.FixtureRequest) -> MemoryObjectStore:
    return MemoryObjectStore(versions=request.param)


def behind(memory: MemoryObjectStore, *rules: Rule, clock: StepClock | None = None) -> FaultyStore:
    return FaultyStore(memory, rules, clock=clock)


@pytest.mark.parametrize("fate", BORNE)
def test_our_put_is_ours(memory: MemoryObjectStore, fate: Fate) -> None:
    faulty = behind(memory, Rule(fate, ops=PUT))
    mine = body("mine")
    assert client(faulty).put_if_absent("log/1", mine, id_of(mine)) is None
    faulty.land_late()
    assert memory.objects["log/1"].data == mine
    assert faulty.fates.rules[0].fired == 1


@pytest.mark.parametrize("fate", BORNE)
def test_our_replacement_is_ours(memory: MemoryObjectStore, fate: Fate) -> None:
    memory.store("TABLE", body("old"))
    faulty = behind(memory, Rule(fate, ops=PUT))
    store, mine = client(faulty), body("mine")
    version = store.read_versioned("TABLE", 100)[1]
    new = store.replace_if("TABLE", mine, version, id_of(mine))
    assert store.read_versioned("TABLE", 100) == (mine, new)
    next_ = body("next")
    store.replace_if("TABLE", next_, new, id_of(next_))
    faulty.land_late()
    assert memory.objects["TABLE"].data == next_, "a late put changes nothing: its condition fails"


@pytest.mark.parametrize("fate", [*OF_WRITES, "slow"])
@pytest.mark.parametrize("op", ["put", "delete", "get", "list"])
def test_other_calls_bear_it_too(memory: MemoryObjectStore, fate: Fate, op: str) -> None:
    memory.store("a", b"there")
    faulty = FaultyStore(memory, [Rule(fate, ops=frozenset({op}))])  # type: ignore[arg-type]
    store = client(faulty)
    store.put("b", b"new")
    store.delete_many(["a"])
    assert store.read_bytes("b", 10) == b"new"
    assert store.read_ranges("b", [(1, 2)]) == [b"ew"]
    assert [each.name for each in store.entries("")] == ["b"]


def test_anothers_object_is_anothers(memory: MemoryObjectStore) -> None:
    other = body("other")
    for fate in ("refused", "busy", "conflict", None):
        memory.objects.clear()
        memory.store("log/1", other)
        faulty = behind(memory, *([Rule(fate, ops=PUT)] if fate else []))  # type: ignore[arg-type]
        mine = body("mine")
        assert client(faulty).put_if_absent("log/1", mine, id_of(mine)) == Existing(id_of(other), other)
    version = memory.get("log/1", None)[1]
    taken = behind(memory, Rule("overtaken", ops=PUT, data=other + b"!"))
    with pytest.raises(Replaced, match="log/1 was replaced by another writer") as raised:
        client(taken).replace_if("log/1", mine, version, id_of(mine))
    assert raised.value.found == Existing(id_of(other), other + b"!") and not raised.value.unknown
    again = pickle.loads(pickle.dumps(raised.value))
    assert again.found == raised.value.found and again.path == "log/1"


def test_overtaken_while_the_outcome_is_unknown(memory: MemoryObjectStore) -> None:
    """A late put of ours loses against another's; ours is never told as done."""
    other, mine = body("other"), body("mine")
    faulty = behind(
        memory,
        Rule("late", ops=PUT, after=10),
        Rule("overtaken", ops=PUT, data=other),
    )
    assert client(faulty).put_if_absent("log/1", mine, id_of(mine)) == Existing(id_of(other), other)
    faulty.land_late()
    assert memory.objects["log/1"].data == other


def test_replaced_after_an_unknown_outcome(memory: MemoryObjectStore) -> None:
    """Ours was put, its answer lost, and another has replaced it before we looked: nobody can tell."""
    other = body("other")

    class Acting(StepClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            memory.store("TABLE", other)

    for fate in ("lost", "refused", "late"):
        memory.store("TABLE", body("old"))
        version, mine = memory.get("TABLE", None)[1], body("mine")
        faulty = behind(memory, Rule(fate, ops=PUT))  # type: ignore[arg-type]
        with pytest.raises(Replaced) as raised:
            client(faulty, clock=Acting()).replace_if("TABLE", mine, version, id_of(mine))
        assert raised.value.unknown and raised.value.found.data == other


def test_a_read_of_ours_that_has_no_answer(memory: MemoryObjectStore) -> None:
    """The put is lost, and so is the look at what is there."""
    faulty = behind(memory, Rule("lost", ops=PUT), Rule("busy", ops=GET, times=3))
    mine = body("mine")
    assert client(faulty).put_if_absent("log/1", mine, id_of(mine)) is None
    assert memory.objects["log/1"].data == mine


def test_the_same_bytes_are_repeated(memory: MemoryObjectStore) -> None:
    """Also if the caller changes its buffer meanwhile."""
    faulty = behind(memory, Rule("refused", ops=PUT, times=2))
    mine = bytearray(body("mine"))
    before = bytes(mine)

    class Acting(StepClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            mine[20:24] = b"oops"

    assert client(faulty, clock=Acting()).put_if_absent("a", mine, id_of(before)) is None
    assert memory.objects["a"].data == before


@pytest.mark.parametrize("op", ["put", "get", "delete", "list"])
def test_the_deadline(memory: MemoryObjectStore, op: str) -> None:
    clock = StepClock()
    faulty = FaultyStore(memory, [Rule("busy", ops=frozenset({op}), times=10_000)])  # type: ignore[arg-type]
    store = client(faulty, clock=clock, deadline_s=20.0)
    mine = body()
    calls = {
        "put": lambda: store.put_if_absent("a", mine, id_of(mine)),
        "get": lambda: store.read_bytes("a", 10),
        "delete": lambda: store.delete_many(["a", "b"]),
        "list": lambda: store.entries("f"),
    }
    told = r"no answer in [\d.]+ s, asked \d+ times; .*503: slow down"
    with pytest.raises(kc.StoreUnavailable, match=told) as raised:
        calls[op]()
    assert raised.value.unknown == (op in ("put", "delete"))
    assert ("may or may not have been done" in str(raised.value)) == raised.value.unknown
    assert 14 <= sum(clock.slept) <= 20
    assert clock.slept[0] == FIRST_PAUSE_S and max(clock.slept) <= LONGEST_PAUSE_S
    assert clock.slept == sorted(clock.slept), "each pause is as long as the one before, or longer"
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value) and again.unknown == raised.value.unknown
    assert memory.counts()["repeated"] == len(clock.slept)
    # The handle goes on when the store does.
    faulty.fates.rules.clear()
    assert store.put_if_absent("a", mine, id_of(mine)) is None


def test_what_is_denied_is_not_repeated() -> None:
    class Denying(MemoryObjectStore):
        asked = 0

        def put(self, path: str, data: bytes, condition: object) -> str:
            self.asked += 1
            if self.asked == 1:
                raise kc.StoreDenied("403: ExpiredToken")
            return super().put(path, data, condition)  # type: ignore[arg-type]

    memory = Denying()
    mine = body()
    with pytest.raises(kc.StoreDenied, match=r"403: ExpiredToken$") as raised:
        client(memory).put_if_absent("a", mine, id_of(mine))
    assert not raised.value.unknown and memory.asked == 1
    memory.asked = 0
    with pytest.raises(kc.StoreDenied, match=r"403: ExpiredToken; .*may or may not") as raised:
        client(behind(memory, Rule("refused", ops=PUT))).put_if_absent("b", mine, id_of(mine))
    assert raised.value.unknown, "the first request may have been applied"


@pytest.mark.parametrize("fate", ["crash before", "crash after"])
def test_a_crash_is_for_ever(memory: MemoryObjectStore, fate: Fate) -> None:
    faulty = behind(memory, Rule(fate, ops=PUT, nth=2))
    store = client(faulty)
    store.put("a", b"1")
    with pytest.raises(SimulatedCrash):
        store.put("b", b"2")
    with pytest.raises(SimulatedCrash):
        store.read_bytes("a", 10)
    after = client(memory.clone())
    assert [each.name for each in after.entries("")] == ["a", "b"][: 1 + (fate == "crash after")]


@pytest.mark.parametrize("fate", ["short", "flip"])
def test_spoiled_reads_are_told(memory: MemoryObjectStore, fate: Fate) -> None:
    """A store that lies is not found out here, where nothing has a checksum: but of our own object it is."""
    mine = body("mine")
    faulty = behind(memory, Rule("lost", ops=PUT), Rule(fate, ops=GET))
    faulty.fates.rng = random.Random(5)
    with pytest.raises(kc.Corruption, match="not the bytes that were put"):
        assert client(faulty).put_if_absent("a", mine, id_of(mine)) is None
    # Whether it is ours was not told: where the id itself was hit, it is another's, as it must be.


# -- by chance


def _append(store: object, log: list[bytes], number: int, data: bytes) -> bool:
    """A writer's commit: whether it is told as done."""
    answer = store.put_if_absent(f"log/{number}", data, id_of(data))  # type: ignore[attr-defined]
    if answer is None:
        log.append(data)
    return answer is None


def test_two_writers_by_chance(seed: int, long: bool) -> None:
    """What was acknowledged is there, once, under every mix of fates; what is there has one owner."""
    for case in range(seed, seed + (3000 if long else 150)):
        rng = random.Random(case)
        memory = MemoryObjectStore(versions=rng.choice(["etag", "generation"]), listing="stale", seed=case)
        faulty = [FaultyStore(memory, by_chance(0.5), seed=case * 2 + n) for n in (0, 1)]
        stores = [client(each, deadline_s=600) for each in faulty]
        logs: Sequence[list[bytes]] = ([], [])
        for number in range(1, 12):
            first = rng.randrange(2)
            told = [
                _append(stores[writer], logs[writer], number, body(f"{writer} {number}"))
                for writer in (first, 1 - first)
            ]
            assert told == [True, False], f"seed {case}: the first wins, whatever became of its requests"
        there = [memory.objects[f"log/{number}"].data for number in range(1, 12)]
        assert sorted([*logs[0], *logs[1]]) == sorted(there), f"seed {case}"


def test_a_counter_by_chance(seed: int, long: bool) -> None:
    for case in range(seed, seed + (3000 if long else 150)):
        rng = random.Random(case)
        memory = MemoryObjectStore(versions=rng.choice(["etag", "generation"]))
        memory.store("n", body("0"))
        faulty = [FaultyStore(memory, by_chance(0.5), seed=case * 2 + n) for n in (0, 1)]
        stores = [client(each, deadline_s=600) for each in faulty]
        for done in range(12):
            store = stores[rng.randrange(2)]
            data, version = store.read_versioned("n", 100)
            assert data[16:].rstrip(b".") == str(done).encode(), f"seed {case}"
            made = body(str(done + 1))
            store.replace_if("n", made, version, id_of(made))
        for each in faulty:
            each.land_late()
        assert memory.objects["n"].data[16:].rstrip(b".") == b"12", f"seed {case}: late ones change nothing"
