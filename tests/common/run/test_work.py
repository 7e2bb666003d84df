"""A long work tells how far it is, in order, and ends when it is asked to."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterator

import pytest

import kudu_core as kc
from kudu_core.common.run.measure import work as works
from kudu_core.common.run.measure.work import LongWork, counted_here, load_of, under_way
from kudu_core.events import Event, Progress, Started, WorkEvent


@pytest.fixture
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "PROGRESS_S", -1.0)


def names(told: list[WorkEvent]) -> list[str]:
    return [type(event).__name__ for event in told]


@pytest.mark.usefixtures("at_every_step")
def test_it_is_told_in_order() -> None:
    told: list[WorkEvent] = []
    with LongWork("backup", told.append, total=5) as work:
        work.begin("writing", 5)
        work.advance(2)
        work.advance(3)
    assert names(told) == ["Started", "Progress", "Progress", "Ended"]
    assert [(e.phase, e.done, e.total, e.unit) for e in told] == [
        ("", 0, 5, "rows"), ("writing", 2, 5, "rows"), ("writing", 5, 5, "rows"), ("writing", 5, 5, "rows"),
    ]  # fmt: skip
    assert len({e.work_id for e in told}) == 1 and told[0].parent_id is None
    assert all(e.error is None for e in told)
    assert [e.elapsed_s for e in told] == sorted(e.elapsed_s for e in told)
    assert told[1].rate > 0


def test_progress_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[WorkEvent] = []
    now_s = [100.0]
    monkeypatch.setattr(works, "_now_s", lambda: now_s[0])
    with LongWork("verify", told.append) as work:
        for _ in range(1000):
            now_s[0] += 0.001
            work.advance(1)
    assert 8 <= names(told).count("Progress") <= 10, "a second, ten times a second at most"
    assert told[-1].rate == pytest.approx(1000)


def test_one_that_fails_says_why() -> None:
    told: list[WorkEvent] = []
    with pytest.raises(ZeroDivisionError), LongWork("verify", told.append):
        _ = 1 / 0
    assert names(told) == ["Started", "Ended"]
    assert told[-1].error == "ZeroDivisionError('division by zero')"
    assert under_way() is None


@pytest.mark.usefixtures("at_every_step")
@pytest.mark.parametrize("kind", [Started, Progress])
def test_whoever_is_told_may_cancel(kind: type[WorkEvent]) -> None:
    told: list[WorkEvent] = []

    def listener(event: Event) -> None:
        assert isinstance(event, WorkEvent)
        told.append(event)
        if type(event) is kind:
            event.cancel()

    done = 0
    with pytest.raises(kc.Cancelled, match="the backup was cancelled"), LongWork("backup", listener) as work:
        for _ in range(3):
            work.advance(1)
            done += 1
    assert done == 0
    assert names(told)[-1] == "Ended" and "Cancelled" in str(told[-1].error)
    assert isinstance(kc.Cancelled("x"), kc.KuduError)


def test_what_is_done_cannot_be_cancelled() -> None:
    with LongWork("backup", lambda event: event.cancel() if isinstance(event, Started) else None) as work:
        work.count(1)


def test_a_part_ends_with_the_whole() -> None:
    with LongWork("compact", None) as whole, LongWork("merge", None) as part:
        part.check()
        whole.cancel()
        with pytest.raises(kc.Cancelled, match="the compact"):
            part.check()


@pytest.mark.usefixtures("at_every_step")
def test_a_part_counts_for_the_whole() -> None:
    told: list[WorkEvent] = []
    with LongWork("compact", told.append, total=10) as whole:
        with LongWork("merge", None) as part:
            part.advance(4)
        whole.reach(5)
        whole.reach(5)
    assert [e.done for e in told] == [0, 4, 10]
    with LongWork("repair", told.append), LongWork("verify", None, unit="bytes") as other:
        other.advance(4)
    assert told[-1].done == 0, "bytes are no rows"
    assert part.parent is whole and whole.parent is None


@pytest.mark.parametrize("wrong", [1, "yes", object()])
def test_progress_that_nobody_can_be(wrong: object) -> None:
    with pytest.raises(kc.InvalidArgument, match="progress is True, or called"):
        LongWork("backup", None, progress=wrong)


@pytest.mark.usefixtures("at_every_step")
def test_who_shows_progress_and_raises_hurts_nothing(caplog: pytest.LogCaptureFixture) -> None:
    told: list[WorkEvent] = []

    def broken(event: WorkEvent) -> None:
        told.append(event)
        raise RuntimeError("the bar is broken")

    with caplog.at_level(logging.ERROR, "kudu_core"), LongWork("backup", None, progress=broken) as work:
        work.advance(1)
    assert names(told) == ["Started", "Progress", "Ended"]
    assert len(caplog.records) == 3


@pytest.mark.usefixtures("at_every_step")
def test_what_a_listener_does_is_no_part_of_the_work() -> None:
    seen: list[object] = []
    with LongWork("ingest", lambda _: seen.append(under_way())) as work:
        assert under_way() is work
        with load_of(lambda _: None) as joined:
            assert joined is work
        work.advance(1)
    assert seen == [None, None, None]
    with LongWork("compact", None), load_of(lambda _: None) as own:
        assert own.operation == "ingest" and own is under_way()
    assert under_way() is None


def test_a_work_whose_end_was_cut_short_is_forgotten() -> None:
    """An interrupt may come before ``__exit__`` has done anything."""
    works_ = [LongWork("ingest", None)]
    works_[0].__enter__()
    works_[0].cancel()
    assert under_way() is works_[0]
    works_.clear()
    assert under_way() is None
    with load_of(lambda _: None) as load:
        load.check()


def test_threads_that_help() -> None:
    """Each knows nothing of the work but what it is given; their counts add up and go down for nobody."""
    told: list[WorkEvent] = []
    with LongWork("compact", told.append) as work:

        def help_() -> None:
            assert under_way() is None
            for _ in range(500):
                work.on_this_thread(lambda: list(counted_here(iter([1]), lambda n: n)))
            assert under_way() is None

        threads = [threading.Thread(target=help_) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told[-1].done == 4000
    assert [e.done for e in told] == sorted(e.done for e in told)
    assert list(counted_here(iter([1, 2]), lambda n: n)) == [1, 2], "with nothing under way"


@pytest.mark.usefixtures("at_every_step")
def test_one_event_at_a_time() -> None:
    """A listener that is slow is not told by two threads at once, so what it hears does not go back."""
    inside = [0]
    told: list[int] = []

    def listener(event: Event) -> None:
        if isinstance(event, Progress):
            inside[0] += 1
            assert inside[0] == 1
            told.append(event.done)
            inside[0] -= 1

    with LongWork("compact", listener) as work:
        threads = [
            threading.Thread(target=lambda: [work.advance(1) for _ in range(300)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told == sorted(told) and told


def test_events_travel_without_the_work() -> None:
    told: list[WorkEvent] = []
    with LongWork("backup", told.append, total=3):
        pass
    for event in told:
        again = pickle.loads(pickle.dumps(event))
        assert again == event and again.token is None
        again.cancel()
        assert "token" not in repr(event)


@pytest.mark.usefixtures("at_every_step")
def test_things_are_counted_when_the_next_is_asked_for() -> None:
    told: list[WorkEvent] = []
    with LongWork("backup", told.append) as work:
        things: Iterator[int] = work.over(iter([5, 7]), lambda n: n)
        next(things)
        assert names(told) == ["Started"]
        next(things)
        assert told[-1].done == 5
        assert list(things) == [] and told[-1].done == 12
