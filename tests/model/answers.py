"""What callers are told, and when: no crash may take back what an answer rests on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.model.protocol import Writer
    from tests.model.stores import Tablet


def refuse(writer: Writer, tablets: Iterable[Tablet]) -> None:
    """Protocol W4: what changes nothing rests on the newest record that was applied to its tablets."""
    touched = {tablet.id for tablet in tablets}
    rests_on = max((r.ts for r in writer.retained if touched & r.parts.keys()), default=0)
    if writer.rules.refusal_waits:
        writer.tickets.append(rests_on)
    elif not writer.stale:
        writer.oracle.promise(rests_on)


def rest(writer: Writer, ts: int) -> None:
    """Protocol W1, W9: a repetition is answered when what it repeats is durable."""
    writer.tickets.append(ts)


def ask(writer: Writer) -> None:
    """Protocol W7, W9: each call that is without an answer is asked for it.

    After every step, so what is answered a moment too early is seen to be.
    """
    reached = writer.committed_ts if writer.rules.ticket_done == "visible" else writer.applied_ts
    for ts in writer.tickets:
        if ts <= reached:
            writer.oracle.promise(ts)
    writer.tickets = [ts for ts in writer.tickets if ts > reached]
