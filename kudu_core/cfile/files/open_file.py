"""A file that is open for reading, of whichever kind: opened by its path, or around a container.

What is in it is ``rows_file``'s and ``delta_file``'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Self

from kudu_core.cfile.pages.container import FileReader

if TYPE_CHECKING:
    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.common.types.types import ColumnType
    from kudu_core.fs.api import FileSystem


class OpenFile(ABC):
    """What each kind of file is built on; its container, ``file``, is closed if the footer is not sound."""

    KIND: ClassVar[int]
    _types: Mapping[int, ColumnType] = MappingProxyType({})

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        cache: PageCache | None = None,
        *,
        size: int | None = None,
        footer_crc: int | None = None,
        tail: int = 0,
        types: Mapping[int, ColumnType] = MappingProxyType({}),
    ) -> None:
        """``types``: by id, of columns that are read as these, whatever they lie in the file as."""
        self._types = types
        told = ", ".join(f"{i} {types[i].name}" for i in sorted(types))
        file = FileReader(
            fs,
            path,
            self.KIND,
            size=size,
            footer_crc=footer_crc,
            tail=tail,
            cache=cache,
            variant=told.encode(),
        )
        self._take(file)

    @classmethod
    def of(cls, file: FileReader, types: Mapping[int, ColumnType] = MappingProxyType({})) -> Self:
        """What is in a container that is open, which is closed with it, or if it is of another kind."""
        opened = cls.__new__(cls)
        opened._types = types
        opened._take(file)
        return opened

    def _take(self, file: FileReader) -> None:
        self.path = file.path
        self.file = file
        try:
            self._open()
        except BaseException:
            file.close()
            raise

    @abstractmethod
    def _open(self) -> None:
        """Take over what the footer says, and refuse what it cannot say."""

    @abstractmethod
    def uncached(self) -> Self:
        """The same, read past the page cache; open as long as this one."""

    @abstractmethod
    def let_go(self) -> None:
        """See ``FileReader.let_go``."""

    @abstractmethod
    def close(self) -> None:
        """Idempotent; reads after it raise ``Closed``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
