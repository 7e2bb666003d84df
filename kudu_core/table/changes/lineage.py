"""Which tablets one key may have been in, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kudu_core.table.changes.change_blocks import Store, WindowStore
from kudu_core.table.opened.tablets import NEWEST

if TYPE_CHECKING:
    from kudu_core.tablet.store.tablet import Tablet
    from kudu_core.tablet.view.view import KeyBatch


def sharing_keys(
    tablets: Iterable[Tablet], since: int, until: int, switches: Iterable[int]
) -> list[list[Tablet]]:
    """Tablets that are there in ``(since, until]``, those together of which one key may have been in several.

    An overwrite puts one tablet of a partition after another.  Where a partition begins or ends in the
    window, because its range was added or dropped, its keys may have been in those of the same buckets.
    Where the table got other partitions, at ``switches``, that is any of them.
    """
    if any(since < ts <= until for ts in switches):
        return [list(tablets)]
    by_partition: dict[int, dict[int, Tablet]] = {}
    for tablet in tablets:
        by_partition.setdefault(tablet.partition.ordinal, {})[tablet.id] = tablet
    groups: dict[Any, list[Tablet]] = {}
    for ordinal, mine in by_partition.items():
        created = min(tablet.created_ts for tablet in mine.values())
        dropped = [tablet.dropped_ts for tablet in mine.values()]
        stays = created <= since and any(ts is None or ts > until for ts in dropped)
        [first, *_] = mine.values()
        groups.setdefault(ordinal if stays else first.partition.buckets, []).extend(mine.values())
    return list(groups.values())


def in_window(
    tablet: Tablet,
    stores: Iterable[tuple[Store, KeyBatch | None]],
    since: int,
    until: int,
    switches: Collection[int],
) -> Iterator[tuple[WindowStore, KeyBatch | None]]:
    """Stores of a tablet, each with what is asked of it, as a window of time has them.

    ``switches``: when the table got other partitions.
    """
    ended = tablet.dropped_ts
    dropped_ts = ended if ended is not None and since < ended <= until and ended not in switches else None
    first = tablet.created_ts if tablet.created_ts in switches else 0
    last = ended - 1 if ended is not None and ended in switches else NEWEST
    era = sum(ts <= tablet.created_ts for ts in switches)
    for store, keys in stores:
        yield WindowStore(store, dropped_ts, None, first, last, era), keys


def switches_of(parts: Iterable[WindowStore], since: int, until: int) -> set[int]:
    """When, in a window of time, the table got other partitions, as far as these stores tell."""
    found = {ts for part in parts for ts in (part.since, part.until + 1)}
    return {ts for ts in found if since < ts <= until}


__all__ = ["in_window", "sharing_keys", "switches_of"]
