"""``lost/``: what an open for writing finds that nothing names.

*Deleted at once* is what a durable decision has let go of: files that an edit dropped, the folder of a
tablet that was purged, log segments behind a durable CHECKPOINT, staging of an ingest or a merge whose
writer is gone, staging of jobs after their record or ``staging_grace_s``, and unfinished copies of TABLE,
manifests and segments.

*Moved to ``lost/``* is every other thing of ours that nothing names: data files, folders of tablets that no
TABLE has known, and the last log segment when something that looks like a record follows its end.  It was
written by an operation that died before its edit, and nobody misses it; or something that should name it is
damaged in a way that nobody could see.  It keeps its tablet and name, and goes when ``lost_grace_s`` has
passed.  A file that is named and missing is brought back from there.  Moves are durable under the new name
before the old one is given up, and nothing moves before every file that is named was found.

*Left alone* is every name that is none of ours, and a folder under the name of a file that would be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kudu_core.common.format.names import LOG, TABLET, is_data_file, lost_name, parse_lost, tablet_of_folder
from kudu_core.errors import Corruption
from kudu_core.fs.base import NoFolder, temporary_of
from kudu_core.fs.copies import copy_of
from kudu_core.fs.missing import FileMissing
from kudu_core.table.stored.table_state import tablet_directory
from kudu_core.tablet.store.manifest import read_manifest

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.edits import TabletState

FOLDER = "lost"
SWEEP_S = 60.0
"""So often, at most, maintenance looks whether a grace is over."""


@dataclass(frozen=True, slots=True)
class MissingFile:
    """A file that is named, is not in its tablet's folder, and is in ``lost/``."""

    source: str
    target: str


def missing_files(
    fs: FileSystem, path: str, named: Mapping[int, Mapping[str, int | None]]
) -> list[MissingFile]:
    """Which of the files that manifests and the log name lie in ``lost/`` and not where they belong.

    ``named``: by tablet, the size of each file, None where nobody knows it.  Changes nothing.

    Raises
    ------
    FileMissing
        One of them is nowhere: then nothing of the table may be taken for an orphan.
    NoFolder
        ``lost`` is none, so an orphan could not be moved there.
    """
    if fs.exists(f"{path}/{FOLDER}") and not fs.is_dir(f"{path}/{FOLDER}"):
        raise NoFolder(f"{path}/{FOLDER}")
    kept: dict[tuple[int, str], list[str]] | None = None
    found = []
    for tablet_id, files in named.items():
        directory = tablet_directory(path, tablet_id)
        here: frozenset[str] = frozenset()
        with suppress(FileNotFoundError):
            here = frozenset(fs.listdir(directory))
        for name in sorted(files.keys() - here):
            kept = _kept(fs, path) if kept is None else kept
            size = files[name]
            for candidate in reversed(kept.get((tablet_id, name), [])):
                source = f"{path}/{FOLDER}/{candidate}"
                length = _length(fs, source)
                if length is not None and size in (None, length):
                    found.append(MissingFile(source, f"{directory}/{name}"))
                    break
            else:
                raise FileMissing(f"{directory}/{name}", 0, "the file is missing; nothing was changed")
    return found


def _length(fs: FileSystem, path: str) -> int | None:
    """None: it is no regular file, but a link, say, whose own length may be any."""
    try:
        with closing(fs.open_read(path)) as file:
            return file.size()
    except (Corruption, FileNotFoundError):
        return None


def bring_back(fs: FileSystem, path: str, found: Sequence[MissingFile]) -> None:
    """Rename what ``missing_files`` has found to where it belongs, durably."""
    for file in found:
        fs.rename(file.source, file.target)
    # First the names that are new: a cut between leaves both, never neither.
    for directory in sorted({file.target.rpartition("/")[0] for file in found}):
        fs.sync_dir(directory)
    if found:
        fs.sync_dir(f"{path}/{FOLDER}")


def _kept(fs: FileSystem, path: str) -> dict[tuple[int, str], list[str]]:
    """The names in ``lost/`` by tablet and file, oldest first."""
    names: dict[tuple[int, str], list[str]] = {}
    for name in _listed(fs, path):
        parsed = parse_lost(name)
        if parsed is not None and is_data_file(parsed.name):
            names.setdefault((parsed.tablet_id, parsed.name), []).append(name)
    return names


def _listed(fs: FileSystem, path: str) -> list[str]:
    with suppress(FileNotFoundError):
        return fs.listdir(f"{path}/{FOLDER}")
    return []


class LostFolder:
    """Moves things into ``lost/``; the last step makes it durable."""

    def __init__(self, fs: FileSystem, path: str, now_s: int) -> None:
        self._fs = fs
        self._path = path
        self._folder = f"{path}/{FOLDER}"
        self._now_s = now_s
        self._sources: set[str] = set()
        self.moved = 0

    def take(self, path: str, tablet_id: int, name: str) -> None:
        """Rename a file or folder of the table; ``name`` is how it is known there."""
        fs = self._fs
        if not self._sources and not fs.exists(self._folder):
            fs.mkdir(self._folder, exist_ok=True)
            fs.sync_dir(self._path)
        at_s = self._now_s
        while fs.exists(target := f"{self._folder}/{lost_name(at_s, tablet_id, name)}"):
            at_s += 1
        fs.rename(path, target)
        self._sources.add(path.rpartition("/")[0])
        self.moved += 1

    def sync(self) -> None:
        """Make the moves durable: the new names before the old ones are gone for good."""
        for directory in (self._folder, *sorted(self._sources)) if self._sources else ():
            self._fs.sync_dir(directory)
        self._sources.clear()


@dataclass(frozen=True, slots=True)
class OrphanCounts:
    """What an open for writing did with what nothing names."""

    moved: int
    deleted: int


def sort_orphans(engine: Engine, named: Mapping[int, Iterable[str]], known_tablets: int) -> OrphanCounts:
    """Move files that no manifest and no retained record names to ``lost/``; delete those that a durable
    decision has let go of, and unfinished copies of TABLE and manifests.

    Only once every file that is named is known to be there.

    Parameters
    ----------
    named
        By tablet, files that records of the log name.
    known_tablets
        Ids below were given out before the last TABLE: a folder of one that is not listed was purged.
    """
    fs, path = engine.fs, engine.path
    lost = LostFolder(fs, path, engine.clock.now_us() // 1_000_000)
    deleted = 0
    for name in fs.listdir(path):
        if temporary_of(name) in ("TABLE", copy_of("TABLE")):
            deleted += _delete_file(fs, f"{path}/{name}")
    listed = {tablet.id for tablet in engine.tablets}
    for name in fs.listdir(f"{path}/tablets"):
        tablet_id = tablet_of_folder(name)
        if tablet_id is None or tablet_id in listed:
            continue
        if tablet_id < known_tablets and _is_purged(engine, tablet_id):
            fs.rmtree(f"{path}/tablets/{name}")
            deleted += 1
        else:
            lost.take(f"{path}/tablets/{name}", tablet_id, TABLET)
    for tablet in engine.tablets:
        known = tablet.state.files.union(named.get(tablet.id, ()))
        retired = tablet.state.retired - known
        for name in fs.listdir(tablet.directory):
            if temporary_of(name) in ("MANIFEST", copy_of("MANIFEST")) or name in retired:
                deleted += _delete_file(fs, f"{tablet.directory}/{name}")
            elif is_data_file(name) and name not in known:
                lost.take(f"{tablet.directory}/{name}", tablet.id, name)
        if retired:
            tablet.forget(retired)
    lost.sync()
    return OrphanCounts(lost.moved, deleted)


def _delete_file(fs: FileSystem, path: str) -> bool:
    """Not a folder, which is none of ours: whether it was none."""
    if fs.is_dir(path):
        return False
    fs.unlink(path, missing_ok=True)
    return True


def _is_purged(engine: Engine, tablet_id: int) -> bool:
    """Whether a tablet that TABLE does not list may have been let go of: all that was ever done to it lies
    behind the horizon (protocol H3).  Else TABLE is not what it was."""
    horizon = engine.table_file.state.horizon
    if not horizon:
        return False
    path = f"{tablet_directory(engine.path, tablet_id)}/MANIFEST"
    try:
        state, _ = read_manifest(engine.fs, path, engine.uuid, tablet_id)
    except FileNotFoundError:
        return True  # what is left of one that was being deleted
    except Corruption:
        return False  # also of what is no folder
    metas = state.rowsets.values()
    changed = max((ref.max_ts for meta in metas for ref in (*meta.redo, *meta.undo)), default=0)
    return max(changed, *(meta.max_insert_ts for meta in metas), 0) <= horizon


def keep_segment(fs: FileSystem, path: str, segment: str, now_s: int) -> None:
    """Move a log segment whose end may hold a damaged record."""
    lost = LostFolder(fs, path, now_s)
    lost.take(segment, 0, f"{LOG}-{segment.rpartition('/')[2]}")
    lost.sync()


def sweep_lost(engine: Engine, *, opening: bool = False) -> int:
    """Delete what has been in ``lost/`` for longer than ``lost_grace_s``; how many files and folders."""
    grace_s = engine.options.lost_grace_s
    now_s = engine.clock.monotonic_s()
    if not opening and now_s < engine.lost_swept_s + min(SWEEP_S, grace_s / 4):
        return 0
    engine.lost_swept_s = now_s
    oldest_s = engine.clock.now_us() / 1e6 - grace_s
    deleted = 0
    for name in _listed(engine.fs, engine.path):
        parsed = parse_lost(name)
        if parsed is None or parsed.moved_s >= oldest_s:
            continue
        engine.log.raise_if_poisoned()
        engine.table_file.fence()
        target = f"{engine.path}/{FOLDER}/{name}"
        with suppress(OSError):  # another time, then
            if engine.fs.is_dir(target):
                engine.fs.rmtree(target)
            else:
                engine.fs.unlink(target, missing_ok=True)
            deleted += 1
    return deleted


def lost_usage(fs: FileSystem, path: str) -> tuple[int, int]:
    """Files in ``lost/``, those in folders too, and their bytes."""
    files = size = 0
    folders = [f"{path}/{FOLDER}"]
    while folders:
        folder = folders.pop()
        with suppress(FileNotFoundError, NoFolder):
            for name in fs.listdir(folder):
                child = f"{folder}/{name}"
                with suppress(FileNotFoundError):
                    if fs.is_dir(child):
                        folders.append(child)
                    else:
                        files, size = files + 1, size + fs.stat(child).size
    return files, size


def sizes_of(state: TabletState) -> dict[str, int | None]:
    """The files that a manifest names, with their sizes."""
    return {file.name: file.size for meta in state.rowsets.values() for file in meta.files}


__all__ = [
    "FOLDER",
    "LostFolder",
    "MissingFile",
    "bring_back",
    "keep_segment",
    "lost_usage",
    "missing_files",
    "sizes_of",
    "sort_orphans",
    "sweep_lost",
]
