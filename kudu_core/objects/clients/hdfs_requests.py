"""``Requests`` on HDFS, which has neither a put of a whole object nor one under a condition, but a rename
that is atomic and can refuse to overwrite.

**A put** writes a temporary file, has the data nodes sync it, closes and renames it: nothing is seen before
it is whole.  A put that must not replace anything renames without overwriting.

**A replacement** of version n renames to the name of version n + 1 (``hdfs_names``), without overwriting: of
all who want to replace n one gets the name.  Two things may have happened between the look at version n and
the rename, and both are looked for after it, before anybody is told that it has succeeded:

* So many came after n + 1 that it was there, and was deleted again.  What is deleted is ``KEPT`` below the
  newest, and the newest is never deleted; so then a number is there that is so much higher.
* The object was deleted, or overwritten by a put without a condition.  Then its file is gone, or its bytes
  are others, and with them its ``life``: versions of another life do not count.

The answer is ``Unknown`` then, and not "no": the version may have been seen.  The repeated request finds out.

**Reading** looks for versions first and at version 0 then: the other way round it could meet an object with
all its versions before, and none after, a deletion, and give out version 0, which was the newest long ago.

**Deleting** looks for versions, deletes version 0 and then those that it has found: they are of this life or
of earlier ones, whatever is put under the name meanwhile.  Between the two it leaves versions that nobody
counts; where it is cut short there, the next deletion or replacement of an object of this name finds them.

Folders come and go: a rename whose folder is missing makes it and is repeated; a deletion takes folders with
it that are empty then, which HDFS refuses where something is in them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from kudu_core.errors import Corruption, StoreError
from kudu_core.objects.api import Always, Entry, Unknown, Unmet
from kudu_core.objects.clients.after_fork import about_to_ask
from kudu_core.objects.clients.hdfs_answers import is_below_a_file, is_of_a_full_folder, meaning
from kudu_core.objects.clients.hdfs_names import MARK, Life, Names, begun_as, life_of, newest, object_of
from kudu_core.objects.clients.timed_calls import begin, side_by_side
from kudu_core.objects.fetching import cut, planned
from kudu_core.objects.tally import Tally

if TYPE_CHECKING:
    from kudu_core.objects.api import Condition, Requests, Version
    from kudu_core.objects.clients.hdfs_api import HdfsClient, HdfsReader, HdfsStatus
    from kudu_core.objects.urls import StoreUrl

_T = TypeVar("_T")

REQUEST_S: Final = 30.0
"""How long a request may take; one that lists or deletes, how long it may for each folder or object."""
KEPT: Final = 16
"""Versions that stay behind the newest one: for readers, and so that who comes late is noticed."""
AT_ONCE: Final = 8
"""Pieces of an object, or objects to be deleted, that are asked for side by side."""
_LOOKS: Final = 8
"""So often it is looked again for what has gone meanwhile."""
_PIECE: Final = 4 << 20
_BYTES_PER_S: Final = 4 << 20
"""A put that is slower is given up."""
_DAY_MS: Final = 24 * 60 * 60 * 1000
_MOST_LISTED: Final = 1000


class HdfsRequests:
    """See the module and ``api.Requests``.  ``connect`` makes a client; it asks nothing yet."""

    def __init__(
        self, url: StoreUrl, connect: Callable[[], HdfsClient], *, request_s: float = REQUEST_S
    ) -> None:
        self._place = f"{url.scheme}://{url.bucket}"
        self._names = Names(f"/{url.prefix}" if url.prefix else "")
        self._connect = connect
        self._request_s = request_s
        self._clients = [connect()]
        """One; after a request without an end another, for it may be its connection that hangs."""
        self._tidied = False
        self._tally = Tally()

    # -- reading -------------------------------------------------------------------------------------------

    def get(self, path: str, limit: int | None) -> tuple[bytes, Version]:
        self._tally.sent("get")
        data, life = self._asked(path, lambda client: self._newest(client, path, limit))
        self._tally.moved("get", len(data))
        return data, str(life)

    def _newest(self, client: HdfsClient, path: str, limit: int | None) -> tuple[bytes, Life]:
        for _ in range(_LOOKS):
            there = self._versions(client, path) or []
            # With versions this file may be longer than what is wanted.
            first = _whole(client, self._names.first(path), path, None if there else limit)
            life = newest(begun_as(first), there)
            if not life.n:
                _check_limit(len(first), path, limit)
                return first, life
            try:
                return _whole(client, self._names.version(path, life), path, limit), life
            except FileNotFoundError:
                continue  # replaced so often since, or deleted
        raise Unknown("the object is replaced faster than it can be read")

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        plan = planned(ranges)
        self._tally.sent("get", len(plan))
        pieces = self._asked(path, lambda client: self._pieces(client, path, plan))
        self._tally.moved("get", sum(map(len, pieces)))
        return cut(ranges, plan, pieces)

    def _pieces(self, client: HdfsClient, path: str, plan: Sequence[tuple[int, int]]) -> list[bytes]:
        if self._versions(client, path):
            whole, _ = self._newest(client, path, None)
            return [whole[offset : offset + length] for offset, length in plan]
        reader = _opened(client, self._names.first(path))
        size = len(reader)

        def fetched(wanted: tuple[int, int]) -> bytes:
            offset, length = wanted[0], min(wanted[1], size - wanted[0])
            if length <= 0:
                return b""
            piece = reader.read_range(offset, length)
            _check_length(len(piece), length)
            return piece

        return side_by_side(fetched, plan, AT_ONCE)

    def list(self, prefix: str) -> list[Entry]:
        found: dict[str, tuple[int, int, int]] = {}  # path -> time, number, bytes
        objects: set[str] = set()
        folders = [self._names.folder(prefix)]
        while folders:
            folder = folders.pop()
            versioned = object_of(folder)
            there = self._asked(prefix, lambda client: _listed(client, folder)) or []  # noqa: B023
            self._tally.sent("list", max(1, -(-len(there) // _MOST_LISTED)))
            for each in there:
                name = each.path[len(folder.rstrip("/")) + 1 :]
                if each.isdir:
                    if MARK not in name or object_of(name):
                        folders.append(each.path)
                    continue
                if not name or MARK in name:
                    continue  # what was to be a folder is a file; or it is none of ours
                life = life_of(name) if versioned else None
                if versioned and life is None:
                    continue
                path = self._names.path_of(versioned or each.path)
                if not versioned:
                    objects.add(path)
                # A version of another life is older than the file itself.
                new = (each.modification_time, life.n if life else 0, each.length)
                found[path] = max(found.get(path, new), new)
        return [Entry(path, found[path][2], found[path][0] / 1000) for path in sorted(objects)]

    def counts(self) -> dict[str, int]:
        return self._tally.now()

    def tell_repeated(self) -> None:
        self._tally.repeated()

    # -- writing -------------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes, condition: Condition) -> Version:
        self._tally.sent("put")
        self._tally.moved("put", len(data))
        if isinstance(condition, str):
            version: Version = condition
            life = self._asked(path, lambda client: self._replaced(client, path, data, version), len(data))
            return str(life)
        put = self._overwritten if isinstance(condition, Always) else self._made
        self._asked(path, lambda client: put(client, path, data), len(data))
        return str(Life(begun_as(data), 0))

    def _made(self, client: HdfsClient, path: str, data: bytes) -> None:
        self._put(client, self._names.first(path), data, overwrite=False)

    def _overwritten(self, client: HdfsClient, path: str, data: bytes) -> None:
        """Versions of another life do not count, but this one is the same where the bytes are."""
        there = self._versions(client, path)
        self._put(client, self._names.first(path), data, overwrite=True)
        if there is not None:
            self._drop_versions(client, path, there)

    def _replaced(self, client: HdfsClient, path: str, data: bytes, condition: Version) -> Life:
        _, life = self._newest(client, path, None)
        if str(life) != condition:
            raise Unmet(f"it is version {life}")
        mine = Life(life.of, life.n + 1)
        self._put(client, self._names.version(path, mine), data, overwrite=False)
        # Versions first: what is found of another life then is of an earlier one.
        there = self._versions(client, path) or []
        if self._begun_as(client, path) != life.of:
            self._drop_versions(client, path, [mine])
            raise Unknown("the object was deleted or overwritten while it was replaced")
        highest = newest(life.of, there).n
        if highest >= mine.n + KEPT:
            raise Unknown("the object was replaced so often meanwhile that this version may have been there")
        for each in sorted(there):
            if each.of != life.of or each.n <= highest - KEPT:
                client.delete(self._names.version(path, each))
        return mine

    def _begun_as(self, client: HdfsClient, path: str) -> str | None:
        """``life`` of the object that is there now."""
        try:
            return begun_as(_whole(client, self._names.first(path), path, None))
        except FileNotFoundError:
            return None

    def _put(self, client: HdfsClient, target: str, data: bytes, *, overwrite: bool) -> None:
        """A whole file; ``Unmet`` where one is there that must not be overwritten."""
        temporary = f"{self._names.temporary}/{os.urandom(16).hex()}"
        _write(client, temporary, data)
        for _ in range(_LOOKS):
            try:
                client.rename(temporary, target, overwrite)
            except FileExistsError:
                client.delete(temporary)
                if overwrite:
                    raise
                raise Unmet("the file is there") from None
            except FileNotFoundError:
                pass
            else:
                return
            try:
                client.get_file_info(temporary)
            except FileNotFoundError:
                # The client may have sent the rename twice, and the answer is that to the second one.
                raise Unknown("the temporary file is gone: it may have been renamed") from None
            client.mkdirs(target.rsplit("/", 1)[0] or "/", create_parent=True)
        raise Unknown("the folder goes as soon as it is made")

    def delete(self, paths: Sequence[str]) -> None:
        self._tidy_once()
        self._tally.sent("delete", len(paths))

        def delete(path: str) -> None:
            self._asked(path, lambda client: self._deleted(client, path))

        side_by_side(delete, paths, AT_ONCE)
        folders = {path.rsplit("/", 1)[0] for path in paths if "/" in path}
        for folder in sorted(folders, reverse=True):
            self._asked(folder, lambda client: self._drop_empty(client, folder))  # noqa: B023

    def _deleted(self, client: HdfsClient, path: str) -> None:
        there = self._versions(client, path)
        _delete(client, self._names.first(path))
        if there is not None:
            self._drop_versions(client, path, there)

    def _drop_versions(self, client: HdfsClient, path: str, dead: Iterable[Life]) -> None:
        for each in sorted(dead):
            client.delete(self._names.version(path, each))
        _delete(client, self._names.versions(path))

    def _drop_empty(self, client: HdfsClient, folder: str) -> None:
        """The folder, if it is empty, and those above it that are empty then; never the root."""
        while folder and _is_folder(client, self._names.folder(folder)):
            if not _delete(client, self._names.folder(folder)):
                return
            folder = folder.rpartition("/")[0]

    # -- temporary files -----------------------------------------------------------------------------------

    def _tidy_once(self) -> None:
        """Delete temporary files that are older than a day, once for each handle."""
        if self._tidied:
            return
        self._tidied = True
        try:
            self._asked("", self._tidy)
        except (StoreError, Unknown):
            return  # they are in nobody's way, and the next handle tries again

    def _tidy(self, client: HdfsClient) -> None:
        folder = self._names.temporary
        if not _listed(client, folder):
            return
        # The name node's clock, by the time of a file that is new: that of this machine may be wrong.
        now = f"{folder}/{os.urandom(16).hex()}"
        client.create(now).close()
        now_ms = client.get_file_info(now).modification_time
        for each in _listed(client, folder) or []:
            if each.path == now or each.modification_time < now_ms - _DAY_MS:
                client.delete(each.path)

    # -- requests ------------------------------------------------------------------------------------------

    def _versions(self, client: HdfsClient, path: str) -> Sequence[Life] | None:
        """Those that have replaced an object, of all its lives; None: there is no folder of them."""
        there = _listed(client, self._names.versions(path))
        found = [life_of(each.path) for each in there or ()]
        return None if there is None else [life for life in found if life is not None]

    def _asked(self, path: str, request: Callable[[HdfsClient], _T], n_bytes: int = 0) -> _T:
        """One request, which may take its time and that of the bytes to be put."""
        about_to_ask()
        client = self._clients[0]
        try:
            return begin(lambda: request(client)).result(self._request_s + n_bytes / _BYTES_PER_S)
        except TimeoutError as error:
            self._clients[:] = [self._connect()]
            raise Unknown(str(error)) from None
        except (OSError, RuntimeError) as error:
            raise meaning(error, self._place, path) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of Rust, and no Exception
                raise
            self._clients[:] = [self._connect()]
            raise Unknown(f"the client of HDFS has failed: {error}") from None


def _listed(client: HdfsClient, folder: str) -> list[HdfsStatus] | None:
    """What is in a folder, or the file itself; None: nothing is there."""
    try:
        return list(client.list_status(folder))
    except FileNotFoundError:
        return None
    except RuntimeError as error:
        if is_below_a_file(error):
            return None
        raise


def _opened(client: HdfsClient, file: str) -> HdfsReader:
    try:
        return client.read(file)
    except RuntimeError as error:
        if is_below_a_file(error):
            raise FileNotFoundError(file) from None
        raise


def _whole(client: HdfsClient, file: str, path: str, limit: int | None) -> bytes:
    reader = _opened(client, file)
    _check_limit(len(reader), path, limit)
    data = reader.read()
    _check_length(len(data), len(reader))
    return data


def _check_limit(length: int, path: str, limit: int | None) -> None:
    if limit is not None and length > limit:
        raise Corruption(path, limit, f"the object is longer than {limit} bytes")


def _check_length(have: int, wanted: int) -> None:
    if have != wanted:
        raise Unknown(f"{have} of {wanted} bytes arrived")


def _write(client: HdfsClient, file: str, data: bytes) -> None:
    """A new file, which is on the disks of the data nodes then."""
    try:
        writer = client.create(file)
    except FileExistsError:
        raise Unknown("the client may have created the temporary file twice") from None
    for offset in range(0, len(data), _PIECE):
        writer.write(data[offset : offset + _PIECE])
    if data:
        with suppress(NotImplementedError):  # of files with erasure coding, which cannot
            writer.hsync()
    writer.close()


def _is_folder(client: HdfsClient, file: str) -> bool:
    try:
        return client.get_file_info(file).isdir
    except FileNotFoundError:
        return False


def _delete(client: HdfsClient, file: str) -> bool:
    """A file, or an empty folder: whether it has gone."""
    try:
        return client.delete(file)
    except RuntimeError as error:
        if is_below_a_file(error) or is_of_a_full_folder(error):
            return False
        raise


if TYPE_CHECKING:

    def _checked(store: HdfsRequests) -> Requests:
        return store


__all__ = ["KEPT", "HdfsRequests"]
