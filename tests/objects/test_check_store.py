"""``check_store`` names the rule that a store breaks, passes a sound one, and leaves nothing behind."""

from __future__ import annotations

import doctest
import re

import pytest

import kudu_core as kc
from kudu_core.common.run.clock import Clock
from kudu_core.objects import check_store as rules
from kudu_core.objects.api import Condition, Unmet, Version
from kudu_core.objects.check_store import check
from tests.support.objects.broken import BREAKS, BrokenStore
from tests.support.objects.fates import Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore, client
from tests.support.objects.server import StoreServer, error
from tests.support.objects.servers import Servers

NAMED = {
    "absent ignored": rules.ABSENT,
    "absent racy": rules.RACE,
    "absent overwrites": rules.ABSENT,
    "replace ignored": rules.REPLACE,
    "replace racy": rules.COUNTER,
    "replace overwrites": rules.REPLACE,
    "replace makes": rules.REPLACE,
    "one version": rules.REPLACE,
    "old bytes": rules.VISIBLE,
    "remembers nothing": rules.VISIBLE,
    "cut short": rules.VISIBLE,
    "range ignored": rules.RANGES,
    "range off by one": rules.RANGES,
    "list lacks": rules.LIST,
    "list spills": rules.LIST,
    "list sizes": rules.LIST,
    "delete lies": rules.DELETE,
}


def checked(store: MemoryObjectStore, seconds: float = 0.15) -> kc.StoreReport:
    return check(client(store, clock=Clock(), deadline_s=3.0), "memory", Clock(), threads=6, seconds=seconds)


@pytest.mark.parametrize("breaks", NAMED)
def test_each_broken_promise_is_named(breaks: str) -> None:
    report = checked(BrokenStore(breaks))
    assert NAMED[breaks] in report.broken, report
    assert not report.is_sound and "NOT SAFE" in str(report) and NAMED[breaks] in str(report)


def test_two_winners_are_counted() -> None:
    found = checked(BrokenStore("absent racy")).broken[rules.RACE]
    assert re.search(r"[2-6] of 6 writers were told that race/\d+ is theirs", found), found


def test_every_break_is_tried() -> None:
    assert set(NAMED) == set(BREAKS) and len(set(NAMED.values())) == 8


@pytest.mark.parametrize("versions", ["etag", "generation"])
def test_a_sound_store(versions: str) -> None:
    store = MemoryObjectStore(versions=versions)  # type: ignore[arg-type]
    report = checked(store)
    assert report.is_sound and report.broken == {}, report
    assert report.races >= 8 and report.replacements >= 6
    assert str(report).startswith("memory: ") and str(report).endswith("sound as far as was seen")
    assert store.objects == {}, "and nothing is left"


def test_over_http(server: StoreServer) -> None:
    server.memory.store("table/TABLE", b"a table's")
    report = kc.check_store(f"{server.url}/table", server.options(), seconds=0.4, threads=8)
    assert report.is_sound, report
    assert report.url == f"{server.url}/table"
    assert report.requests["requests_put"] > 50 and report.requests["repeated"] == 0
    assert list(server.memory.objects) == ["table/TABLE"], "nothing else was touched, and nothing is left"


def test_stores_of_others(servers: Servers, other: str, long: bool) -> None:
    url, options = servers.of(other)
    report = kc.check_store(url, options, seconds=60.0 if long else 1.0, threads=16 if long else 6)
    assert report.is_sound, report


def test_over_http_with_faults(server: StoreServer) -> None:
    """Lost and late answers are no fault of a store."""
    puts = frozenset({"put"})
    server.fates.rules += [
        Rule("lost", ops=puts, probability=0.02),
        Rule("refused", probability=0.02, how="reset"),
        Rule("conflict", ops=puts, probability=0.02),
    ]
    report = kc.check_store(server.url, server.options(), seconds=0.5, threads=4)
    assert report.is_sound, report
    assert report.requests["repeated"] > 0


def test_a_broken_store_over_http(server: StoreServer) -> None:
    server.memory = BrokenStore("absent racy", "etag" if server.speaks == "s3" else "generation")
    report = kc.check_store(server.url, server.options(), seconds=0.5, threads=8)
    assert rules.RACE in report.broken, report


def test_a_store_that_contradicts_itself() -> None:
    """It says that an object has changed, and shows the same version: for ever."""

    class Stubborn(MemoryObjectStore):
        def put(self, path: str, data: bytes, condition: Condition) -> Version:
            if isinstance(condition, str):
                raise Unmet(path)
            return super().put(path, data, condition)

    report = check(client(Stubborn(), deadline_s=3.0), "memory", Clock(), threads=2, seconds=0.1)
    assert "says that the object has changed, and it has not" in report.broken[rules.REPLACE], report


def test_a_store_that_goes_away() -> None:
    store = FaultyStore(MemoryObjectStore(), [Rule("busy", nth=30, times=10_000)])
    with pytest.raises(kc.StoreUnavailable):
        check(client(store, deadline_s=3.0), "memory", Clock(), threads=2, seconds=0.1)


def test_a_store_without_conditions(server: StoreServer) -> None:
    server.always = error(501, "NotImplemented", "A header is not implemented")
    with pytest.raises(kc.StoreError, match=r"does not support what is asked of it \(501 NotImplemented"):
        kc.check_store(server.url, server.options())


def test_what_is_not_the_stores_fault(server: StoreServer) -> None:
    server.always = error(403, "ExpiredToken")
    with pytest.raises(kc.StoreDenied, match="they have expired"):
        kc.check_store(server.url, server.options())
    server.always = error(404, "NoSuchBucket")
    with pytest.raises(kc.StoreError, match="there is no bucket"):
        kc.check_store(server.url, server.options())


@pytest.mark.parametrize(
    ("url", "options", "kind", "told"),
    [
        ("s4://x", {}, kc.InvalidArgument, "no scheme 's4'"),
        ("/data/t", {}, kc.InvalidArgument, "is no URL; those of stores are s3://bucket/folder"),
        ("hdfs://nn/x", {}, kc.InvalidArgument, "hdfs://nn/x/check-.* No NameNode hosts found"),
        ("s3://bucket", {"threads": 0}, kc.InvalidArgument, "threads is 1 to 256"),
        ("s3://bucket", {"seconds": 0}, kc.InvalidArgument, "seconds above 0"),
    ],
)
def test_bad_arguments(url: str, options: dict[str, int], kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        kc.check_store(url, **options)  # type: ignore[arg-type]


def test_the_example_parses() -> None:
    assert doctest.DocTestParser().get_examples(kc.check_store.__doc__ or "")
