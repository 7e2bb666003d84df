"""Errors across Spark's processes.

Spark carries the text of an exception from its Python processes to the user, not its class.  So
each message begins with a code, ``[KUDU_LOCKED] ...``, and where our own functions run on the
driver the class is found again by it.  The text is Python's print of the exception, a traceback with the
message at its end; users are to read the message first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from kudu_core import errors
from kudu_core.errors import KuduError

_CODE = re.compile(r"\[KUDU_([A-Z_]+)\] ([^\n]*)")
_DAMAGE = re.compile(r"(.+?) at byte (\d+): (.*)")
# Those that are made of a message alone.
_CLASSES: dict[str, type[KuduError]] = {
    cls.__name__: cls
    for cls in (
        errors.InvalidArgument,
        errors.SchemaMismatch,
        errors.TokenMismatch,
        errors.TableNotFound,
        errors.SnapshotTooOld,
        errors.ChangesLost,
        errors.SnapshotInFuture,
        errors.Fenced,
        errors.ReadOnly,
        errors.Closed,
        errors.Poisoned,
        errors.NotSupported,
        errors.MemoryLimit,
    )
}


class SparkTaskError(KuduError):
    """An error of the package on its way through Spark; the message begins with its code.

    Python prints what caused an exception before the exception itself, and of a cause that was raised nowhere
    the message alone: such a one stands here.  As a property, since Spark sets the cause to None where it
    shortens tracebacks, which it does unless told otherwise.
    """

    def __init__(self, message: str, first: BaseException | None = None) -> None:
        super().__init__(message)
        self._first = first

    @property
    def __cause__(self) -> BaseException | None:
        return self._first

    @__cause__.setter
    def __cause__(self, cause: BaseException | None) -> None:
        """Of what ``raise`` and Spark say here nothing is printed."""


def on_its_way(error: KuduError) -> SparkTaskError:
    """An error as Spark is to carry it: its message first, then all of its traceback."""
    said = str(error)
    notes = getattr(error, "__notes__", ())
    if notes and said[-1:] not in (".", "?", "!"):
        said += "."
    message = " ".join([f"[{code_of(error)}] {said}", *notes])
    kind = type(error)
    first = type(kind.__name__, (Exception,), {"__module__": kind.__module__})(message)
    return SparkTaskError(message, first).with_traceback(error.__traceback__)


def code_of(error: BaseException) -> str:
    """Such as ``KUDU_SNAPSHOT_TOO_OLD``."""
    return "KUDU" + re.sub(r"(?=[A-Z])", "_", type(error).__name__).upper()


@contextmanager
def coded() -> Iterator[None]:
    """Around code that runs in a process of Spark's: messages get their code."""
    try:
        yield
    except SparkTaskError:
        raise
    except KuduError as exc:
        raise on_its_way(exc) from exc


@contextmanager
def uncoded() -> Iterator[None]:
    """Around an action of Spark's on the driver: an error of ours in a task is raised as itself."""
    try:
        yield
    except PySparkException as exc:
        cause = original(exc)
        if cause is None:
            raise
        raise cause from exc


def original(error: BaseException) -> KuduError | None:
    """The exception whose code Spark's text holds; None when it holds none."""
    found = _CODE.search(str(error))
    if found is None:
        return None
    name = "".join(part.capitalize() for part in found[1].split("_"))
    if name == errors.Corruption.__name__:
        where = _DAMAGE.fullmatch(found[2].strip())
        if where is not None:
            return errors.Corruption(where[1], int(where[2]), where[3])
    return _CLASSES.get(name, KuduError)(found[2].strip())
