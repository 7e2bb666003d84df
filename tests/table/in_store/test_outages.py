"""A store that refuses or does not answer for a while: calls say so, nothing is lost, and the handle goes on
when the store does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.errors import StoreDenied, StoreError
from kudu_core.objects.api import Unknown
from tests.support.clock import ManualClock
from tests.support.inside import forget
from tests.support.objects.fates import Fate, Op, Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened, rows_of, taken_over

BULK = pa.table({"k": list(range(100, 200_100)), "v": [1] * 200_000})

OUTAGES: dict[str, Callable[[], Exception]] = {
    "credentials have expired": lambda: StoreDenied("s3://bucket refuses the credentials: they have expired"),
    "the bucket is gone": lambda: StoreError("there is no bucket s3://bucket"),
    "no answer": lambda: Unknown("timed out"),
    "throttled": lambda: Unknown("503 SlowDown"),
}


class Failing:
    """Requests that fail while ``error`` is set; ``applied``: they are done all the same."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        self._inner = inner
        self.error: Callable[[], Exception] | None = None
        self.applied = False
        self.only = ""
        """The end of the names of those objects that are meant, "" for all."""

    @contextmanager
    def out(self, outage: str, applied: bool) -> Iterator[None]:
        self.error, self.applied = OUTAGES[outage], applied
        try:
            yield
        finally:
            self.error = None

    def __getattr__(self, name: str) -> object:
        real = getattr(self._inner, name)
        if name not in ("get", "get_ranges", "put", "delete", "list"):
            return real

        def asked(*arguments: object) -> object:
            if self.error is None or not str(arguments[0]).endswith(self.only):
                return real(*arguments)
            error = self.error()
            if self.applied and name == "put" and isinstance(error, Unknown):
                real(*arguments)
            raise error

        return asked


def opened_by(requests: Failing, clock: ManualClock) -> kc.Table:
    return opened(requests, "rw", clock=clock)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("outage", OUTAGES)
def test_writes_go_on_when_the_store_does(outage: str, applied: bool, clock: ManualClock) -> None:
    memory = MemoryObjectStore()
    created(memory, clock=clock).close()
    store = Failing(memory)
    table = opened_by(store, clock)
    table.upsert([{"k": 1, "v": 1}])
    with store.out(outage, applied):
        with pytest.raises(StoreError, match="may or may not be there") as told:
            table.upsert([{"k": 2, "v": 2}])
        assert told.value.unknown
        assert table.get(1) == {"k": 1, "v": 1}, "what is in memory is still read"
        with pytest.raises(StoreError):
            table.flush()
        with pytest.raises(StoreError):
            opened(store, clock=clock)  # type: ignore[arg-type]
    table.upsert([{"k": 3, "v": 3}])
    assert rows_of(table) == {1: 1, 2: 2, 3: 3}, "the call that was told was put with the next"
    table.flush()
    with opened(memory) as reader:
        assert rows_of(reader) == {1: 1, 2: 2, 3: 3}
    table.close()
    with opened(memory, "rw", clock=clock) as table:
        assert rows_of(table) == {1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("outage", OUTAGES)
def test_loads_fail_whole_or_stop_the_handle(outage: str, applied: bool, clock: ManualClock) -> None:
    """A bulk load whose files cannot be put changes nothing; one whose record may be there ends writing."""
    memory = MemoryObjectStore()
    created(memory, clock=clock).close()
    store = Failing(memory)
    table = opened_by(store, clock)
    table.upsert([{"k": 1, "v": 1}])
    with store.out(outage, applied), pytest.raises(StoreError):
        table.insert(BULK)
    table.insert(BULK)
    assert table.count() == 200_001
    table.close()
    with opened(memory, "rw", clock=clock) as table:
        assert table.count() == 200_001


@pytest.mark.parametrize("outage", OUTAGES)
def test_an_alter_that_is_not_answered_stops_the_handle_and_loses_nothing(
    outage: str, clock: ManualClock
) -> None:
    memory = MemoryObjectStore()
    created(memory, clock=clock).close()
    store = Failing(memory)
    table = opened_by(store, clock)
    table.upsert([{"k": 1, "v": 1}])
    with store.out(outage, True), pytest.raises(StoreError):
        table.alter(add=[kc.Column("n", "int64", nullable=True)])
    with pytest.raises(kc.Poisoned, match="reopen the table"):
        table.upsert([{"k": 2, "v": 2}])
    assert table.get(1) is not None
    table.close()
    again = taken_over(memory)
    assert again.get(1)["v"] == 1  # type: ignore[index]
    again.close()


@pytest.mark.parametrize("outage", OUTAGES)
def test_a_close_without_the_store_says_so_and_lets_go(outage: str, clock: ManualClock) -> None:
    memory = MemoryObjectStore()
    created(memory, clock=clock).close()
    store = Failing(memory)
    table = opened_by(store, clock)
    table.upsert([{"k": 1, "v": 1}])
    with store.out(outage, False), pytest.raises(StoreError):
        table.close()
    with pytest.raises(kc.Closed):
        table.get(1)
    again = opened(memory, "rw", clock=clock)  # LEASE does not say so, but this process knows
    assert rows_of(again) == {1: 1}
    again.close()
    forget(table)


@pytest.mark.parametrize("fate", ["lost", "late"])
def test_an_open_without_an_answer_for_its_lease_does_not_lock_out_the_next(
    fate: Fate, clock: ManualClock
) -> None:
    memory = MemoryObjectStore()
    created(memory, clock=clock).close()
    puts: frozenset[Op] = frozenset({"put"})
    first = Rule(fate, ops=puts, path_glob="LEASE", after=10**6)
    others = Rule("refused", ops=puts, path_glob="LEASE", probability=1.0)
    faulty = FaultyStore(memory, [first, others])
    with pytest.raises(kc.StoreUnavailable):
        opened(faulty, "rw", clock=clock)
    assert first.fired and faulty.land_late() == (fate == "late")
    with opened(memory, "rw", clock=clock) as table, pytest.raises(kc.Locked):
        table.upsert([{"k": 1, "v": 1}])
        opened(memory, "rw", clock=clock)


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_store_that_fails_under_a_replay_is_no_fault_of_the_record(
    outage: str, mode: str, clock: ManualClock
) -> None:
    """A record is looked up in files: where these cannot be read, nothing is left out, and nothing is told
    to be damaged."""
    memory = MemoryObjectStore()
    with created(memory, clock=clock) as table:
        table.upsert([{"k": n, "v": n} for n in range(1000)])
        table.flush()
        table.upsert([{"k": 5, "v": 55}])
        failing = Failing(memory)
        reader = opened(failing, clock=clock)  # type: ignore[arg-type]
        table.insert([{"k": 2000, "v": 1}])
        table.flush()
        table.upsert([{"k": 2000, "v": 2}])
        failing.only = ".rows"
        with failing.out(outage, False), pytest.raises(StoreError):
            reader.refresh()
        assert reader.get(5) == {"k": 5, "v": 55}
        reader.refresh()
        assert reader.get(2000) == {"k": 2000, "v": 2}
        reader.close()
    with failing.out(outage, False), pytest.raises(StoreError):
        opened(failing, mode, clock=clock)  # type: ignore[arg-type]
    with opened(failing, mode, clock=clock) as again:  # type: ignore[arg-type]
        assert again.get(2000) == {"k": 2000, "v": 2}
