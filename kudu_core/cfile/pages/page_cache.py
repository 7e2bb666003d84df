"""The page cache: pages as stored, checked (and decompressed, where they had a codec) when they enter.

Keyed by file and page offset, bounded by bytes.  It knows nothing of what a page holds.

Pages come into a queue of *new* ones; a page that is used again is *kept* when its turn to go comes, the
others go.  So a scan of everything, which touches each page once, drives out new pages and none that was
used twice.  Of kept pages the one goes that came first and was not used since.  A page that is read again
soon after it went is kept at once: of those that went lately, names are remembered, no more than there are
pages.  (The scheme of S3-FIFO; Yang et al., SOSP 2023.)

Where pages of text are read for single cells (``_ext.row.column``), one that would push out another is not
put before it was asked for four times while its name was remembered: to read one cell of it takes half of
the time, and most pages of a table that is larger than the cache would go before they are asked for again.
While the cache has room it is put when it is asked for twice; and at once where all files fit, where it is a
single cell, or where many rows are asked for in one call.

A page larger than a quarter of the limit is not kept at all.  New pages have a fifth of the limit for
themselves when kept pages would fill it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from kudu_core._ext.files.cached_pages import CachedPages, Reader


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counters since the cache was made, and what it holds now."""

    hits: int
    misses: int
    evicted: int
    pages: int
    bytes: int
    kept_bytes: int
    """Of pages that were used again."""
    limit_bytes: int


class Holder(Protocol):
    """Who keeps pages of a file beside the cache, as long as the cache does."""

    @property
    def closed(self) -> bool:
        """Whether it holds nothing and never will."""
        ...

    def forget(self, place: Any) -> bool:
        """Let go of the page at that offset and say True; False: it was used since the last time.

        Called in the middle of a step of the cache, which may be asked itself meanwhile; what this raises
        ends the step.
        """
        ...


class PageCache(CachedPages):
    """Shared by all files of a table.  Thread safe, without a lock: ``_ext/files/cached_pages.pyx`` says how.

    A file is *attached* by each of its readers; when the last one detaches, its pages go.
    """

    __slots__ = ()

    def statistics(self) -> CacheStatistics:
        return CacheStatistics(*self.counts())


__all__ = ["CacheStatistics", "Holder", "PageCache", "Reader"]
