"""Which client a URL has, and that of S3, Google Cloud Storage and Azure Blob: ``Requests`` over obstore, an
optional package.  That of HDFS is ``clients/hdfs_requests.py``.

obstore repeats requests by itself unless told not to, and then says of our own object, whose answer was lost,
that another's is there.  So each call here is one request, or one wave of them, and ``repeating.py`` repeats.

A version is the etag on S3 and Azure, and on Google, whose conditions know no etags, the generation.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from kudu_core.errors import Corruption, InvalidArgument, NotSupported, StoreError
from kudu_core.objects.answers import Beyond, meaning
from kudu_core.objects.api import Always, Entry, Unknown
from kudu_core.objects.cache_options import of_client
from kudu_core.objects.clients.after_fork import about_to_ask, check_process
from kudu_core.objects.fetching import cut, planned
from kudu_core.objects.repeating import DEADLINE_S, RepeatingStore
from kudu_core.objects.tally import Tally
from kudu_core.objects.urls import StoreUrl, parse

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.objects.answers import Asked
    from kudu_core.objects.api import Condition, PutIdOf, Requests, Version

_T = TypeVar("_T")

EXTRAS = {"s3": "s3", "gs": "gcs", "az": "azure", "abfss": "azure"}
"""Scheme -> the extra of the package that brings its client."""
_ENVIRONMENT = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_", "abfss": "AZURE_"}
"""Scheme -> what the variables begin with that its client knows."""
REQUEST_S, CONNECT_S = 30, 5
"""How long a request, and the making of a connection, may take, unless ``client_options`` say otherwise."""
_MOST_KEYS = {"s3": 1000, "gs": 1000, "az": 256, "abfss": 256}
"""How many objects are deleted at once: by one request, but of Google by one for each, some side by side."""
_MOST_LISTED = 1000


def open_store(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    put_id_of: PutIdOf,
    clock: Clock,
    deadline_s: float = DEADLINE_S,
) -> RepeatingStore:
    """The store at a URL; its root is the URL's folder.  Nothing is asked of it yet.

    ``storage_options`` are the client's own keys (``access_key_id``, ``endpoint``, ``region``, ...); where
    they say nothing, the environment, profiles and the machine's role do.  ``client_options`` in them is a
    mapping for its HTTP client: ``timeout``, ``proxy_url``, ...  An endpoint with ``http://`` is taken at its
    word.

    Of ``hdfs://`` they are keys of Hadoop's configuration (``clients/hdfs_client.py``).

    ``InvalidArgument`` for a URL or an option that is none; ``NotSupported`` where the client is not
    installed, and in the child of a fork.
    """
    requests = requests_at(parse(url), storage_options)
    return RepeatingStore(requests, put_id_of, clock, deadline_s=deadline_s, spread=random.random)


def requests_at(place: StoreUrl, storage_options: Mapping[str, Any] | None = None) -> Requests:
    """The client of a place's scheme.  Errors are as of ``open_store``."""
    options = of_client(storage_options)
    if place.scheme == "hdfs":
        from kudu_core.objects.clients.hdfs_client import connected

        return connected(place, options)
    return ObstoreRequests(place, _made(place, options))


def _made(url: StoreUrl, options: dict[str, Any]) -> Any:
    """obstore's store."""
    check_process()
    try:
        from obstore import exceptions
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError:
        raise NotSupported(
            f"{url.scheme}:// needs the package obstore: pip install 'kudu-core[{EXTRAS[url.scheme]}]'"
        ) from None
    plain = any("http://" in value for value in options.values() if isinstance(value, str))
    plain |= "endpoint" not in options and _is_plain_in_environment(url.scheme)
    client_options = {
        "timeout": timedelta(seconds=REQUEST_S),
        "connect_timeout": timedelta(seconds=CONNECT_S),
        **({"allow_http": True} if plain else {}),
        **options.pop("client_options", {}),
    }
    if url.host is not None:
        account, _, domain = url.host.partition(".dfs.")
        options.setdefault("account_name", account)
        if domain != "core.windows.net":
            options.setdefault("endpoint", f"https://{account}.blob.{domain}")
    store = {"s3": S3Store, "gs": GCSStore}.get(url.scheme, AzureStore)
    try:
        return store(
            url.bucket,
            prefix=url.prefix or None,
            client_options=client_options,
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=REQUEST_S)},
            **options,
        )
    except exceptions.UnknownConfigurationKeyError as error:
        raise InvalidArgument(f"{url.scheme}:// has no such storage option: {_first_line(error)}") from None
    except (exceptions.BaseError, ValueError, TypeError) as error:
        raise InvalidArgument(f"storage_options do not fit {url}: {_first_line(error)}") from None


def _is_plain_in_environment(scheme: str) -> bool:
    """Whether the environment, from which the client takes what it is not given, has a plain endpoint."""
    prefix = _ENVIRONMENT[scheme]
    return any(
        name.startswith(prefix) and "ENDPOINT" in name and value.startswith("http://")
        for name, value in os.environ.items()
    )


class ObstoreRequests:
    """See the module and ``api.Requests``."""

    def __init__(self, url: StoreUrl, store: Any) -> None:
        self._url = url
        self._bucket = f"{url.scheme}://{url.bucket}"
        self._store = store
        self._version_key = "version" if url.scheme == "gs" else "e_tag"
        self._tally = Tally()

    def get(self, path: str, limit: int | None) -> tuple[bytes, Version]:
        import obstore

        self._tally.sent("get")

        def read() -> tuple[bytes, Any]:
            found = obstore.get(self._store, path)
            meta = found.meta
            if limit is not None and meta["size"] > limit:
                raise Corruption(path, limit, f"the object is longer than {limit} bytes")
            data = bytes(found.bytes())
            if len(data) != meta["size"]:
                raise Unknown(f"{len(data)} of {meta['size']} bytes arrived")
            return data, meta

        data, meta = self._asked(read, path)
        self._tally.moved("get", len(data))
        return data, self._version_of(meta, path)

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        plan = planned(ranges)
        try:
            pieces = self._fetched(path, plan)
        except Beyond:
            pieces = [self._fetched_or_nothing(path, each) for each in plan]
        return cut(ranges, plan, pieces)

    def _fetched(self, path: str, plan: Sequence[tuple[int, int]]) -> list[bytes]:
        import obstore

        self._tally.sent("get", len(plan))
        starts, lengths = [each[0] for each in plan], [each[1] for each in plan]
        pieces = self._asked(
            lambda: obstore.get_ranges(self._store, path, starts=starts, lengths=lengths, coalesce=0),
            path,
            "range",
        )
        found = [bytes(piece) for piece in pieces]
        self._tally.moved("get", sum(map(len, found)))
        return found

    def _fetched_or_nothing(self, path: str, wanted: tuple[int, int]) -> bytes:
        try:
            return self._fetched(path, [wanted])[0]
        except Beyond:
            return b""

    def put(self, path: str, data: bytes, condition: Condition) -> Version:
        import obstore

        mode: Any = {self._version_key: condition}
        if isinstance(condition, Always):
            mode = "overwrite"
        elif condition is None:
            mode = "create"
        self._tally.sent("put")
        self._tally.moved("put", len(data))
        meta = self._asked(
            lambda: obstore.put(self._store, path, data, mode=mode, use_multipart=False), path, "put"
        )
        return self._version_of(meta, path)

    def delete(self, paths: Sequence[str]) -> None:
        most = _MOST_KEYS[self._url.scheme]
        for at in range(0, len(paths), most):
            some = list(paths[at : at + most])
            try:
                self._delete(some)
            except FileNotFoundError:
                # Of one of them, or so it says; what became of the others it does not.
                for path in some if len(some) > 1 else ():
                    self._delete_or_miss(path)

    def _delete(self, paths: list[str]) -> None:
        import obstore

        self._tally.sent("delete", len(paths) if self._url.scheme == "gs" else 1)
        self._asked(lambda: obstore.delete(self._store, paths), paths[0])

    def _delete_or_miss(self, path: str) -> None:
        try:
            self._delete([path])
        except FileNotFoundError:
            return

    def list(self, prefix: str) -> list[Entry]:
        import obstore

        found = self._asked(lambda: obstore.list(self._store, prefix or None).collect(), prefix)
        self._tally.sent("list", max(1, -(-len(found) // _MOST_LISTED)))
        return [Entry(each["path"], each["size"], each["last_modified"].timestamp()) for each in found]

    def counts(self) -> dict[str, int]:
        return self._tally.now()

    def tell_repeated(self) -> None:
        self._tally.repeated()

    def _asked(self, request: Callable[[], _T], path: str, asked: Asked = "other") -> _T:
        about_to_ask()
        from obstore.exceptions import BaseError

        try:
            return request()
        except (BaseError, FileNotFoundError) as error:
            raise meaning(error, self._bucket, path, asked) from None

    def _version_of(self, meta: Any, path: str) -> Version:
        version = meta[self._version_key]
        if not isinstance(version, str) or not version:
            raise StoreError(f"{self._bucket} gives {path} no version ({json.dumps(sorted(meta))})")
        return version


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:200]


if TYPE_CHECKING:

    def _checked(store: ObstoreRequests) -> Requests:
        return store


__all__ = ["ObstoreRequests", "open_store", "requests_at"]
