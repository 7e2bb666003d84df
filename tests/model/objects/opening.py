"""Opening for writing (protocol B4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.objects.client import Steps, Unknown
from tests.model.objects.records import TABLE, LogObject, State, Table
from tests.model.objects.rules import Corruption, Fenced, Gone
from tests.model.objects.store import Missing

if TYPE_CHECKING:
    from tests.model.objects.writer import Writer


def open_table(writer: Writer) -> Steps:
    """Raises Fenced, or Corruption where a table without another writer cannot be read."""
    seen: Table = yield from writer.get(*TABLE)
    writer.epoch = seen.epoch + 1
    try:
        if not writer.rules.epoch_before_log:
            writer.state = yield from read(writer, seen)
        table = seen._replace(epoch=writer.epoch, clean_end=0, put_id=writer.put_id())
        yield from writer.replace_table(table, seen)
        writer.table = table
        if writer.rules.epoch_before_log:
            writer.state = yield from read(writer, table)
        if writer.rules.stop_at_later_epoch and writer.state.epoch > writer.epoch:
            raise Fenced("the log has objects of a later epoch")
        if writer.rules.fence:
            yield from put_fence(writer)
    except (Gone, Missing, Corruption) as error:
        yield from writer.refuse(error, writer.table)
    writer.proof = writer.store.now
    if writer.rules.verify_after_fence:
        now = yield from writer.get(*TABLE)
        if now.epoch != writer.epoch:
            raise Fenced("a later epoch while opening")
    writer.say("open", writer.epoch, writer.state.next, writer.table.log_first)


def read(writer: Writer, table: Table) -> Steps:
    snapshots = yield from writer.snapshots(table)
    writer.snapshot_edits = {
        name: snapshot.edit for name, snapshot in zip(table.snapshots, snapshots, strict=True) if snapshot
    }
    state = State(table, snapshots, writer.rules)
    yield from writer.read_log(state)
    writer.world.stall(0.2)
    return state


def put_fence(writer: Writer) -> Steps:
    state = writer.state
    while True:
        fence = LogObject(state.next, writer.epoch, writer.put_id(), state.last_id, ())
        try:
            have = yield from writer.put_log(fence)
        except Unknown:
            continue
        state.apply(have or fence)
        if have is None:
            return
        if have.epoch >= writer.epoch:
            raise Fenced("a later fence")
