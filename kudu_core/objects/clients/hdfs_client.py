"""How a client of HDFS is made: hdfs-native, an optional package, in Rust; it needs no JVM.

Its ``AsyncClient`` is not used: where a connection is refused it panics, because it sleeps outside of its own
threads (0.14.7).

**It repeats by itself.**  A call whose connection breaks is sent again, once at least, and where there is
another name node, to that: so a rename that was applied may come back as "its source is not found".  That
cannot be switched off, and ``HdfsRequests`` takes such an answer for none.  Its pauses are cut short, for
``repeating.py`` has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from kudu_core.errors import InvalidArgument, NotSupported
from kudu_core.objects.clients.after_fork import check_process
from kudu_core.objects.clients.hdfs_answers import said_in
from kudu_core.objects.clients.hdfs_requests import HdfsRequests

if TYPE_CHECKING:
    from kudu_core.objects.clients.hdfs_api import HdfsClient
    from kudu_core.objects.urls import StoreUrl

_OF_KERBEROS: Final = ("kerberos_principal", "kerberos_keytab", "kerberos_cache")
"""Options that are not keys of Hadoop's: the client has parameters for them."""

_USUAL: Final = {
    "dfs.client.failover.max.attempts": "3",  # 15 for the client: three minutes before it says anything
    "dfs.client.failover.sleep.base.millis": "50",
    "dfs.client.failover.sleep.max.millis": "1000",
}
"""Before what HADOOP_CONF_DIR says, which is meant for programs that repeat nothing themselves."""

_OF_THE_ACTIVE: Final = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
"""Others ask observers too, who may not have heard of what another client has written."""
_COMPILED: Final = attrgetter("inner")
"""The client in Rust of the one in Python."""


def connected(url: StoreUrl, options: Mapping[str, Any]) -> HdfsRequests:
    """The client of a place; nothing is asked of it yet.

    ``options`` are keys of Hadoop's configuration (``dfs.client.use.datanode.hostname``, ...) before those
    of the files in HADOOP_CONF_DIR, and ``kerberos_principal``, ``kerberos_keytab``, ``kerberos_cache``.
    ``InvalidArgument`` for others, and where no name node is known; ``NotSupported`` where the package is not
    installed.
    """
    check_process()
    try:
        from hdfs_native import Client, WriteOptions
    except ImportError:
        raise NotSupported("hdfs:// needs the package hdfs-native: pip install 'kudu-core[hdfs]'") from None
    for key, value in options.items():
        if not isinstance(key, str) or ("." not in key and key not in _OF_KERBEROS):
            raise InvalidArgument(
                f"hdfs:// has no such storage option: {key!r}; they are keys of Hadoop's configuration, such "
                f"as dfs.client.use.datanode.hostname, and {', '.join(_OF_KERBEROS)}"
            )
        if not isinstance(value, str):
            raise InvalidArgument(f"storage options of hdfs:// are str, and {key} is not: {value!r}")
    of_kerberos = {key: options[key] for key in _OF_KERBEROS if key in options}
    config = _USUAL | {key: value for key, value in options.items() if key not in _OF_KERBEROS}
    config[f"dfs.client.failover.proxy.provider.{url.bucket}"] = _OF_THE_ACTIVE

    class Plain(Client):
        """Its writers are no streams of Python's, which close themselves when they are collected: on whatever
        thread that is, and for as long as it takes."""

        def create(self, path: str) -> Any:  # type: ignore[override]
            return _COMPILED(self).create(path, WriteOptions())

    def connect() -> HdfsClient:
        return Plain(f"hdfs://{url.bucket}", config, **of_kerberos)

    try:
        return HdfsRequests(url, connect)
    except (OSError, RuntimeError) as error:
        raise InvalidArgument(
            f"{url}: there is no client for this place ({said_in(error).text}): a name node has its port in "
            "the URL (hdfs://namenode:8020/folder), a name service is in HADOOP_CONF_DIR or storage_options"
        ) from None


__all__ = ["connected"]
