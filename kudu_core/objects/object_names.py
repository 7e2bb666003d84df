"""Which names objects may have: those that every store, and every client of one, takes as they are."""

from __future__ import annotations

import re

from kudu_core.errors import InvalidArgument

_PATH = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*", re.ASCII)
_LONGEST = 900  # with a bucket's prefix before it, under the 1,024 bytes of S3, Google and Azure


def checked_path(path: str) -> None:
    """``InvalidArgument`` for what is no path of an object (``api``)."""
    if len(path) > _LONGEST or not _PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise InvalidArgument(f"{path[:200]!r} is no path of an object")


def checked_folder(prefix: str) -> None:
    """``InvalidArgument`` for what is no folder of objects; "" is all of them."""
    if prefix:
        checked_path(prefix)


__all__ = ["checked_folder", "checked_path"]
