"""What the errors of hdfs-native mean.

It tells what Java has thrown at the name node as text, ``RPCError("<class>", "<message and stack>")``, and
its own errors by the name that they have in Rust: ``DataTransferError("...")``, ``ChecksumError``.  Missing
and existing files have Python's exceptions; what went wrong on the way is an ``OSError`` without a number.

What a class of Java says decides, and where there is none the kind of the error.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kudu_core.errors import KuduError, StoreDenied, StoreError
from kudu_core.objects.api import Unknown, Unmet

PATIENCE: Final = {
    "SafeModeException", "StandbyException", "RetriableException", "ObserverRetryOnActiveException",
    "NotReplicatedYetException", "RecoveryInProgressException", "LeaseExpiredException", "EOFException",
    "SocketTimeoutException", "ConnectException", "InterruptedIOException", "ClosedChannelException",
    "NoRouteToHostException", "ReplicaNotFoundException", "RpcNoSuchProtocolException",
}  # fmt: skip
"""Exceptions of Java after which the same may succeed later."""
DENIED: Final = {
    "AccessControlException", "AuthorizationException", "SaslException", "GSSException", "InvalidToken",
    "SecretManager$InvalidToken",
}  # fmt: skip
_OF_CREDENTIALS: Final = {"SASLError", "GSSAPIError", "NoSASLMechanism"}
"""Of the client itself."""
_FINAL: Final = {
    "InvalidArgument", "InvalidPath", "UrlParseError", "UnsupportedErasureCodingPolicy", "UnsupportedFeature",
}  # fmt: skip
_NOT_A_FOLDER: Final = "(is not a directory)"
_NO_NODE: Final = "could only be written to 0 of the"

_OF_JAVA = re.compile(r'^(?:Fatal)?RPCError\("([\w.$]+)", "(.*)"\)$', re.DOTALL)
_OF_RUST = re.compile(r"^([A-Z]\w+)(?:\((.*)\))?$", re.DOTALL)
_LONGEST = 300


class HdfsSaid(NamedTuple):
    """``kind`` is a class of Java, without its package, or an error of the client; None: neither."""

    kind: str | None
    of_java: bool
    text: str


def said_in(error: BaseException) -> HdfsSaid:
    """What a text of an error says, without the stack of Java."""
    whole = str(error)
    java = _OF_JAVA.match(whole)
    if java is not None:
        name = java[1].rsplit(".", 1)[-1]
        return HdfsSaid(name, True, f"{name}: {_short(java[2])}")
    rust = _OF_RUST.match(whole) if isinstance(error, RuntimeError) else None
    if rust is None:
        return HdfsSaid(None, False, _short(whole))
    return HdfsSaid(rust[1], False, ": ".join([rust[1], *([_short(rust[2].strip('"'))] if rust[2] else [])]))


def is_below_a_file(error: BaseException) -> bool:
    """Whether a path leads through an object: then nothing is there."""
    said = said_in(error)
    return said.kind in ("AccessControlException", "ParentNotDirectoryException") and (
        _NOT_A_FOLDER in said.text
    )


def is_of_a_full_folder(error: BaseException) -> bool:
    """Whether what was to be deleted is a folder with something in it."""
    return said_in(error).kind == "PathIsNotEmptyDirectoryException"


def meaning(error: Exception, place: str, path: str) -> Exception:
    """The error that it is here; what has no answer is ``Unknown``.  ``place`` is for people."""
    if isinstance(error, (KuduError, Unknown, Unmet)):
        return error
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(2, "no such object", path)
    kind, of_java, text = said_in(error)
    if isinstance(error, NotImplementedError):
        return StoreError(f"{place}: the client of HDFS does not support {text}")
    if isinstance(error, (FileExistsError, IsADirectoryError)) or is_below_a_file(error):
        return StoreError(
            f"{place} refuses {path}: an object has not the name of a folder, nor lies below another ({text})"
        )
    if kind in DENIED or kind in _OF_CREDENTIALS:
        return StoreDenied(f"{place} refuses the credentials: they are wrong, or lack a right ({text})")
    if of_java and (kind in PATIENCE or _NO_NODE in text):
        return Unknown(text)
    if of_java or kind in _FINAL:
        return StoreError(f"{place} refuses {path} ({text})")
    return Unknown(text or type(error).__name__)


def _short(text: str) -> str:
    """For people: on one line."""
    first = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').split("\n\tat ", 1)[0]
    first = first.split(": [DatanodeInfoProto", 1)[0]  # all that is known of each
    return " ".join(first.split())[:_LONGEST]


__all__ = ["is_below_a_file", "is_of_a_full_folder", "meaning", "said_in"]
