"""``kudu_core.check_store``: whether an object store is safe for tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kudu_core.common.run.clock import Clock
from kudu_core.errors import InvalidArgument
from kudu_core.objects.check_store import StoreReport, check, put_id_of
from kudu_core.objects.client import open_store
from kudu_core.objects.urls import parse

_DEADLINE_S = 20.0


def check_store(
    url: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    seconds: float = 3.0,
    threads: int = 16,
    _clock: Clock | None = None,
) -> StoreReport:
    """Check whether an object store keeps the promises on which tables rest, and name those that it breaks.

    Threads race for names and replace one object under conditions; objects are read whole and in ranges,
    listed and deleted.  All of it in a new folder below the URL, which is empty again afterwards.  What is
    found is proof; that nothing is found is none: a longer check finds more.

    >>> kc.check_store("s3://bucket/folder", {"region": "eu-central-1"}).broken  # doctest: +SKIP
    {}

    Parameters
    ----------
    url
        `s3://`, `gs://`, `az://` or `abfss://`.
    storage_options
        The client's keys: `access_key_id`, `secret_access_key`, `endpoint`, `region`, ...; without them it
        asks the environment, profiles and the machine's role.
    seconds
        How long the races take.  3 is the short form; a store to be trusted with data deserves minutes.
    threads
        How many race.

    Raises
    ------
    StoreDenied, StoreUnavailable, StoreError
        Nothing can be said of the store: it refuses the credentials, or does not answer, or there is no such
        bucket.
    InvalidArgument
        The URL or an option is none.
    NotSupported
        The client is not installed, there is none for `hdfs://` yet, or this process is the child of a fork.
    """
    if not 1 <= threads <= 256 or not 0 < seconds <= 86_400:
        raise InvalidArgument(f"threads is 1 to 256 and seconds above 0, not {threads!r} and {seconds!r}")
    place, clock = parse(url), _clock or Clock()
    folder = f"{place}/check-{os.urandom(6).hex()}"
    store = open_store(folder, storage_options, put_id_of=put_id_of, timer=clock, deadline_s=_DEADLINE_S)
    return check(store, str(place), clock, threads=threads, seconds=seconds)


__all__ = ["check_store"]
