"""Where backups are: a folder, or a place in an object store, as far as the two differ.

In a folder one backup is made at a time, under a temporary name: what has its number is whole.  In a store a
backup has its number when its manifest is there, which is put last, and only if none is there yet; whoever
else was making that number has made nothing (docs/format-table.md, "Backups").
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from kudu_core.common.format.names import backup_of_folder
from kudu_core.errors import InvalidArgument, Locked, StoreError
from kudu_core.fs.base import temporary_name
from kudu_core.objects.urls import is_url
from kudu_core.table.backup.backup_manifest import LOCK, MANIFEST, foreign_name, is_unfinished, read_manifests
from kudu_core.table.lifecycle.locations import is_in_store, location_of

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.fs.api import FileSystem
    from kudu_core.objects.api import ObjectStore, Requests
    from kudu_core.table.backup.backup_manifest import BackupManifest

ABANDONED_S: Final = 86_400.0
"""So long after it was put, a file in a store that no manifest names is nobody's."""


class BackupPlace(Protocol):
    """See the module."""

    fs: FileSystem
    folder: str

    @contextmanager
    def writing(self) -> Iterator[list[BackupManifest]]:
        """Held while a backup is made: those that are there.  First what is left of others that failed is
        taken away."""

    @contextmanager
    def making(self, head: BackupManifest) -> Iterator[str]:
        """The directory to which the runs of a backup go, durably; after an error nothing is left of them."""

    @property
    def prefix(self) -> str:
        """With which the names of a backup's files begin, and of no other's in the same directory."""

    def commit(self, directory: str, manifest: BackupManifest) -> None:
        """From now on the backup is there."""


class FolderOfBackups:
    """See ``BackupPlace``: a folder."""

    def __init__(self, fs: FileSystem, folder: str) -> None:
        self.fs, self.folder = fs, folder

    @contextmanager
    def writing(self) -> Iterator[list[BackupManifest]]:
        fs, folder = self.fs, self.folder
        if not fs.exists(folder):
            _make_folder(fs, folder)
        lease = fs.lease(f"{folder}/{LOCK}")
        try:
            lease.try_acquire()  # one at a time, so what has a temporary name is nobody's
            for name in fs.listdir(folder):
                if is_unfinished(name):
                    fs.rmtree(f"{folder}/{name}")
            yield read_manifests(fs, folder)
        finally:
            lease.release()

    @property
    def prefix(self) -> str:
        return "rows-"

    @contextmanager
    def making(self, head: BackupManifest) -> Iterator[str]:
        temporary = temporary_name(head.directory(self.folder), uuid.uuid4().hex)
        self.fs.mkdir(temporary)
        try:
            yield temporary
        except BaseException:
            with suppress(OSError):
                self._take_away(head, temporary)
            raise

    def commit(self, directory: str, manifest: BackupManifest) -> None:
        self.fs.replace_file(f"{directory}/{MANIFEST}", manifest.to_bytes())  # and the names of the runs
        self.fs.rename(directory, manifest.directory(self.folder))
        self.fs.sync_dir(self.folder)

    def _take_away(self, head: BackupManifest, temporary: str) -> None:
        """A backup that failed.  What is left under the temporary name, the next one removes.

        One whose number may never reach the disk has to lose it: another would continue it.  Until that is
        durable its files stay, so that no power cut leaves a number without them.
        """
        if self.fs.exists(head.directory(self.folder)):
            self.fs.rename(head.directory(self.folder), temporary)
            self.fs.sync_dir(self.folder)
        self.fs.rmtree(temporary)


class StoreOfBackups:
    """See ``BackupPlace``: a place in an object store."""

    def __init__(self, fs: FileSystem, folder: str, store: ObjectStore, clock: Clock) -> None:
        self.fs, self.folder = fs, folder
        self._store = store
        self._clock = clock
        self._attempt = uuid.uuid4().hex[:12]

    @contextmanager
    def writing(self) -> Iterator[list[BackupManifest]]:
        known = read_manifests(self.fs, self.folder, in_store=True)
        named = {f"{one.number:08d}/{run.name}" for one in known for run in one.runs}
        oldest_s = self._clock.now_us() / 1e6 - ABANDONED_S
        gone = [
            entry.name
            for entry in self._store.entries("")
            if backup_of_folder(entry.name.partition("/")[0]) is not None
            and not entry.name.endswith(f"/{MANIFEST}")
            and entry.name not in named
            and entry.mtime_s < oldest_s
        ]
        self._store.delete_many(gone)
        yield known

    @property
    def prefix(self) -> str:
        return f"rows-{self._attempt}-"

    @contextmanager
    def making(self, head: BackupManifest) -> Iterator[str]:
        directory = head.directory(self.folder)
        try:
            yield directory
        except BaseException as error:
            if not (isinstance(error, StoreError) and error.unknown):  # else it may be a backup by now
                with suppress(OSError, StoreError):
                    self._take_away(head)
            raise

    def commit(self, directory: str, manifest: BackupManifest) -> None:
        from kudu_core.table.lifecycle.in_store.put_ids import id_of_bytes

        data = manifest.to_bytes()
        name = f"{manifest.number:08d}/{MANIFEST}"
        if self._store.put_if_absent(name, data, id_of_bytes(data)) is not None:
            taken = Locked(self.folder, None, None)
            taken.add_note(f"Another backup has taken number {manifest.number} meanwhile: make it again.")
            raise taken

    def _take_away(self, head: BackupManifest) -> None:
        begin = f"{head.number:08d}/{self.prefix}"
        found = [entry.name for entry in self._store.entries(f"{head.number:08d}")]
        self._store.delete_many([name for name in found if name.startswith(begin)])


def place_at(
    path: Any,
    storage_options: Mapping[str, Any] | None,
    clock: Clock,
    *,
    fs: FileSystem | None = None,
    requests: Requests | None = None,
) -> BackupPlace:
    """The place of backups that a path or a URL names."""
    found = location_of(path, storage_options=storage_options, fs=fs, clock=clock, requests=requests)
    if not is_url(found.root):
        return FolderOfBackups(found.fs, found.root)
    from kudu_core.table.lifecycle.in_store.store_location import StoreLocation

    assert isinstance(found, StoreLocation)
    return StoreOfBackups(found.fs, found.root, found.store, clock)


def options_of_both(
    src: Any,
    path: Any,
    storage_options: Mapping[str, Any] | None,
    src_storage_options: Mapping[str, Any] | None,
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The options of the place where a restore puts a table, and of the one where its backups are."""
    into_store, from_store = is_in_store(path), is_in_store(src)
    of_path = storage_options if into_store else None
    if src_storage_options is None and (from_store or not into_store):
        return of_path, storage_options
    return of_path, src_storage_options


def check_folder(fs: FileSystem, path: str, folder: str) -> None:
    """``InvalidArgument`` where backups of the table at ``path`` do not belong."""
    if f"{folder}/".startswith(f"{path}/"):
        raise InvalidArgument(f"{folder} lies in the table's own folder; a backup belongs elsewhere")
    if not fs.exists(folder):
        return
    if not fs.is_dir(folder):
        raise InvalidArgument(f"{folder} is a file; backups need a folder of their own")
    foreign = [name for name in fs.listdir(folder) if foreign_name(name)]
    if foreign:
        raise InvalidArgument(f"{folder} is no folder of backups: {foreign[0]!r} does not belong to one")


def _make_folder(fs: FileSystem, folder: str) -> None:
    """The folder of backups, durable under its name, or not at all: the next call has to make it anew."""
    fs.mkdir(folder, exist_ok=True)
    parent = folder.rsplit("/", 1)[0] or "/"
    try:
        fs.rooted(parent).sync_dir(parent)
    except OSError:
        with suppress(OSError):  # not empty: somebody else makes a backup there
            fs.rmdir(folder)
        raise


if TYPE_CHECKING:

    def _checked(folder: FolderOfBackups, store: StoreOfBackups) -> tuple[BackupPlace, BackupPlace]:
        return folder, store


__all__ = ["BackupPlace", "FolderOfBackups", "StoreOfBackups", "check_folder", "options_of_both", "place_at"]
