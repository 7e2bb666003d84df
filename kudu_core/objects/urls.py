"""Which strings name a place in an object store, and which a folder of the machine.

What has ``://`` is never a folder.  Nothing is looked up here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kudu_core.errors import InvalidArgument, NotSupported

SCHEMES = {
    "s3": "s3://bucket/folder",
    "gs": "gs://bucket/folder",
    "az": "az://container/folder",
    "abfss": "abfss://container@account.dfs.core.windows.net/folder",
    "hdfs": "hdfs://namenode:8020/folder",
}
"""Scheme -> what its URLs look like."""

_OTHER_NAMES = {
    "s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "adl": "abfss", "wasb": "abfss", "wasbs": "abfss",
    "abfs": "abfss", "viewfs": "hdfs", "webhdfs": "hdfs",
}  # fmt: skip
"""How others call the same."""

_URL = re.compile(r"([^:/]*)://(.*)", re.DOTALL)
_ONE_SLASH = re.compile(rf"({'|'.join([*SCHEMES, *_OTHER_NAMES])}):/(?!/)", re.IGNORECASE)
_PLACES = {
    "s3": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}"),
    "gs": re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
    "az": re.compile(r"\$?[a-z0-9][a-z0-9-]{0,62}"),
    "abfss": re.compile(r"\$?[a-z0-9][a-z0-9-]{0,62}@[a-z0-9]{3,24}\.dfs\.[a-z0-9.-]+"),
    "hdfs": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?"),
}
"""Scheme -> what may stand between ``://`` and the next ``/``."""
_NAME = re.compile(r"[A-Za-z0-9._=@+, ~()!'*-]+")


class StoreUrl(NamedTuple):
    """A place in a store.  ``prefix`` has no ``/`` at either end; "" is the whole bucket.

    ``bucket`` is what Azure calls a container, and of HDFS the name node with its port.  ``host`` is only
    abfss's, the account's.
    """

    scheme: str
    bucket: str
    prefix: str
    host: str | None = None

    def __str__(self) -> str:
        place = self.bucket if self.host is None else f"{self.bucket}@{self.host}"
        return f"{self.scheme}://{place}/{self.prefix}".rstrip("/")


def is_url(text: str) -> bool:
    """Whether it is no path of the machine."""
    return "://" in text or _ONE_SLASH.match(text) is not None


def parse(text: str) -> StoreUrl:
    """The place that a URL names; ``InvalidArgument`` says what is wrong with it."""
    if _ONE_SLASH.match(text):
        raise InvalidArgument(
            f"{_shown(text)} has one slash behind its scheme: a URL is given as str, pathlib takes one away"
        )
    match = _URL.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"{_shown(text)} is no URL; those of stores are {', '.join(SCHEMES.values())}")
    scheme, rest = match[1].lower(), match[2]
    if scheme not in SCHEMES:
        raise InvalidArgument(f"{_shown(text)}: {_hint(scheme, rest)}")
    place, _, path = rest.partition("/")
    if not _PLACES[scheme].fullmatch(place):
        looks = SCHEMES[scheme]
        if "@" in place and scheme != "abfss":
            raise InvalidArgument(f"a {scheme} URL has no @; credentials go into storage_options: {looks}")
        raise InvalidArgument(f"{_shown(text)} names no {scheme} bucket; such a URL looks like {looks}")
    names = path.removesuffix("/").split("/") if path.strip("/") else []
    for name in names:
        if not _NAME.fullmatch(name) or name in (".", "..") or name != name.strip():
            raise InvalidArgument(f"{_shown(text)} has {name!r} for a name in its path; that is not possible")
    bucket, _, host = place.partition("@")
    return StoreUrl(scheme, bucket, "/".join(names), host or None)


def refuse_url(text: str) -> None:
    """For what can only be a folder of this machine yet: ``NotSupported`` for a place in a store,
    ``InvalidArgument`` for what is neither."""
    if is_url(text):
        url = parse(text)
        raise NotSupported(
            f"{url}: this works on folders of this machine; a table in an object store can be made, opened, "
            "written, read and backed up, but not yet this"
        )


def _shown(text: str) -> str:
    """A URL for a message, without what may be a password in it."""
    return repr(re.sub("//[^/@]*:[^/@]*@", "//...@", text))


def _hint(scheme: str, rest: str) -> str:
    if scheme == "file":
        return f"give a folder of this machine without its scheme: /{rest.lstrip('/')}"
    if scheme in _OTHER_NAMES:
        right = _OTHER_NAMES[scheme]
        return f"here such a store is called {right}: {SCHEMES[right]}"
    return f"no scheme {scheme!r}; there are {', '.join(f'{name}://' for name in SCHEMES)}"


__all__ = ["SCHEMES", "StoreUrl", "is_url", "parse", "refuse_url"]
