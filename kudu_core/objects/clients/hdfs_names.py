"""Which files an object has on HDFS, and which versions they are.

Names of objects have no ``~``: what has one is never an object, and no listing shows it.

* ``<root>/<path>`` is version 0; it is there as long as the object is.
* ``<root>/<path>~versions/<life>-<n>`` is the n-th replacement under a condition, ``n`` with 20 digits, so
  that names rise as the numbers do: a listing that takes several requests then misses none that was there.
  ``life`` is a hash of version 0, so that an object which was deleted and made anew, or overwritten, has
  nothing of the one before it: neither its versions nor a number that somebody still waits to use.
* ``<root>/~tmp/<random>`` is being written.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

MARK: Final = "~"
_VERSIONS: Final = "~versions"
_TEMPORARY: Final = "~tmp"
_FILE = re.compile(r"([0-9a-f]{32})-([0-9]{20})")


class Life(NamedTuple):
    """A version: the n-th of an object that began as ``of``."""

    of: str
    n: int

    def __str__(self) -> str:
        """As ``Requests`` know it."""
        return f"{self.n}-{self.of}"


def begun_as(data: bytes) -> str:
    """``life`` of an object whose version 0 has these bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class Names:
    """The files below a root, which has no ``/`` at its end."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.temporary = f"{root}/{_TEMPORARY}"

    def first(self, path: str) -> str:
        return f"{self.root}/{path}"

    def versions(self, path: str) -> str:
        """The folder of an object's replacements."""
        return f"{self.root}/{path}{_VERSIONS}"

    def version(self, path: str, life: Life) -> str:
        return f"{self.versions(path)}/{life.of}-{life.n:020}" if life.n else self.first(path)

    def folder(self, prefix: str) -> str:
        """What a listing begins at; the root of a file system is ``/``."""
        return (f"{self.root}/{prefix}" if prefix else self.root) or "/"

    def path_of(self, file: str) -> str:
        return file[len(self.root) + 1 :]


def object_of(folder: str) -> str | None:
    """The object whose versions a folder holds."""
    return folder.removesuffix(_VERSIONS) if folder.endswith(_VERSIONS) else None


def life_of(file: str) -> Life | None:
    """What a file in a folder of versions is; None: none of ours."""
    found = _FILE.fullmatch(file.rsplit("/", 1)[-1])
    return Life(found[1], int(found[2])) if found else None


def newest(of: str, there: Iterable[Life]) -> Life:
    """The newest version of a life; where there is no replacement, version 0."""
    return max((each for each in there if each.of == of), default=Life(of, 0))


__all__ = ["MARK", "Life", "Names", "begun_as", "life_of", "newest", "object_of"]
