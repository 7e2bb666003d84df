"""The home of a table in a folder of the machine."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kudu_core.table.lifecycle.alter import open_manifest
from kudu_core.table.lifecycle.lost import sweep_lost
from kudu_core.table.lifecycle.purge import delete_purged, purge
from kudu_core.table.lifecycle.staging_folders import sweep_staging

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.stored.home import Home
    from kudu_core.tablet.store.tablet import Tablet


class PosixHome:
    """See ``Home``."""

    in_place = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def make_tablets(self, tablets: Sequence[Tablet]) -> None:
        """A directory and a first MANIFEST for each (protocol A1)."""
        self._engine.pool.each(self._make, tablets)
        self._engine.fs.sync_dir(f"{self._engine.path}/tablets")

    def _make(self, tablet: Tablet) -> None:
        engine = self._engine
        engine.table_file.fence()
        if engine.fs.exists(tablet.directory):
            engine.fs.rmtree(tablet.directory)  # of an overwrite that failed, and could not even remove it
        engine.fs.mkdir(tablet.directory)
        manifest = open_manifest(
            engine.fs, engine.path, engine.table_file, engine.log, tablet.id, tablet.state
        )
        tablet.manifest = manifest
        manifest.create()
        tablet.state = manifest.state

    def remove_tablets(self, tablets: Sequence[Tablet]) -> None:
        engine = self._engine
        for tablet in tablets:
            engine.table_file.fence()  # another writer may have tablets of these numbers
            if engine.fs.exists(tablet.directory):
                engine.fs.rmtree(tablet.directory)

    def begin_staging(self) -> str:
        """What is left of it is collected at a later open (protocol G6)."""
        folder = f"{self._engine.path}/staging/ingest-{uuid.uuid4().hex}"
        self._engine.fs.mkdir(folder)
        return folder

    def end_staging(self, folder: str) -> None:
        self._engine.fs.rmtree(folder)

    def purge(self) -> bool:
        return purge(self._engine)

    def delete_gone(self) -> int:
        """In the folders of tablets, ``staging/`` and ``lost/``."""
        engine = self._engine
        return delete_purged(engine) + sweep_staging(engine) + sweep_lost(engine)

    def before_close(self) -> None:
        """There is nothing to do."""


if TYPE_CHECKING:

    def _checked(home: PosixHome) -> Home:
        return home


__all__ = ["PosixHome"]
