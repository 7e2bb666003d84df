"""What the errors of hdfs-native mean.

``SEEN`` are texts of 0.14.7 and Hadoop 3.4.1 as they came, their stacks cut.  ``UNSEEN`` were made up after
the same pattern, for what no cluster here could be brought to say.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.run.clock import Clock
from kudu_core.objects.api import Unknown, Unmet
from kudu_core.objects.client import open_store
from kudu_core.objects.clients.hdfs_answers import meaning
from tests.support.objects.local_hdfs import java
from tests.support.objects.memory import put_id_of

NAMENODE = "org.apache.hadoop.hdfs.server.namenode"
NODES = (
    'All DataNodes failed: [DatanodeInfoProto { id: DatanodeIdProto { ip_addr: \\"127.0.0.1\\", host_name: '
    '\\"127.0.0.1\\", xfer_port: 36785 }, capacity: Some(541106348032) }]'
)
SAFE = (
    'Cannot create file/n800be3. Name node is in safe mode.\\nIt was turned on manually. Use \\"hdfs '
    'dfsadmin -safemode leave\\" to turn safe mode off. NamenodeHostName:localhost'
)
DENIED = 'Permission denied: user=nobody2, access=WRITE, inode=\\"/\\":root:supergroup:drwxr-xr-x'

SEEN: dict[str, tuple[Exception, type[Exception], str]] = {
    "nobody listens": (OSError("Connection refused (os error 111)"), Unknown, r"Connection refused"),
    "no such host": (
        OSError("failed to lookup address information: Name or service not known"),
        Unknown, r"Name or service not known",
    ),
    "another server": (OSError("RPC listener disconnected"), Unknown, r"RPC listener disconnected"),
    "closed": (OSError("Broken pipe (os error 32)"), Unknown, r"Broken pipe"),
    "safe mode": (
        java(f"{NAMENODE}.SafeModeException", SAFE), Unknown,
        r'^SafeModeException: Cannot create file/n800be3\. Name node is in safe mode\. It was .* "hdfs dfs',
    ),
    "no data node": (RuntimeError(f'DataTransferError("{NODES}")'), Unknown, r"^.*All DataNodes failed$"),
    "a right": (
        java("org.apache.hadoop.security.AccessControlException", DENIED), kc.StoreDenied,
        r'hdfs://nn:8020 refuses .*lack a right \(AccessControlException: Permission denied: user=nob.*"/":r',
    ),
    "no object": (
        FileNotFoundError("File does not exist: /a\n\tat org"), FileNotFoundError, r"no such object: 'a'",
    ),
    "below an object": (
        java("org.apache.hadoop.fs.ParentNotDirectoryException", "/a/b (is not a directory)"), kc.StoreError,
        r"refuses a: an object .* below another \(ParentNotDirectoryException: /a/b \(is not a directory\)\)",
    ),
    "on a folder": (
        FileExistsError("Path is not a directory: /a\n\tat org"), kc.StoreError, r"refuses a: an object",
    ),
    "a long name": (
        java("org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException", "The maximum"),
        kc.StoreError, r"refuses a \(FSLimitException\$PathComponentTooLongException: The maximum\)",
    ),
}  # fmt: skip
UNSEEN: dict[str, tuple[Exception, type[Exception], str]] = {
    "a standby": (
        java("org.apache.hadoop.ipc.StandbyException", "Operation category READ is not supported"), Unknown,
        r"^StandbyException: Operation category READ",
    ),
    "no place": (
        java("java.io.IOException", "File /x could only be written to 0 of the 1 minReplication nodes."),
        Unknown, r"could only be written to 0",
    ),
    "a checksum": (RuntimeError("ChecksumError"), Unknown, r"^ChecksumError$"),
    "not complete": (
        RuntimeError('OperationFailed("Failed to complete file in time")'),
        Unknown, r"^OperationFailed: Failed to complete",
    ),
    "no ticket": (RuntimeError("NoSASLMechanism"), kc.StoreDenied, r"\(NoSASLMechanism\)"),
    "a ticket": (RuntimeError('SASLError("No Kerberos credentials")'), kc.StoreDenied, r"No Kerberos"),
    "a quota": (
        java("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "The DiskSpace quota"),
        kc.StoreError, r"refuses a \(DSQuotaExceededException",
    ),
    "encryption": (NotImplementedError("File encryption"), kc.StoreError, r"not support File encryption"),
    "ours": (kc.StoreDenied("x"), kc.StoreDenied, r"^x$"),
    "no answer": (Unknown("y"), Unknown, r"^y$"),
    "refused": (Unmet("z"), Unmet, r"^z$"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN | UNSEEN)
def test_errors(name: str) -> None:
    error, kind, told = (SEEN | UNSEEN)[name]
    found = meaning(error, "hdfs://nn:8020", "a")
    assert type(found) is kind
    with pytest.raises(kind, match=told):
        raise found
    assert "\n" not in str(found) and "\tat" not in str(found) and len(str(found)) < 500


def test_a_long_story_is_cut() -> None:
    found = meaning(java("java.io.IOException", "why " * 500), "hdfs://nn:8020", "a")
    assert type(found) is kc.StoreError and len(str(found)) < 400


@pytest.mark.parametrize(
    ("where", "options", "told"),
    [
        ("hdfs://nn:8020/x", {"region": "eu"}, r"hdfs:// has no such storage option: 'region'"),
        ("hdfs://nn:8020/x", {7: "eu"}, r"has no such storage option: 7"),
        ("hdfs://nn:8020/x", {"dfs.client.use.datanode.hostname": True}, r"are str, and .* is not: True"),
        ("hdfs://ha/x", {}, r"no client for this place \(.*No NameNode hosts found.*HADOOP_CONF_DIR"),
    ],
)
def test_what_does_not_fit(
    where: str, options: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(kc.InvalidArgument, match=told):
        open_store(where, options, put_id_of=put_id_of, clock=Clock())


def test_a_name_service_of_two() -> None:
    """The first of them does not answer, and neither does the second: soon, for its pauses are cut short."""
    addresses = {f"dfs.namenode.rpc-address.ha.{name}": f"127.0.0.1:{n}" for n, name in ((1, "a"), (2, "b"))}
    options = {"dfs.ha.namenodes.ha": "a,b", **addresses}
    store = open_store("hdfs://ha/x", options, put_id_of=put_id_of, clock=Clock(), deadline_s=0.01)
    began_s = Clock().monotonic_s()
    with pytest.raises(kc.StoreUnavailable, match="asked once; the last time: Connection refused"):
        store.read_bytes("a", 1)
    assert Clock().monotonic_s() - began_s < 5


def test_options_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    import hdfs_native

    seen: dict[str, Any] = {}

    class Client:
        def __init__(self, *given: Any, **of_kerberos: str) -> None:
            seen.update(given=given, of_kerberos=of_kerberos)

    monkeypatch.setattr(hdfs_native, "Client", Client)
    provider = "dfs.client.failover.proxy.provider.ha"
    package = "org.apache.hadoop.hdfs.server.namenode.ha"
    options = {
        "dfs.client.failover.max.attempts": "7",
        provider: f"{package}.ObserverReadProxyProvider",
        "kerberos_keytab": "/k",
        "cache_dir": "/cache",
    }
    open_store("hdfs://ha/x", options, put_id_of=put_id_of, clock=Clock())
    url, config = seen["given"]
    assert url == "hdfs://ha" and config["dfs.client.failover.max.attempts"] == "7"
    assert config[provider] == f"{package}.ConfiguredFailoverProxyProvider", "no stale answers"
    assert config["dfs.client.failover.sleep.base.millis"] == "50" and len(config) == 4
    assert seen["of_kerberos"] == {"kerberos_keytab": "/k"}


def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(kc.NotSupported, match=r"hdfs-native: pip install 'kudu-core\[hdfs\]'"):
        open_store("hdfs://nn:8020/x", {}, put_id_of=put_id_of, clock=Clock())
