"""What the client's errors mean.

obstore tells most of an answer in its text alone, and in places its type says something else: a bucket that
is gone is "precondition failed" to a put on a version, and "not found", as an object is, to a GET.  So the
status and the code that the store has sent decide, and types only where there are none.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from kudu_core.errors import InvalidArgument, StoreDenied, StoreError
from kudu_core.objects.api import Unknown, Unmet

NO_BUCKET = {
    "NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled", "AccountNotFound",
}  # fmt: skip
OTHER_REGION = {
    "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect",
    "TemporaryRedirect", "AuthorizationQueryParametersError",
}  # fmt: skip
DENIED = {
    "ExpiredToken": "they have expired",
    "ExpiredTokenException": "they have expired",
    "TokenRefreshRequired": "they have expired",
    "InvalidToken": "their session token is wrong",
    "InvalidAccessKeyId": "there is no such access key",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "AuthenticationFailed": "the key of the account is wrong",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "AccessDenied": "they lack a right",
    "AuthorizationFailure": "they lack a right",
    "AuthorizationPermissionMismatch": "they lack a right",
}
"""Code of the store -> what it says of the credentials."""
PATIENCE = {
    "RequestTimeout", "SlowDown", "TooManyRequests", "ServerBusy", "OperationTimedOut", "InternalError",
    "OperationAborted", "IncompleteBody",
}  # fmt: skip
LACKING = {"NotImplemented", "UnsupportedHeader", "MethodNotAllowed"}

Asked: TypeAlias = Literal["put", "range", "other"]

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([\w.-]+)\s*</Code>")
_MESSAGE = re.compile(r"<Message>\s*([^<]*)")
_OF_CREDENTIALS = re.compile(
    r"token request|169\.254\.169\.254|metadata\.google|/latest/(api/token|meta-data)|/oauth2/|/msi/"
    r"|AssumeRoleWithWebIdentity|credentials? (provider|process)|default credentials|CredentialProvider",
    re.IGNORECASE,
)
_LONGEST = 300


class Beyond(Exception):
    """A range that begins at the end of its object, or behind it."""


class Said(NamedTuple):
    """What a text of an error says: the status and the code of the store, None where it says none."""

    status: int | None
    code: str | None
    text: str


def said_in(error: BaseException) -> Said:
    text = str(error).split("\n\nDebug source")[0]
    status, code = _STATUS.search(text), _CODE.search(text)
    return Said(int(status[1]) if status else None, code[1] if code else None, text)


def meaning(error: BaseException, bucket: str, path: str, asked: Asked) -> Exception:
    """The error that it is here; what has no answer is ``Unknown``.  ``bucket`` is for people."""
    answer = said_in(error)
    status, code, text = answer
    said = _said(answer)
    if _OF_CREDENTIALS.search(text) and (status is None or 400 <= status < 500) and status != 429:
        return StoreDenied(
            f"{bucket}: no credentials were found: give them in storage_options or the environment ({said})"
        )
    if code in NO_BUCKET:
        return StoreError(f"there is no bucket {bucket} ({said})")
    if code in OTHER_REGION or "without LOCATION" in text or status in (301, 307, 308):
        return StoreError(f"{bucket} is in another region, or at another endpoint, than was given ({said})")
    if code in PATIENCE or status in (408, 429):
        return Unknown(said)
    if code in DENIED or status in (401, 403):
        why = DENIED.get(code or "", "they are wrong, or lack a right")
        return StoreDenied(f"{bucket} refuses the credentials: {why} ({said})")
    if code in LACKING or status in (405, 501):
        return StoreError(f"{bucket} does not support what is asked of it ({said})")
    if status is not None:
        return _by_status(status, code, bucket, path, said, asked)
    return _without_status(error, bucket, path, said)


def _by_status(
    status: int, code: str | None, bucket: str, path: str, said: str, asked: Asked
) -> Exception:
    if status == 404:
        if code is None:
            return StoreError(
                f"{bucket} answers 404 and does not say that there is no such object: is this the endpoint "
                f"of a store? ({said})"
            )
        return FileNotFoundError(2, "no such object", path)
    if status in (304, 409, 412):
        return Unmet(said) if asked == "put" else Unknown(said)
    if status == 416 and asked == "range":
        return Beyond(path)
    if status >= 500:
        return Unknown(said)
    return StoreError(f"{bucket} refuses {path} ({said})")


def _without_status(error: BaseException, bucket: str, path: str, said: str) -> Exception:
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(2, "no such object", path)
    if kind in ("AlreadyExistsError", "PreconditionError"):
        return Unmet(said)
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return StoreDenied(f"{bucket} refuses the credentials ({said})")
    if kind == "NotSupportedError":
        return StoreError(f"{bucket} does not support what is asked of it ({said})")
    if "builder error" in said:
        return InvalidArgument(f"{bucket}: no request could be made of what was given ({said})")
    return Unknown(said)


def _said(answer: Said) -> str:
    """An answer for people: short, on one line."""
    message = _MESSAGE.search(answer.text)
    if answer.status is not None:
        parts = [str(answer.status), answer.code, message[1].strip() if message else None]
        return " ".join(part for part in parts if part)[:_LONGEST]
    return " ".join(answer.text.split())[:_LONGEST]


__all__ = ["Asked", "Beyond", "meaning"]
