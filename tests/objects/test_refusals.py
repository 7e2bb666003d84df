"""What is told of every refusal of a store, by the real client against our HTTP server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.run.clock import Clock
from kudu_core.objects.client import open_store
from tests.objects.test_client import opened
from tests.objects.test_contract import body, id_of
from tests.support.objects.memory import StepClock, put_id_of
from tests.support.objects.server import Reply, StoreServer, error

ROOT = Path(__file__).resolve().parents[2]


REFUSED: dict[str, tuple[Any, type[kc.StoreError], str]] = {
    "expired": (error(400, "ExpiredToken"), kc.StoreDenied, r"the credentials: they have expired"),
    "expired, 403": (error(403, "ExpiredToken"), kc.StoreDenied, r"they have expired"),
    "a right": (error(403, "AccessDenied", "no"), kc.StoreDenied, r"lack a right \(403 AccessDenied no\)"),
    "a wrong secret": (error(403, "SignatureDoesNotMatch"), kc.StoreDenied, r"the secret key is wrong"),
    "a wrong clock": (error(403, "RequestTimeTooSkewed"), kc.StoreDenied, r"the clock of this machine"),
    "unauthenticated": (error(401, "Unauthorized"), kc.StoreDenied, r"they are wrong, or lack a right"),
    "no bucket": (error(404, "NoSuchBucket"), kc.StoreError, r"there is no bucket (s3|gs)://bucket"),
    "no container": (error(404, "ContainerNotFound"), kc.StoreError, r"there is no bucket"),
    "another region": (error(301, "PermanentRedirect"), kc.StoreError, r"in another region"),
    "not there": (error(501, "NotImplemented", "If-None-Match"), kc.StoreError, r"does not support"),
    "a bad request": (error(400, "InvalidRequest", "why"), kc.StoreError, r"\(400 InvalidRequest why\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(server: StoreServer, name: str) -> None:
    """At once, whatever is asked; nothing of them reads as "there is no such object", or as another's."""
    server.always, kind, told = REFUSED[name]
    store, mine = opened(server), body()
    calls: list[Callable[[], object]] = [
        lambda: store.read_bytes("a", 10),
        lambda: store.read_ranges("a", [(0, 1)]),
        lambda: store.put("a", b"x"),
        lambda: store.put_if_absent("a", mine, id_of(mine)),
        lambda: store.replace_if("a", mine, "1", id_of(mine)),
        lambda: store.delete_many(["a"]),
        lambda: store.entries(""),
    ]
    for call in calls:
        with pytest.raises(kind, match=told) as raised:
            call()
        assert type(raised.value) is kind and not raised.value.unknown
        assert "no secret" not in str(raised.value) and "Debug" not in str(raised.value)
    assert len(server.seen) == len(calls), "each was asked once"
    server.always = None
    store.put("a", mine)
    assert store.read_bytes("a", 100) == mine, "and the handle goes on"


@pytest.mark.parametrize(
    "reply",
    [
        error(429, "TooManyRequests"),
        error(429, "x")._replace(body=b""),
        error(408, "x")._replace(body=b""),
        error(400, "RequestTimeout"),
        error(503, "SlowDown"),
        error(500, "InternalError"),
        error(502, "x")._replace(body=b"<html>Bad gateway</html>"),
    ],
)
def test_what_asks_for_patience(server: StoreServer, reply: Reply) -> None:
    """Whatever is asked; and while it lasts, nothing else is told."""
    server.always = reply

    class Acting(StepClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.slept) % 3 == 0:
                server.always = None

    store, mine = opened(server, Acting()), body()
    assert store.put_if_absent("a", mine, id_of(mine)) is None
    server.always = reply
    assert store.read_bytes("a", 100) == mine
    server.always = reply
    assert [each.name for each in store.entries("")] == ["a"]
    server.always = reply
    store.delete_many(["a"])
    assert store.counts()["repeated"] == 12 and not server.memory.objects


def test_a_404_that_is_not_of_a_store(server: StoreServer) -> None:
    server.always = error(404, "x")._replace(body=b"<html>Not found</html>")
    with pytest.raises(kc.StoreError, match="is this the endpoint of a store"):
        opened(server).read_bytes("a", 10)


def test_who_asks(s3: StoreServer) -> None:
    with pytest.raises(kc.StoreDenied, match=r"s3://bucket refuses the credentials: there is no such access"):
        opened(s3, access_key_id="WRONG").read_bytes("a", 10)
    with pytest.raises(kc.StoreError, match=r"in another region.*expecting 'us-test-1'"):
        opened(s3, region="eu-1").read_bytes("a", 10)
    options = s3.options()
    store = open_store("s3://nobucket/x", options, put_id_of=put_id_of, clock=StepClock())
    calls: list[Callable[[], object]] = [
        lambda: store.read_bytes("a", 9),
        lambda: store.replace_if("a", b"x" * 16, '"e"', b"x" * 16),
    ]
    for call in calls:
        with pytest.raises(kc.StoreError, match=r"there is no bucket s3://nobucket"):
            call()


def test_no_credentials_at_all(s3: StoreServer) -> None:
    """The client then asks the machine for a role: here our server, which knows of none."""
    options = {"endpoint": s3.endpoint, "region": "us-test-1", "metadata_endpoint": s3.endpoint}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    program = (
        "import sys, kudu_core as kc\n"
        "from kudu_core.objects.client import open_store\n"
        "from kudu_core.common.run.clock import Clock\n"
        f"options = {options!r}\n"
        "def ids(path, data): return data\n"
        "store = open_store('s3://bucket/x', options, put_id_of=ids, clock=Clock(), deadline_s=5)\n"
        "try: store.read_bytes('a', 1)\n"
        "except kc.StoreDenied as error: print(error)\n"
    )
    s3.always = error(404, "NotFound")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env=clean, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "s3://bucket: no credentials were found: give them in storage_options" in done.stdout, done


def test_nobody_listens() -> None:
    with StoreServer("s3") as gone:
        options = gone.options()
    store = open_store("s3://bucket/x", options, put_id_of=put_id_of, clock=StepClock(), deadline_s=3.0)
    with pytest.raises(kc.StoreUnavailable, match=r"no answer .*error sending request") as raised:
        store.read_bytes("a", 10)
    assert not raised.value.unknown


@pytest.mark.parametrize(
    ("url", "options", "told"),
    [
        ("s3://bucket/x", {"colour": "red"}, r"s3:// has no such storage option: .*colour"),
        ("az://box/x", {}, r"do not fit az://box/x: .*Account must be specified"),
        ("az://box/x", {"account_name": "a", "account_key": "???"}, r"do not fit az://box/x"),
        ("gs://bucket/x", {"service_account_key": "{"}, r"do not fit gs://bucket/x"),
        ("s4://bucket/x", {}, r"no scheme 's4'"),
    ],
)
def test_what_does_not_fit(url: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(kc.InvalidArgument, match=told):
        open_store(url, options, put_id_of=put_id_of, clock=Clock())


@pytest.mark.parametrize(
    ("url", "extra"), [("s3://b1/x", "s3"), ("gs://b12/x", "gcs"), ("az://b1/x", "azure")]
)
def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch, url: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(kc.NotSupported, match=rf"obstore: pip install 'kudu-core\[{extra}\]'"):
        open_store(url, {}, put_id_of=put_id_of, clock=Clock())


