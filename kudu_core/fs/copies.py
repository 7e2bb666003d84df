"""Second copies of the small files on which a table depends: a repair reads them, no open (protocol S3).

Not synced: a copy is there to outlive damage to the file, and what a power cut may take is not damage.  One
that cannot be written stays as it was, or is missing: nothing depends on it.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from kudu_core.fs.base import temporary_name

if TYPE_CHECKING:
    from kudu_core.fs.api import Data, FileSystem


def copy_of(path: str) -> str:
    """The name of a file's copy."""
    return f"{path}.copy"


def keep_copy(fs: FileSystem, path: str, data: Data) -> None:
    """Put what a file was just replaced by beside it once more."""
    path = copy_of(path)
    temporary = temporary_name(path, uuid4().hex)
    with suppress(OSError):
        try:
            with closing(fs.create(temporary)) as file:
                file.append(data)
            fs.rename(temporary, path)
        except OSError:
            fs.unlink(temporary, missing_ok=True)


__all__ = ["copy_of", "keep_copy"]
