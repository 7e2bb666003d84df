"""What may be done with an object store, whoever runs it.

``ObjectStore`` is what the engine uses: each call has one answer, whatever becomes of the requests by
which it is made (protocol B3).  ``Requests`` is what a store's client gives: one request, which may end
without an answer.  ``repeating.py`` makes the first of the second.

Paths are ``str``, relative to the store's root, of names joined by ``/``; a name is made of ASCII letters,
digits and ``._-=``, and is neither ``.`` nor ``..``.  An object is written whole and read whole or in ranges.

**Where the id of a put is.**  In the bytes of the object, where its format has a place for it, and not in
metadata: a copy of a bucket keeps it, each GET brings it, and no store has to support anything.  Where that
place is only the caller knows, who gives a ``PutIdOf`` when the store is opened.  An id is random, one for
each object and not for each attempt to put it, so that whoever meets an object under the name that it wanted
can tell whether it is its own, put by a request whose answer was lost.

Errors of ``ObjectStore``, besides those that a call names:

* ``InvalidArgument``: a path, a range or a put id breaks a rule; nothing was sent.
* ``StoreDenied``: credentials are absent, wrong or expired, or lack a right.
* ``StoreUnavailable``: no answer until the deadline; the same call may succeed later.
* ``StoreError``: anything else that the store refuses: no such bucket, another region.
* ``NotSupported``: in the child of a fork, where the client would hang.

All three of a store have ``unknown``: whether what was to be put or deleted may have been, or may yet be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from kudu_core.errors import KuduError

if TYPE_CHECKING:
    from kudu_core.fs.api import Data

Version: TypeAlias = str
"""Which bytes an object has, as the store tells: an etag, or of Google a generation.  Opaque.  An etag may be
a hash of the bytes, so two versions with equal bytes may be equal."""

PutIdOf: TypeAlias = Callable[[str, bytes], bytes | None]
"""(path, bytes of the object there) -> its put id; None where the bytes have none."""


class Entry(NamedTuple):
    """An object in a listing: its path, its bytes, and its time by the store's clock, seconds since 1970."""

    name: str
    size: int
    mtime_s: float


class Existing(NamedTuple):
    """The object that had the name; ``put_id`` is None where its bytes have none."""

    put_id: bytes | None
    data: bytes


class Replaced(KuduError):
    """``replace_if`` found another object than the one to be replaced.

    ``unknown``: an earlier request of the same call had no answer, so it may be that ours was put and that
    the other writer has replaced it.  Else nothing was put.  Whoever calls says what that means, so this does
    not reach users.
    """

    def __init__(self, path: str, found: Existing, version: Version, unknown: bool) -> None:
        super().__init__(path, found, version, unknown)
        self.path = path
        self.found = found
        self.version = version
        self.unknown = unknown

    def __str__(self) -> str:
        return f"{self.path} was replaced by another writer"


class ObjectStore(Protocol):
    """See the module.  Thread safe."""

    storage_options: Mapping[str, Any] | None
    """What its client was given, for processes that are to open the same table."""

    def read_bytes(self, path: str, limit: int) -> bytes:
        """A whole object.  ``FileNotFoundError``; ``Corruption`` when it is longer than ``limit`` bytes."""

    def read_versioned(self, path: str, limit: int) -> tuple[bytes, Version]:
        """The same, with the version of these bytes."""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Pieces of an object, each (offset, bytes), in the order asked for; shorter only where it ends.

        What lies close together is fetched as one; other pieces are fetched side by side.
        ``FileNotFoundError``.
        """

    def put(self, path: str, data: Data) -> None:
        """Write an object whole.  For names that only one writer ever uses: a put that is late, or repeated,
        overwrites."""

    def put_if_absent(self, path: str, data: Data, put_id: bytes) -> Existing | None:
        """Write an object unless there is one: None, or the other one that is there.

        ``Corruption`` when what is there has this put id and other bytes.
        """

    def replace_if(self, path: str, data: Data, version: Version, put_id: bytes) -> Version:
        """Write an object if the one there is of this version, and answer with the new version.

        ``Replaced`` when it is another writer's; ``FileNotFoundError`` when there is none; ``Corruption`` as
        of ``put_if_absent``.  The bytes of an object that is replaced must never repeat, or a version that is
        a hash is no proof: its put id sees to that.
        """

    def delete_many(self, paths: Sequence[str]) -> None:
        """Delete objects; one that is missing is no error.  After an error any of them may be gone."""

    def entries(self, prefix: str) -> list[Entry]:
        """The objects in the folder ``prefix`` ("": all), at any depth, by name.

        Whole folders only: "log" has "log/1" and not "log2/1".  A store may leave out what is new, or name
        what is gone.
        """

    def counts(self) -> dict[str, int]:
        """Requests and bytes by kind since the store was opened (``tally.Tally.now``)."""


ABSENT: Final = None
"""The condition of a put that must not replace anything."""


class Always:
    """The condition of a put that replaces whatever is there."""


ALWAYS: Final = Always()

Condition: TypeAlias = Version | Always | None
"""``ALWAYS``, ``ABSENT``, or the version that must be there."""


class Unknown(Exception):
    """A request without an answer that says what it did: it may have been applied, or may yet be.

    ``reason`` is for people.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unmet(Exception):
    """The store says that the condition of a put does not hold, or that another put is under way."""


class Requests(Protocol):
    """Single requests; each may raise ``Unknown``, ``StoreDenied``, ``StoreError`` or ``NotSupported``."""

    def get(self, path: str, limit: int | None) -> tuple[bytes, Version]:
        """``FileNotFoundError``; ``Corruption`` over ``limit``."""

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As ``ObjectStore.read_ranges``, of at least one range and none of them empty."""

    def put(self, path: str, data: bytes, condition: Condition) -> Version:
        """``Unmet``; ``FileNotFoundError`` where an object must be there and is not."""

    def delete(self, paths: Sequence[str]) -> None:
        """One that is missing is no error."""

    def list(self, prefix: str) -> list[Entry]: ...

    def counts(self) -> dict[str, int]:
        """As of ``ObjectStore``."""

    def tell_repeated(self) -> None:
        """A request is about to be repeated: for the counts."""
