"""``cached_property`` without a lock.

That of ``functools`` has, in Python 3.11, one lock for all instances of a class: a child of a fork may find
it held by a thread that it does not have, and threads that work on different tables wait for each other.
Here two threads may compute a value at the same time; the values are equal, and either is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """A value that is computed when it is first asked for, and then lies in the instance's ``__dict__``."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> T | cached_property[T]:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


__all__ = ["cached_property"]
