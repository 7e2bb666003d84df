"""The cache of this machine for pieces of a table's files: what users say of it, among ``storage_options`` or
in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kudu_core.errors import InvalidArgument
from kudu_core.fs.piece_cache import piece_cache

if TYPE_CHECKING:
    from kudu_core.fs.piece_cache import PieceCache

DIR, BYTES = "cache_dir", "cache_bytes"
VARIABLES: Final = {DIR: "KUDU_CORE_CACHE_DIR", BYTES: "KUDU_CORE_CACHE_BYTES"}
"""Where what is not given is looked for."""
USUAL_BYTES: Final = 8 << 30
LEAST_BYTES: Final = 1 << 20


def of_client(storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options without those of the cache, which no client knows."""
    return {name: value for name, value in (storage_options or {}).items() if name not in (DIR, BYTES)}


def cache_of(storage_options: Mapping[str, Any] | None) -> PieceCache | None:
    """The cache that is asked for; None: none is.  ``InvalidArgument`` names the option."""
    folder, most = (
        storage_options[name] if storage_options and name in storage_options else os.environ.get(variable)
        for name, variable in VARIABLES.items()
    )
    if not folder:
        return None
    if not isinstance(folder, str) or not folder.startswith("/"):
        raise InvalidArgument(f"{DIR} is the absolute path of a folder of this machine, not {folder!r}")
    try:
        most_bytes = USUAL_BYTES if most is None else int(most)
    except (TypeError, ValueError):
        most_bytes = 0
    if most_bytes < LEAST_BYTES:
        raise InvalidArgument(f"{BYTES} is a number of bytes, {LEAST_BYTES:,} or more, not {most!r}")
    return piece_cache(folder.rstrip("/"), most_bytes)


__all__ = ["BYTES", "DIR", "cache_of", "of_client"]
