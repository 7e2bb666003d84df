"""Which tablets one key may have been in, one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kudu_core.tablet.store.tablet import Tablet


def sharing_keys(tablets: Iterable[Tablet], since: int, until: int) -> list[list[Tablet]]:
    """Tablets that are there in ``(since, until]``, those together of which one key may have been in several.

    An overwrite puts one tablet of a partition after another.  Where a partition begins or ends in the
    window, because its range was added or dropped, its keys may have been in those of the same buckets.
    """
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


__all__ = ["sharing_keys"]
