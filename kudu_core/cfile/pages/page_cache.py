"""The page cache: pages as stored, checked (and decompressed, where they had a codec) when they enter.

Keyed by file and page offset, bounded by bytes.  It knows nothing of what a page holds.

Pages come into a queue of *new* ones; a page that is used again is *kept* when its turn to go comes, the
others go.  So a scan of everything, which touches each page once, drives out new pages and none that was
used twice.  Of kept pages the one goes that came first and was not used since.  A page that is read again
soon after it went is kept at once: of those that went lately, names are remembered.  (The scheme of S3-FIFO;
Yang et al., SOSP 2023.)
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from weakref import ref

from kudu_core.common.run.locks import Claim, mutex

NEW_FRACTION = 0.2
"""Of the limit that new pages have for themselves when kept pages would fill it."""

# Roughly what a page costs beyond its bytes: key tuple, view, entry.
_ENTRY_BYTES = 256

Key = tuple[int, int]
"""Token of the file, offset of the page."""


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

        Called under the cache's mutex: takes no lock.
        """
        ...


class Reader:
    """A reader of a file, counted as long as this object lives, or until ``PageCache.detach``.

    The claim, which is compiled, says that it leaves: no interrupt comes between.
    """

    __slots__ = ("__weakref__", "claim", "holders", "token")

    def __init__(self, token: int, claim: Claim) -> None:
        self.token = token
        """By which the pages of its file are found."""
        self.claim = claim
        self.holders: tuple[Holder, ...] = ()
        """Those who watch the cache on this reader's account."""


@dataclass(slots=True)
class _CachedFile:
    """A file that somebody reads."""

    file_id: bytes
    readers: dict[int, ref[Reader]] = field(default_factory=dict)
    offsets: set[int] = field(default_factory=set)
    """Of its pages that the cache has."""


class PageCache:
    """Shared by all files of a table.  Thread safe: one mutex, held for dictionary steps only.

    A file is *attached* by each of its readers; when the last one detaches, its pages go.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._mutex = mutex()  # guards everything below; no lock is taken under it
        self._new: OrderedDict[Key, Any] = OrderedDict()
        self._kept: OrderedDict[Key, Any] = OrderedDict()
        self._used: set[Key] = set()
        """Pages that were asked for since they came, or since their turn to go last came."""
        self._gone: OrderedDict[Key, None] = OrderedDict()
        """Names of new pages that went, the last one last; no more than there are pages."""
        self._tokens: dict[bytes, int] = {}
        self._files: dict[int, _CachedFile] = {}
        self._leaving: deque[tuple[int, int]] = deque()
        """Readers, by token and number, that have left and are still counted."""
        self._next_number = 0
        self._bytes = 0
        self._kept_bytes = 0
        self._hits = 0
        self._misses = 0
        self._evicted = 0

    def _damaged(self) -> None:
        """An interrupt has cut a step in two: forget every page, rather than count some for ever."""
        nothing: tuple[OrderedDict[Key, Any], ...] = (OrderedDict(), OrderedDict(), OrderedDict())
        self._new, self._kept, self._gone = nothing
        self._bytes = self._kept_bytes = 0
        self._used.clear()
        for file in self._files.values():
            file.offsets.clear()

    def attach(self, file_id: bytes) -> Reader:
        """Register a reader of the file."""
        with self._mutex:
            self._see_off()
            number = self._next_number
            self._next_number += 1
            token = self._tokens.get(file_id, number)
            leave = partial(self._leaving.append, (token, number))
            # From here on it leaves when it goes, whatever comes between.
            reader = Reader(token, Claim(set(), number, emptied=leave))
            file, found = self._files.get(token) or _CachedFile(file_id), ref(reader)
            file.readers[number] = found
            self._files[token], self._tokens[file_id] = file, token
            return reader

    def detach(self, reader: Reader) -> None:
        """Count the reader no longer; with the last one the file's pages go.  Idempotent.

        Finalizers call this, so the collector may in the middle of any step of this class, on the thread
        that holds the mutex: then whoever comes next does what is to be done.
        """
        reader.claim.release()
        if not self._mutex.locked():
            with self._mutex:
                self._see_off()

    def _see_off(self) -> None:
        """Count those who have left no longer.

        An interrupt may end this anywhere: a reader stays in the queue until all is done for it, and what is
        done already may be done again.
        """
        while self._leaving:
            token, number = self._leaving[0]
            file = self._files.get(token)
            if file is not None:
                found = file.readers.get(number)
                reader = None if found is None else found()
                if reader is not None:
                    reader.holders = ()
                file.readers.pop(number, None)
                if not file.readers:
                    self._forget(token, file)
            self._leaving.popleft()

    def _forget(self, token: int, file: _CachedFile) -> None:
        """Drop a file that nobody reads, with its pages."""
        try:
            self._remove_all(token, file.offsets)
        except BaseException:
            self._damaged()
            raise
        self._tokens.pop(file.file_id, None)
        self._files.pop(token, None)

    def watch(self, reader: Reader, holder: Holder) -> bool:
        """Ask ``holder`` too before a page of the file is dropped; False where the reader has left."""
        with self._mutex:
            self._see_off()
            if not reader.claim.held:
                return False
            reader.holders = (*(other for other in reader.holders if not other.closed), holder)
            return True

    def get(self, token: int, offset: int) -> Any:
        """The page at ``offset``, None where it is missing."""
        key = (token, offset)
        with self._mutex:
            page = self._kept.get(key)
            if page is None:
                page = self._new.get(key)
                if page is None:
                    self._misses += 1
                    return None
            self._hits += 1
            self._used.add(key)
            return page

    def get_many(self, token: int, offsets: Sequence[int]) -> list[Any]:
        """The pages at ``offsets``, None where missing."""
        found: list[Any] = []
        new, kept, used = self._new, self._kept, self._used
        with self._mutex:
            for offset in offsets:
                key = (token, offset)
                page = kept.get(key)
                if page is None:
                    page = new.get(key)
                if page is None:
                    self._misses += 1
                else:
                    self._hits += 1
                    used.add(key)
                found.append(page)
        return found

    def put(self, token: int, offset: int, page: Any) -> bool:
        """Add a page; it may push out others, or be too large to be kept.  Returns whether the cache has it:
        False also where it has another copy of that page."""
        size = len(page) + _ENTRY_BYTES
        key = (token, offset)
        with self._mutex:
            if self._leaving:
                self._see_off()
            found = self._kept.get(key)
            if found is None:
                found = self._new.get(key)
            if found is not None:
                return found is page  # read twice at once
            file = self._files.get(token)
            if size > self.limit_bytes // 4 or file is None:
                return False  # or closed meanwhile
            try:
                if key in self._gone:
                    del self._gone[key]
                    self._kept[key] = page
                    self._kept_bytes += size
                else:
                    self._new[key] = page
                file.offsets.add(offset)
                self._bytes += size
                if self._bytes > self.limit_bytes:
                    self._shrink()
            except BaseException:
                self._damaged()
                raise
            return key in self._new or key in self._kept

    def set_limit(self, limit_bytes: int) -> None:
        """Another limit from now on."""
        if limit_bytes == self.limit_bytes:
            return
        with self._mutex:
            self.limit_bytes = limit_bytes
            self._see_off()
            try:
                self._shrink()
            except BaseException:
                self._damaged()
                raise

    def _shrink(self) -> None:
        new, kept = self._new, self._kept
        while self._bytes > self.limit_bytes:
            is_new = bool(new) and (
                self._bytes - self._kept_bytes > NEW_FRACTION * self.limit_bytes or not kept
            )
            key, page = (new if is_new else kept).popitem(last=False)
            file = self._files[key[0]]
            size = len(page) + _ENTRY_BYTES
            if self._was_used(key, file):
                kept[key] = page
                if is_new:
                    self._kept_bytes += size
                continue
            file.offsets.discard(key[1])
            self._bytes -= size
            self._evicted += 1
            if is_new:
                self._note_gone(key)
            else:
                self._kept_bytes -= size

    def _note_gone(self, key: Key) -> None:
        gone, most = self._gone, len(self._new) + len(self._kept)
        gone[key] = None
        while len(gone) > most:
            gone.popitem(last=False)

    def _was_used(self, key: Key, file: _CachedFile) -> bool:
        """Also by who holds it without the cache's knowledge; who has not used it lets go of it."""
        used = key in self._used
        if used:
            self._used.discard(key)
        # Each is asked, and lets go only if nobody else needs the page: in the next turn, then.
        for found in file.readers.values():
            reader = found()
            if reader is not None:
                for holder in reader.holders:
                    if not holder.forget(key[1]):
                        used = True
        return used

    def _remove_all(self, token: int, offsets: set[int]) -> None:
        while offsets:
            self._remove((token, offsets.pop()))

    def _remove(self, key: Key) -> None:
        page = self._kept.pop(key, None)
        if page is not None:
            self._kept_bytes -= len(page) + _ENTRY_BYTES
        else:
            page = self._new.pop(key)
        self._used.discard(key)
        self._bytes -= len(page) + _ENTRY_BYTES

    def statistics(self) -> CacheStatistics:
        with self._mutex:
            self._see_off()
            return CacheStatistics(
                self._hits,
                self._misses,
                self._evicted,
                len(self._new) + len(self._kept),
                self._bytes,
                self._kept_bytes,
                self.limit_bytes,
            )
