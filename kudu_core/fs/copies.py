"""Second copies of the small files on which a table depends: a repair reads them, no open (protocol S3).

Not synced: a copy is there to outlive damage to the file, and what a power cut may take is not damage.  One
that cannot be written, also because something else stands in its place, stays as it was, or is missing:
nothing depends on it.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from kudu_core.errors import KuduError
from kudu_core.fs.base import temporary_name

if TYPE_CHECKING:
    from kudu_core.fs.api import Data, FileSystem


_REFUSED = (OSError, KuduError)


def copy_of(path: str) -> str:
    """The name of a file's copy."""
    return f"{path}.copy"


def keep_copy(fs: FileSystem, path: str, data: Data) -> None:
    """Put what a file was just replaced by beside it once more."""
    path = copy_of(path)
    temporary = temporary_name(path, uuid4().hex)
    with suppress(*_REFUSED):
        try:
            with closing(fs.create(temporary)) as file:
                file.append(data)
            fs.rename(temporary, path)
        except _REFUSED:
            fs.unlink(temporary, missing_ok=True)


def extend_copy(fs: FileSystem, path: str, data: Data, at: int) -> None:
    """Append what was just appended to a file at ``at``; a copy that lacks something before it stays as it
    is."""
    with suppress(*_REFUSED), closing(fs.open_write(copy_of(path))) as file:
        if file.size() == at:
            file.append(data)


__all__ = ["copy_of", "extend_copy", "keep_copy"]
