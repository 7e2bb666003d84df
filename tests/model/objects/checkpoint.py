"""Checkpoints and deletion (protocol B8, B12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.objects.client import Steps

if TYPE_CHECKING:
    from tests.model.objects.store import Name
    from tests.model.objects.writer import Writer


def checkpoint(writer: Writer, clean_end: bool = False) -> Steps:
    state, seen = writer.state, writer.table
    first = state.next
    if writer.rules.first_covers_memory:
        first = min([first, *(row[2] for tablet in state.tablets for row in tablet.memory)])
    yield from mark_jobs(writer, first)
    names: list[Name | None] = []
    for number, tablet in enumerate(state.tablets):
        known = seen.snapshots[number] if number < len(seen.snapshots) else None
        if tablet.edit != writer.snapshot_edits.get(known, 0):
            known = "tablets", number, writer.epoch, writer.world.number(), "manifest"
            yield from writer.ask(writer.store.put, known, tablet.snapshot())
            writer.snapshot_edits[known] = tablet.edit
        names.append(known)
    if not writer.rules.boundary_first:
        for n in range(seen.log_first, first):
            yield from writer.ask(writer.store.delete, ("log", n))
    table = seen._replace(
        log_first=first,
        through=state.last_ts,
        log_prev=state.ids[first - 1],
        snapshots=tuple(names),
        tokens=tuple(state.tokens.items()) if writer.rules.tokens_in_table else (),
        version=state.version,
        clean_end=state.next if clean_end else 0,
        put_id=writer.put_id(),
    )
    yield from writer.replace_table(table, seen)
    writer.table = table
    writer.say("checkpoint", first, clean_end)
    retire(writer, *(name for name in seen.snapshots if name is not None and name not in names))
    for n in range(seen.log_first, first):
        fence = n in state.fences and writer.rules.keep_fences
        retire(writer, ("log", n), grace=writer.world.environment.kept if fence else None)
    state.jobs = {job: verdict for job, verdict in state.jobs.items() if verdict[1] >= first}
    writer.world.count("checkpoint")


def mark_jobs(writer: Writer, first: int) -> Steps:
    """Protocol B8: what the log says of jobs is said by COMMITTED before the log forgets it."""
    if writer.rules.mark_before_forgetting:
        for job, (verdict, n) in list(writer.state.jobs.items()):
            if n < first:
                yield from writer.ask(writer.store.put, ("staging", job, "COMMITTED"), verdict)


def retire(writer: Writer, *names: Name, grace: int | None = None) -> None:
    """They may be deleted when the grace is over."""
    if grace is None:
        grace = writer.world.environment.grace if writer.rules.grace else 0
    due = writer.store.now + grace
    writer.retired += [(due, name) for name in names]


def delete_due(writer: Writer) -> Steps:
    now = writer.store.now
    due = [name for time, name in writer.retired if time <= now]
    writer.retired = [entry for entry in writer.retired if entry[0] > now]
    for name in due:
        yield from writer.ask(writer.store.delete, name)
        writer.world.count("deleted")
