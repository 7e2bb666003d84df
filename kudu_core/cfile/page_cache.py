"""The page cache: pages as stored, checked (and decompressed, where they had a codec) when they enter.

Keyed by file and page offset, evicted least recently used first, bounded by bytes.  It knows
nothing of what a page holds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

# Roughly what a page costs beyond its bytes: key tuple, view, entry.
_ENTRY_BYTES = 256


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counters since the cache was made, and what it holds now."""

    hits: int
    misses: int
    pages: int
    bytes: int
    limit_bytes: int


class Holder(Protocol):
    """Who keeps pages of a file beside the cache, as long as the cache does."""

    @property
    def closed(self) -> bool:
        """Whether it holds nothing and never will."""
        ...

    def forget(self, place: Any) -> bool:
        """Let go of the page at that offset and say True; False: it was used since the last time.

        Called under the cache's mutex: takes no lock.
        """
        ...


class PageCache:
    """Shared by all files of a table.  Thread safe: one mutex, held for dictionary steps only.

    A file is *attached* by each of its readers; when the last one detaches, its pages go.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._mutex = threading.Lock()  # guards everything below; no lock is taken under it
        self._pages: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._tokens: dict[bytes, int] = {}
        self._files: dict[int, tuple[bytes, int, set[int]]] = {}  # token: file id, readers, offsets
        self._holders: dict[int, tuple[Holder, ...]] = {}
        self._next_token = 0
        self._bytes = 0
        self._hits = 0
        self._misses = 0

    def attach(self, file_id: bytes) -> int:
        """Register a reader of the file; return the token its pages are keyed by."""
        with self._mutex:
            token = self._tokens.get(file_id)
            if token is None:
                token = self._next_token
                self._next_token += 1
                self._tokens[file_id] = token
                self._files[token] = (file_id, 1, set())
            else:
                _, readers, offsets = self._files[token]
                self._files[token] = (file_id, readers + 1, offsets)
            return token

    def detach(self, token: int, holders: Sequence[Holder] = ()) -> None:
        """Undo one ``attach``; the last one drops the file's pages.  ``holders``: that reader's own."""
        with self._mutex:
            file_id, readers, offsets = self._files[token]
            if holders and token in self._holders:
                mine = set(map(id, holders))
                self._holders[token] = tuple(h for h in self._holders[token] if id(h) not in mine)
            if readers > 1:
                self._files[token] = (file_id, readers - 1, offsets)
                return
            del self._files[token], self._tokens[file_id]
            self._holders.pop(token, None)
            for offset in offsets:
                self._bytes -= len(self._pages.pop((token, offset))) + _ENTRY_BYTES

    def watch(self, token: int, holder: Holder) -> bool:
        """Ask ``holder`` too before a page of the file is dropped; False where the file is closed."""
        with self._mutex:
            if token not in self._files:
                return False
            others = tuple(other for other in self._holders.get(token, ()) if not other.closed)
            self._holders[token] = (*others, holder)
            return True

    def get_many(self, token: int, offsets: Sequence[int]) -> list[Any]:
        """The pages at ``offsets``, None where missing; each found one becomes the most recent."""
        found: list[Any] = []
        pages = self._pages
        with self._mutex:
            for offset in offsets:
                key = (token, offset)
                page = pages.get(key)
                if page is None:
                    self._misses += 1
                else:
                    self._hits += 1
                    pages.move_to_end(key)
                found.append(page)
        return found

    def put(self, token: int, offset: int, page: Any) -> None:
        """Add a page; it may push out others, or be too large to be kept."""
        size = len(page) + _ENTRY_BYTES
        if size > self.limit_bytes // 4:
            return
        key = (token, offset)
        with self._mutex:
            file = self._files.get(token)
            if file is None or key in self._pages:  # closed meanwhile, or read twice at once
                return
            self._pages[key] = page
            file[2].add(offset)
            self._bytes += size
            while self._bytes > self.limit_bytes:
                (old_token, old_offset), old = self._pages.popitem(last=False)
                asked = [holder.forget(old_offset) for holder in self._holders.get(old_token, ())]
                if not all(asked):
                    self._pages[old_token, old_offset] = old  # used without the cache's knowledge
                    continue
                self._files[old_token][2].discard(old_offset)
                self._bytes -= len(old) + _ENTRY_BYTES

    def statistics(self) -> CacheStatistics:
        with self._mutex:
            return CacheStatistics(self._hits, self._misses, len(self._pages), self._bytes, self.limit_bytes)
