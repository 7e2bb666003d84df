"""``Table.tag`` and ``untag``: names of times whose history is kept for ever.

A tag is in TABLE, and every writer pins the times of all tags (``Pins.keep``).  So no writer raises the floor
above the oldest one (protocol H2), and what a snapshot there needs stays, with all that came after it.  A
time is pinned before its tag is in TABLE, and let go of when that is no longer there.

In an object store a record that says nothing follows: by it readers look at TABLE again (protocol B9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.locks import HeldLocks
from kudu_core.errors import InvalidArgument, NotSupported, SnapshotTooOld, shown
from kudu_core.table.lifecycle.alter import log_and_apply
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.table.stored.alteration import Alteration
from kudu_core.table.stored.tags import MAX_TAGS, check_tag

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.stored.table_state import TableState


def tag(engine: Engine, name: Any, at: Any) -> int:
    """Give a time a name, durably; the time."""
    while True:
        try:
            return _tag(engine, check_tag(name), at)
        except SnapshotTooOld:
            if at is not None:
                raise
            # Others have written since the look, and history was dropped up to there.


def _tag(engine: Engine, name: str, at: Any) -> int:
    with engine.altering:
        engine.check_writable()
        moment = _moment(engine, at)
        known = engine.table_file.state.tags
        if known.get(name) == moment:
            return moment
        if name in known:
            raise InvalidArgument(f"there is a tag {name!r}, of {known[name]}; untag it before")
        if len(known) >= MAX_TAGS:
            raise NotSupported(f"the table has {len(known):,} tags, as many as there may be; untag some")
        with engine.pins.pin(moment):
            engine.log.wait_durable(moment)
            engine.wait_visible(moment)
            # Before the tag is anywhere, and also where that fails: it may be there all the same.
            engine.pins.keep({*known.values(), moment})
            _install(engine, {**known, name: moment})
    return moment


def untag(engine: Engine, name: Any) -> int:
    """Take a tag away, durably; the time that it was of."""
    with engine.altering:
        engine.check_writable()
        known = dict(engine.table_file.state.tags)
        if name not in known:
            raise no_tag(name, known)
        moment = known.pop(name)
        _install(engine, known)
        engine.pins.keep(known.values())
    return moment


def no_tag(name: Any, known: Mapping[str, int]) -> InvalidArgument:
    """What is said of a name that no tag has."""
    some = ", ".join(map(repr, sorted(known)[:5])) or "none"
    more = f" and {len(known) - 5:,} more" if len(known) > 5 else ""
    return InvalidArgument(f"there is no tag {shown(name)}; there is {some}{more}")


def _moment(engine: Engine, at: Any) -> int:
    """The newest record that is in a snapshot: later ones have later times, whatever the clock says."""
    last = max(engine.log.cut(), engine.oldest_ts)
    return last if at is None else min(last, snapshot_timestamp(engine, at))


def _install(engine: Engine, tags: Mapping[str, int]) -> None:
    def after(state: TableState) -> TableState:
        return replace(state, tags=dict(tags))

    engine.table_file.keep(after)
    if engine.in_store:
        with HeldLocks([tablet.mutex for tablet in engine.tablets]):
            log_and_apply(engine, Alteration(None, None), (), engine.schema, engine.partitions)


__all__ = ["no_tag", "tag", "untag"]
