"""The object stores of others, as ``ci/servers.sh`` installs them: started once, ended with the tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from kudu_core.common.run.clock import Clock
from kudu_core.objects.client import open_store

INSTALLED = Path(__file__).resolve().parents[3] / "build" / "servers"
PROGRAMS = {
    "gofakes3": INSTALLED / "bin" / "gofakes3",
    "versitygw": INSTALLED / "bin" / "versitygw",
    "azurite": INSTALLED / "npm" / "node_modules" / ".bin" / "azurite-blob",
    "hdfs": INSTALLED / "hdfs" / "hadoop-minicluster-3.4.1.jar",
}
BUCKET = "bucket"
# Azurite's own, the same everywhere, and in its documentation.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_S = 60


class Servers:
    """Those that have been asked for; ``close`` ends them.  What is not installed is skipped, and says so."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[str, dict[str, Any]]] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = Path(tempfile.mkdtemp(prefix="kudu-core-servers-"))

    def of(self, name: str) -> tuple[str, dict[str, Any]]:
        """URL and ``storage_options`` of an empty bucket's server."""
        if name not in self._running:
            if not PROGRAMS[name].exists():
                pytest.skip(f"{name} IS NOT INSTALLED: run ci/servers.sh, and see what it says")
            self._running[name] = getattr(self, f"_{name}")()
        return self._running[name]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _gofakes3(self) -> tuple[str, dict[str, Any]]:
        flags = ["-backend", "memory", "-initialbucket", BUCKET, "-quiet", "-host", "{host}"]
        return f"s3://{BUCKET}", _s3(self._started("gofakes3", flags))

    def _versitygw(self) -> tuple[str, dict[str, Any]]:
        (self._folder / "versitygw" / BUCKET).mkdir(parents=True)
        flags = ["--access", "AKTEST", "--secret", "no secret", "--port", "{host}", "--quiet", "posix"]
        host = self._started("versitygw", [*flags, str(self._folder / "versitygw")])
        return f"s3://{BUCKET}", _s3(host)

    def _azurite(self) -> tuple[str, dict[str, Any]]:
        flags = ["--silent", "--skipApiVersionCheck", "--location", str(self._folder)]
        host = self._started("azurite", [*flags, "--blobHost", "127.0.0.1", "--blobPort", "{port}"])
        endpoint = f"http://{host}/{ACCOUNT}"
        _until(lambda: _make_container(endpoint, BUCKET))
        known = {"account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "endpoint": endpoint}
        return f"az://{BUCKET}", known

    def _hdfs(self) -> tuple[str, dict[str, Any]]:
        """A name node and three data nodes in one process: of one data node a put waits half a second now and
        then, until the name node has heard of its block."""
        main = "org.apache.hadoop.test.MiniDFSClusterManager"
        program = ["java", "-Xmx600m", "-cp", str(PROGRAMS["hdfs"].with_name("*")), main]
        host = self._started("hdfs", ["-nnport", "{port}", "-datanodes", "3", "-format"], program)
        url = f"hdfs://{host}"
        put_id = bytes(16)  # no data node may be there yet
        open_store(url, put_id_of=lambda *_: put_id, clock=Clock(), deadline_s=START_S).put("begin", put_id)
        return url, {}

    def _started(self, name: str, flags: list[str], program: list[str] | None = None) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        host = f"127.0.0.1:{port}"
        log = (self._folder / f"{name}.log").open("wb")
        with log:
            command = program or [str(PROGRAMS[name])]
            command = [*command, *(flag.format(host=host, port=port) for flag in flags)]
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        self._processes.append(process)

        def listens() -> None:
            assert process.poll() is None, (self._folder / f"{name}.log").read_text()
            socket.create_connection(("127.0.0.1", port), timeout=1).close()

        _until(listens)
        return host


def _s3(host: str) -> dict[str, Any]:
    known = {"endpoint": f"http://{host}", "access_key_id": "AKTEST", "secret_access_key": "no secret"}
    return {**known, "region": "us-east-1"}


def _until(attempt: Callable[[], object]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            attempt()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _make_container(endpoint: str, name: str) -> None:
    """Azure's request for it, signed; the client has none."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    listed = "\n".join(f"{key}:{value}" for key, value in sorted(headers.items()))
    resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"{listed}\n{resource}"
    key = base64.b64decode(ACCOUNT_KEY)
    signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 201, answer.status
