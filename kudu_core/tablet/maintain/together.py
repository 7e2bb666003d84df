"""Work on many small tablets at once, so that their fsyncs are waited for together.

A flush or compaction of a small tablet computes for a millisecond or two and waits for the disk three times
or more.  A disk, or the journal of its file system, makes eight files durable in little more than the time
of one, if it is asked for them at one time.  Each tablet goes the steps of its own work, in their order;
which of two tablets is first was never promised, so no rule of docs/protocol.md speaks of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kudu_core.common.run.clock import timed
from kudu_core.common.run.pool import Pool
from kudu_core.errors import Closed, Fenced, Poisoned
from kudu_core.tablet.store.tablet import Tablet

TABLETS_AT_ONCE = 8
"""At most, and as many only where the disk is slow: the work beside the waits is one at a time, and what does
not wait hands the interpreter's lock from core to core.  Of 256 tablets on a disk with fsyncs of 0.3 ms, a
compaction took 2.6 s with two threads, 3.5 with eight, and as long with two as with one."""

SMALL_BYTES = 1 << 20
"""Of memory that the work on one tablet turns over.  A larger one is worked on alone: it waits for the disk
for a small part of its time, and eight of them would hold eight times the memory."""


def for_each_tablet(
    tablets: Sequence[Tablet],
    work: Callable[[Tablet], None],
    *,
    size_bytes: Callable[[Tablet], int],
    after_each: Callable[[], None] = lambda: None,
) -> None:
    """``work`` of each tablet, of small ones on several threads; ``after_each`` on this one alone.

    A tablet whose work fails holds up no other; what it raised is raised when the others are done.

    Raises
    ------
    Poisoned, Fenced, Closed
        Nothing is written any more: what has not begun never does.
    Exception
        The first that was raised; those of other tablets are its notes.
    """
    errors: list[Exception] = []
    ends: list[Exception] = []
    """What says that nothing is written any more."""

    def attempt(tablet: Tablet) -> None:
        if ends:
            return
        try:
            work(tablet)
        except (Poisoned, Fenced, Closed) as error:
            ends.append(error)
        except Exception as error:  # noqa: BLE001  raised below, when the others are done
            errors.append(error)

    small = [tablet for tablet in tablets if size_bytes(tablet) <= SMALL_BYTES]
    if len(small) > 1:
        threads, begun = first_alone(attempt, small)
        if begun:
            after_each()
        left = small[begun:]
        with Pool(min(threads, len(left)), "kudu-core-together") as pool:
            for _ in pool.map(attempt, left):
                after_each()
        alone = [tablet for tablet in tablets if tablet not in small]
    else:
        alone = list(tablets)
    for tablet in alone:
        attempt(tablet)
        after_each()
    if not errors and not ends:
        return
    # The reason first: a failed fsync poisons, and is what the other tablets then find.
    first, *others = errors + ends
    for other in others:
        first.add_note(f"and of another tablet: {other!r:.200}")
    try:
        raise first
    finally:  # a traceback that holds this frame is not to hold itself
        errors.clear()
        ends.clear()
        del first, others


def first_alone(work: Callable[[Tablet], None], tablets: Sequence[Tablet]) -> tuple[int, int]:
    """Do the work of the first tablet; (threads for the others, tablets whose work is done).

    One thread computes, and others for as many times as the first tablet waited longer than it computed.
    """
    elapsed_s, computed_s = timed(lambda: work(tablets[0]))
    return min(TABLETS_AT_ONCE, 1 + max(1, round(elapsed_s / max(computed_s, 1e-6)))), 1


__all__ = ["SMALL_BYTES", "TABLETS_AT_ONCE", "first_alone", "for_each_tablet"]
